"""The table of a comparison, compare.json: a row per sampler with its metrics over seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lookalike.report.records import kinds
from lookalike.report.records.runs import COSTS, SETTINGS, config_of
from lookalike.training.comparison_results import METRICS, ZERO_SHOT, ComparisonRow, Gain, Spread

if TYPE_CHECKING:
    from lookalike.report.records.checks import Checker
    from lookalike.report.records.runs import RunConfig

RUNS_INSTEAD = "showing its runs one by one"
SKIPPED_ROW = "skipped the row"
TABLE = {
    "data": kinds.TEXT,
    "description": kinds.TEXT,
    "encoder": kinds.TEXT,
    "model": kinds.TEXT,
    "seeds": kinds.COUNT,
    "jobs": kinds.COUNT,
}
SOME_SETTINGS = kinds.Kind(
    "an object with the settings of the samplers", lambda value: kinds.OBJECT.fits(value) and bool(value)
)
SOME_ROWS = kinds.Kind("a list of rows", lambda value: kinds.LIST.fits(value) and bool(value))


@dataclass(frozen=True, kw_only=True)
class SamplerRow(ComparisonRow):
    """A row of a comparison that the report can colour; metrics that are damaged are left out of its `quality`."""

    strategy: str
    """The sampler with its bits, which a row may leave out of its name."""
    trained: bool = True
    """False for the model before training, which is not a contender."""

    @property
    def recall(self) -> Spread:
        """Recall@1 over seeds."""
        return self.quality["recall@1"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A table of samplers and its conditions; empty texts and None for what compare.json does not say."""

    rows: list[SamplerRow]
    seeds: int
    jobs: int = 1
    data: str = ""
    description: str = ""
    encoder: str = ""
    model: str = ""
    machine: str = ""
    epochs: int | None = None
    pairs_per_batch: int | None = None


def parse_comparison(content: dict[str, Any], checker: Checker, *, data: str) -> Comparison | None:
    """Check compare.json; `data` is the name to show if the file has none. None if no row can be shown."""
    if not checker.has(content, {"rows": SOME_ROWS}, RUNS_INSTEAD):
        return None
    settings = _parse_settings(content, checker)
    parsed = [_parse_row(row, place, settings, checker) for place, row in checker.rows(content["rows"])]
    rows = [row for row in parsed if row is not None]
    if not rows:
        checker.note(f"no row can be shown; {RUNS_INSTEAD}")
        return None
    most_seeds = max(len(row.recall.values) for row in rows) or 1
    known = {"data": data, "seeds": most_seeds, **checker.kept(content, TABLE)}
    machine = checker.part(content, "machine", {"gpu": kinds.TEXT, "processor": kinds.TEXT})
    first = next(iter(settings.values()), None)
    return Comparison(
        **known,
        rows=rows,
        machine=machine.get("gpu") or machine.get("processor", ""),
        epochs=None if first is None else first.epochs,
        pairs_per_batch=None if first is None else first.pairs_per_batch,
    )


def _parse_settings(content: dict[str, Any], checker: Checker) -> dict[str, RunConfig]:
    """Return the settings by row; the sampler defaults to the name of the row."""
    by_row = checker.kept(content, {"settings": SOME_SETTINGS}).get("settings", {})
    by_row = checker.kept(by_row, dict.fromkeys(by_row, kinds.OBJECT), of="settings of")
    found = {}
    for name, settings in by_row.items():
        known = checker.kept(settings, SETTINGS, of=f"settings of {name}:")
        known = {"sampler": name, **known}
        found[name] = config_of(known, known)
    return found


def _parse_row(
    content: dict[str, Any], place: str, settings: dict[str, RunConfig], checker: Checker
) -> SamplerRow | None:
    if not checker.has(content, {"sampler": kinds.NAME, "recall@1": kinds.OBJECT}, SKIPPED_ROW, place):
        return None
    if not checker.has(content["recall@1"], {"mean": kinds.FRACTION}, SKIPPED_ROW, place, of="recall@1"):
        return None
    name = content["sampler"]
    spreads = {metric: _parse_spread(content, metric, place, checker) for metric in METRICS}
    quality = {metric: spread for metric, spread in spreads.items() if spread is not None}
    return SamplerRow(
        sampler=name,
        strategy=settings[name].strategy if name in settings else name,
        trained=name in settings if settings else name != ZERO_SHOT,
        runs=len(quality["recall@1"].values),
        quality=quality,
        gain_over_random=_parse_gain(content, place, checker),
        **checker.kept(content, COSTS, place),
    )


def _parse_spread(row: dict[str, Any], name: str, place: str, checker: Checker) -> Spread | None:
    found = checker.measured(row, name, kinds.FRACTION, place)
    if found is None:
        return None
    known = checker.kept(
        found, {"sd": kinds.optional(kinds.NOT_NEGATIVE), "values": kinds.list_of(kinds.FRACTION)}, place, of=name
    )
    return Spread(found["mean"], known.get("sd"), known.get("values", []))


def _parse_gain(row: dict[str, Any], place: str, checker: Checker) -> Gain | None:
    gain = checker.kept(row, {"gain_over_random": kinds.optional(kinds.OBJECT)}, place).get("gain_over_random")
    required = {"mean": kinds.NUMBER, "standard_error": kinds.NOT_NEGATIVE}
    if gain is None or not checker.has(gain, required, "ignored", place, of="gain_over_random"):
        return None
    return Gain(gain["mean"], gain["standard_error"])
