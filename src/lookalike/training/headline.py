"""Sum up a run in the text of its progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.training.results import EpochMetrics


def headline(epoch: int, epochs: int, losses: Sequence[float], history: Sequence[EpochMetrics]) -> str:
    """Return the epoch that is being trained, its newest loss, and what the epoch before it came to.

    Args:
        epoch: Epochs that are finished.
        epochs: Epochs in all.
        losses: Of this epoch, as far as they are known.
        history: The finished epochs, from epoch 0 on.
    """
    parts = [f"epoch {epoch + 1}/{epochs}"]
    if losses:
        parts.append(f"loss {losses[-1]:.3f}")
    if epoch > 0:
        last = history[-1]
        quality = last.validation or last.quality
        parts += [f"R@1 {quality['recall@1']:.1%}"] if quality else []
        parts.append(f"mining {last.mining_seconds:.2f} s ({last.mining_share:.1%})")
    return "  ".join(parts)
