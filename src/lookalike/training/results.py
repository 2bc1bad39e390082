"""What a run came to: metrics per epoch, and the result at its end. The loop writes them, reports read them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

MEASURES = ("overlap", "positional_distance")  # by bits


@dataclass(frozen=True, kw_only=True)
class EpochMetrics:
    """One epoch of a run, a line of metrics.jsonl. Epoch 0 is the model before training."""

    epoch: int
    step: int | None = None
    """Steps taken when the epoch ended."""
    loss: float | None = None
    """Mean over the epoch."""
    hardest_negative: float | None = None
    """Cosine of each query's hardest negative in its batch, averaged."""
    temperature: float | None = None
    quality: dict[str, float] = field(default_factory=dict)
    """recall@1, recall@5, recall@10, recall@1%, mrr@10 and queries; empty where the epoch was not evaluated."""
    overlap: dict[str, float] = field(default_factory=dict)
    """Overlap of the negatives found in bits with the true ones, by bits; empty unless it was tracked."""
    positional_distance: dict[str, float] = field(default_factory=dict)
    """How far down the true list the negatives found in bits stand, by bits; empty unless it was tracked."""
    seconds: float | None = None
    mining_seconds: float | None = None
    mining_share: float | None = None
    kept_bytes: int | None = None
    """Memory that the sampler keeps from one epoch to the next."""
    bits: int | None = None
    """Length of the codes, for lsh."""

    def as_json(self) -> dict[str, Any]:
        """Flatten into one JSON object without what is not known; quality metrics stand beside the others."""
        own = {name: value for name, value in asdict(self).items() if value not in (None, {}) and name != "quality"}
        return {**own, **self.quality}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Rebuild what `as_json` made; unknown entries are ignored."""
        names = {each.name for each in fields(cls)} - {"quality"}
        own = {name: value for name, value in content.items() if name in names}
        return cls(**own, quality=quality_of(content))


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The outcome of a finished run, as result.json holds it."""

    config: dict[str, Any]
    """Settings, data and model of the run."""
    metrics: dict[str, float]
    """Quality after the last epoch."""
    zero_shot: dict[str, float] | None = None
    """Quality before training."""
    epochs: int | None = None
    seconds: float | None = None
    mining_seconds_per_epoch: float | None = None
    """Without the first epoch, which has nothing to mine; None for a run of one epoch."""
    mining_share: float | None = None
    kept_bytes: int | None = None
    parameters: int | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Rebuild what `as_json` made; unknown entries are ignored."""
        return cls(**{each.name: content[each.name] for each in fields(cls) if each.name in content})


def quality_of(content: dict[str, Any]) -> dict[str, float]:
    """Pick the metrics of an evaluation out of a flat object."""
    return {name: value for name, value in content.items() if "@" in name or name == "queries"}
