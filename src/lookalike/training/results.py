"""Results of runs: the metrics of an epoch, and the outcome of a run. The loop writes them; reports read them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

BEST_BY = "mrr@10"  # on the validation part; it counts more ranks than recall@1 does, and so is less noisy


@dataclass(frozen=True, kw_only=True)
class EpochMetrics:
    """One epoch of a run, a line of metrics.jsonl. Epoch 0 is the model before training."""

    epoch: int
    step: int | None = None
    """Steps taken by the end of the epoch."""
    loss: float | None = None
    """Mean over the epoch."""
    hardest_negative: float | None = None
    """Cosine of each query's hardest negative in its batch, averaged."""
    masked: float | None = None
    """Fraction of the negatives that the loss left out as likely false ones; None unless `mask_above` is set."""
    temperature: float | None = None
    quality: dict[str, float] = field(default_factory=dict)
    """recall@1, recall@5, recall@10, recall@1%, mrr@10, ndcg@10, map@r and queries on the test part; empty if the epoch
    was not evaluated on it. With a validation part, only the best epoch and epoch 0 are."""
    validation: dict[str, float] = field(default_factory=dict)
    """The same on the validation part; empty without one."""
    overlap: dict[str, float] = field(default_factory=dict)
    """Fraction of the true hard negatives that bits find, by number of bits; empty unless it was tracked."""
    positional_distance: dict[str, float] = field(default_factory=dict)
    """How far down the true list the negatives found in bits are, by number of bits; empty unless it was tracked."""
    seconds: float | None = None
    """Time of training and mining, without evaluation."""
    mining_seconds: float | None = None
    mining_share: float | None = None
    """Fraction of `seconds` spent on mining."""
    kept_bytes: int | None = None
    """Memory that the sampler keeps from one epoch to the next."""
    bits: int | None = None
    """Code length, for lsh."""
    readiness: float | None = None
    """In the first epoch, the fraction of the samples with a positive nearer than their 32nd negative, if measured."""
    warm_start: str | None = None
    """In the first epoch, what became of a warm start: "used", "given up" or "not ready"; None without one."""

    def as_json(self) -> dict[str, Any]:
        """Flatten into one JSON object without unknown entries; quality metrics become entries of their own."""
        own = {name: value for name, value in asdict(self).items() if value not in (None, {}) and name != "quality"}
        return {**own, **self.quality}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Rebuild what `as_json` returned; unknown entries are ignored."""
        names = {each.name for each in fields(cls)} - {"quality"}
        own = {name: value for name, value in content.items() if name in names}
        quality = {name: value for name, value in content.items() if "@" in name or name == "queries"}
        return cls(**own, quality=quality)


def best_epoch(epochs: Sequence[EpochMetrics]) -> EpochMetrics | None:
    """Return the best epoch on the validation part, the earliest of equals; epoch 0, before training, does not count.

    Returns None if no epoch was validated.
    """
    validated = [epoch for epoch in epochs if epoch.epoch > 0 and epoch.validation]
    return max(validated, key=lambda epoch: epoch.validation[BEST_BY], default=None)


def is_stale(epochs: Sequence[EpochMetrics], patience: int | None) -> bool:
    """Return whether the last `patience` evaluations on the validation part were no better than one before them."""
    validated = [epoch for epoch in epochs if epoch.epoch > 0 and epoch.validation]
    best = best_epoch(validated)
    return patience is not None and best is not None and len(validated) - validated.index(best) > patience


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a run, or the mean run of a strategy, took; None where it is not known."""

    seconds: float | None = None
    """Time of training and mining, without evaluations."""
    mining_seconds_per_epoch: float | None = None
    """Mean over all epochs but the first, whose mining is a warm start or nothing; of the first if it is alone."""
    mining_share: float | None = None
    """Fraction of the time of these epochs spent on mining."""
    kept_bytes: int | None = None
    """Memory that the sampler keeps from one epoch to the next."""


@dataclass(frozen=True, kw_only=True)
class RunResult(Costs):
    """The outcome of a finished run, as result.json holds it."""

    config: dict[str, Any]
    """Settings, data and model of the run."""
    metrics: dict[str, float]
    """Quality on the test part after the last epoch or, with a validation part, after the best one."""
    zero_shot: dict[str, float] | None = None
    """Quality before training."""
    best_epoch: int | None = None
    """The epoch whose weights were kept; None without a validation part, which keeps the last."""
    validation: dict[str, float] | None = None
    """Quality of that epoch on the validation part."""
    epochs: int | None = None
    """Epochs that were trained."""
    parameters: int | None = None
    """Size of the model."""
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_epochs(cls, epochs: Sequence[EpochMetrics], **about: Any) -> Self:
        """Sum up the epochs of a run, with epoch 0 if it was recorded; `about` holds the remaining fields."""
        trained = [epoch for epoch in epochs if epoch.epoch > 0]
        mined = trained[1:] or trained
        mining = sum(epoch.mining_seconds or 0.0 for epoch in mined)
        seconds = sum(epoch.seconds or 0.0 for epoch in mined)
        best = best_epoch(trained)
        return cls(
            metrics=(best or trained[-1]).quality,
            best_epoch=None if best is None else best.epoch,
            validation=None if best is None else best.validation,
            zero_shot=epochs[0].quality if epochs[0].epoch == 0 else None,
            epochs=len(trained),
            seconds=sum(epoch.seconds or 0.0 for epoch in trained),
            mining_seconds_per_epoch=mining / len(mined) if mined else None,
            mining_share=mining / seconds if seconds else None,
            kept_bytes=trained[-1].kept_bytes,
            **about,
        )

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Rebuild what `as_json` returned; unknown entries are ignored."""
        return cls(**{each.name: content[each.name] for each in fields(cls) if each.name in content})
