"""A run as its folder holds it: configuration, metrics by epoch, and the result if it is finished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lookalike.report.records import kinds
from lookalike.training.comparison_results import ALWAYS, METRICS
from lookalike.training.results import EpochMetrics, RunResult
from lookalike.training.run_folder import MODEL
from lookalike.training.settings import WITHOUT_MINING, strategy_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lookalike.report.records.checks import Checker

METRICS_ONLY = "showing the run's metrics only"
MINING_SETTINGS = ("hardness", "neighbourhood", "method")
SETTINGS = {
    "sampler": kinds.NAME,
    "bits": kinds.BITS,
    "code": kinds.TEXT,
    "epochs": kinds.COUNT,
    "pairs_per_batch": kinds.COUNT,
    "hardness": kinds.FRACTION,
    "seed": kinds.INTEGER,
    "data": kinds.TEXT,
    "data_root": kinds.optional(kinds.TEXT),
    "data_checksum": kinds.optional(kinds.TEXT),
    "data_options": kinds.optional(kinds.OBJECT),
    "model": kinds.TEXT,
    "model_options": kinds.optional(kinds.OBJECT),
}
EPOCH_NUMBER = kinds.Kind("the number of an epoch", lambda value: kinds.INTEGER.fits(value) and 0 <= value < 10**6)
QUALITY = dict.fromkeys(METRICS, kinds.FRACTION)
EPOCH = {
    **QUALITY,
    "queries": kinds.COUNT,
    "step": kinds.SIZE,
    "loss": kinds.NUMBER,
    "hardest_negative": kinds.COSINE,
    "masked": kinds.FRACTION,
    "temperature": kinds.POSITIVE,
    "mining_share": kinds.FRACTION,
    "seconds": kinds.NOT_NEGATIVE,
    "mining_seconds": kinds.NOT_NEGATIVE,
    "kept_bytes": kinds.SIZE,
    "bits": kinds.COUNT,
    "readiness": kinds.FRACTION,
    "warm_start": kinds.TEXT,
}
BY_BITS = {"overlap": kinds.FRACTION, "positional_distance": kinds.NOT_NEGATIVE}
COSTS = {
    "seconds": kinds.optional(kinds.NOT_NEGATIVE),
    "mining_seconds_per_epoch": kinds.optional(kinds.NOT_NEGATIVE),
    "mining_share": kinds.optional(kinds.FRACTION),
    "kept_bytes": kinds.optional(kinds.SIZE),
}
CHOICE = {"best_epoch": kinds.optional(kinds.COUNT)}


class Setting(NamedTuple):
    """The value of a setting: as JSON, to tell configurations apart, and as a label shows it."""

    exact: str
    shown: str


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a run was trained with; None for what run.json does not say."""

    sampler: str
    bits: int | Literal["auto"] | None = None
    code: str | None = None
    epochs: int | None = None
    pairs_per_batch: int | None = None
    hardness: float | None = None
    seed: int | None = None
    data: str = ""
    model: str = ""
    identity: dict[str, Setting]
    """Every setting that makes this another configuration: not the seed, and not what the sampler ignores."""
    content: dict[str, Any]
    """All of run.json, to load the data and the model with."""

    @property
    def strategy(self) -> str:
        """The sampler as tables name it: lsh or scalar, with its bits."""
        return strategy_name(self.sampler, self.code, self.bits)

    @property
    def mines(self) -> bool:
        """Whether its batches hold mined negatives."""
        return self.sampler not in WITHOUT_MINING


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run as far as it got."""

    path: Path
    config: RunConfig
    epochs: list[EpochMetrics]
    """In order, without epoch 0, the model before training."""
    result: RunResult | None = None
    """None until the run is finished."""
    in_comparison: bool = False
    """Whether the table of a comparison counts it already."""

    @property
    def progress(self) -> str:
        """How far an unfinished run got; empty for a finished one."""
        return "" if self.result else f"epoch {len(self.epochs)} of {self.config.epochs or '?'}"

    @property
    def state(self) -> str:
        """How far the run got, and which weights it kept if it chose them."""
        best = None if self.result is None else self.result.best_epoch
        return (self.progress or "finished") + ("" if best is None else f", best epoch by validation: {best}")

    @property
    def weights(self) -> Path:
        """Where a finished run keeps its model."""
        return self.path / MODEL

    def outcome(self) -> RunResult | None:
        """Return the result, or what it would be had the run ended here; None before the first evaluation."""
        evaluated = [epoch.quality for epoch in self.epochs if set(ALWAYS) <= set(epoch.quality)]
        if self.result or not evaluated:
            return self.result
        spent = [
            (epoch.mining_seconds, epoch.seconds)
            for epoch in self.epochs[1:]
            if epoch.mining_seconds is not None and epoch.seconds is not None
        ]
        mining, seconds = sum(part for part, _ in spent), sum(whole for _, whole in spent)
        return RunResult(
            config=_seeded(self.config),
            metrics=evaluated[-1],
            seconds=sum(epoch.seconds or 0.0 for epoch in self.epochs),
            mining_seconds_per_epoch=mining / len(spent) if spent else None,
            mining_share=mining / seconds if seconds else None,
            kept_bytes=self.epochs[-1].kept_bytes,
        )


def parse_config(content: dict[str, Any], checker: Checker) -> RunConfig | None:
    """Check run.json; None if it does not name the sampler."""
    if not checker.has(content, {"sampler": kinds.NAME}, "skipped the run"):
        return None
    known = checker.kept(content, SETTINGS)
    content = {name: value for name, value in content.items() if name not in SETTINGS} | known
    return config_of(known, content)


def config_of(known: dict[str, Any], content: dict[str, Any]) -> RunConfig:
    """Build a configuration from checked settings; `content` may hold more."""
    names = ("sampler", "bits", "code", "epochs", "pairs_per_batch", "hardness", "seed", "data", "model")
    plain = {name: known[name] for name in names if name in known}
    return RunConfig(**plain, identity=_identity(content), content=content)


def _identity(content: dict[str, Any]) -> dict[str, Setting]:
    options = [content.get(name) or {} for name in ("data_options", "model_options")]
    flat = {**content, **{name: value for part in options for name, value in part.items()}}
    sampler = content["sampler"]
    ignored = {"seed", "data_root", "data_options", "model_options"}
    ignored |= set() if sampler == "lsh" else {"bits", "code"}
    ignored |= set(MINING_SETTINGS) if sampler in WITHOUT_MINING else set()
    return {name: _setting(value) for name, value in flat.items() if name not in ignored}


def _setting(value: Any) -> Setting:
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return Setting(json.dumps(value, sort_keys=True), shown)


def parse_epochs(lines: Iterable[tuple[int, dict[str, Any] | None]], checker: Checker) -> list[EpochMetrics]:
    """Check the lines of metrics.jsonl; the last line of an epoch counts, and epoch 0 is left out."""
    epochs: dict[int, EpochMetrics] = {}
    for number, line in lines:
        place = f"line {number}"
        if line is None:
            checker.note("the line is damaged; skipped it", place)
        elif checker.has(line, {"epoch": EPOCH_NUMBER}, "skipped the line", place):
            known = checker.kept(line, EPOCH, place)
            for name, inner in checker.kept(line, dict.fromkeys(BY_BITS, kinds.OBJECT), place).items():
                fitting = {bits: BY_BITS[name] for bits in inner if kinds.is_bits(bits)}
                known[name] = checker.kept(inner, fitting, place, of=name)
            for name, inner in checker.kept(line, {"validation": kinds.OBJECT}, place).items():
                known[name] = checker.kept(inner, QUALITY, place, of=name)
            epochs[line["epoch"]] = EpochMetrics.from_json({"epoch": line["epoch"], **known})
    return [epoch for number, epoch in sorted(epochs.items()) if number > 0]


def parse_result(content: dict[str, Any], checker: Checker, *, config: RunConfig) -> RunResult | None:
    """Check result.json; None if its metrics are not complete."""
    if not checker.has(content, {"metrics": kinds.OBJECT}, METRICS_ONLY):
        return None
    if not checker.has(content["metrics"], dict.fromkeys(ALWAYS, kinds.FRACTION), METRICS_ONLY):
        return None
    metrics = checker.kept(content["metrics"], QUALITY)  # runs of earlier versions lack some
    return RunResult(config=_seeded(config), metrics=metrics, **checker.kept(content, COSTS | CHOICE))


def _seeded(config: RunConfig) -> dict[str, Any]:
    return {"seed": 0, **config.content}
