"""Settings -> sampler and loss: the five ways to choose negatives that the paper compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lookalike.losses import InfoNCE
from lookalike.samplers import EpochBatchSampler, LSHBatchSampler, PreEpochBatchSampler, RandomBatchSampler

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.data.retrieval import TrainingPart
    from lookalike.settings import Settings

HARD_FRACTION = 0.5  # of BatchHard


def make_sampler(
    part: TrainingPart, settings: Settings, exclude: tuple[Tensor, Tensor] | None = None
) -> EpochBatchSampler:
    """The sampler of a strategy; `exclude` names samples that are no negatives of each."""
    common: dict[str, Any] = {"pairs": part.pairs, "seed": settings.seed}
    batch_size = settings.batch_size * (2 if part.pairs is None else 1)
    if settings.sampler in ("random", "batchhard"):
        return RandomBatchSampler(part.labels, batch_size, **common)
    common |= {
        "exclude": exclude,
        "hardness": settings.hardness,
        "clusters": settings.clusters,
        "method": settings.method,
    }
    if settings.sampler == "lsh":
        return LSHBatchSampler(
            part.labels,
            batch_size,
            bits=settings.bits,
            target_overlap=settings.target_overlap,
            guard=settings.guard,
            **common,
        )
    return PreEpochBatchSampler(part.labels, batch_size, mode=settings.sampler, **common)


def make_loss(settings: Settings) -> InfoNCE:
    """The loss of a strategy."""
    return InfoNCE(
        settings.temperature,
        label_smoothing=settings.label_smoothing,
        hard_fraction=HARD_FRACTION if settings.sampler == "batchhard" else None,
    )
