"""Results of comparisons: one row per strategy, means over seeds, as a table in text and in JSON."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from lookalike.training.results import Costs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lookalike.training.results import RunResult

ZERO_SHOT = "before training"  # the row of the model before its first step
RANDOM = "random"  # the row that gains are measured against
ALWAYS = ("recall@1", "recall@5", "recall@10", "recall@1%", "mrr@10")  # in the results of every version
METRICS = (*ALWAYS, "ndcg@10", "map@r")
MINING = "mining, epoch"
HEADINGS = ["sampler", "R@1", "R@5", "R@10", "R@1%", "MRR@10", "nDCG@10", "MAP@R", "over random", MINING, "kept"]


@dataclass(frozen=True)
class Spread:
    """A metric over seeds."""

    mean: float
    sd: float | None
    """Standard deviation; None for a single seed."""
    values: list[float]
    """One value per seed, in the order of the seeds."""

    @classmethod
    def over(cls, values: Sequence[float]) -> Self:
        """Compute mean and standard deviation of some values."""
        return cls(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None, list(values))


@dataclass(frozen=True)
class Gain:
    """The difference of two means over independent seeds."""

    mean: float
    standard_error: float


@dataclass(frozen=True, kw_only=True)
class ComparisonRow(Costs):
    """One strategy of a comparison, over all its seeds."""

    sampler: str
    """Name of the row."""
    runs: int
    quality: dict[str, Spread]
    """One entry per metric of `METRICS`, except for those that a run lacks, because an earlier version trained it."""
    gain_over_random: Gain | None = None
    """Recall@1 above that of the row "random"; None without such a row, or for single seeds."""

    def as_json(self) -> dict[str, Any]:
        """Flatten into one JSON object: metrics become entries of their own, and an unknown gain is left out."""
        content = asdict(self)
        quality, gain = content.pop("quality"), content.pop("gain_over_random")
        return {**content, **quality, **({} if gain is None else {"gain_over_random": gain})}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Rebuild what `as_json` returned; unknown entries are ignored."""
        own = {each.name: content[each.name] for each in fields(cls) if each.name in content}
        gain = content.get("gain_over_random")
        quality = {name: Spread(**content[name]) for name in METRICS if name in content}
        return cls(**{**own, "quality": quality, "gain_over_random": None if gain is None else Gain(**gain)})

    def cells(self) -> list[str]:
        """Format the row for a table under `HEADINGS`."""
        gain, seconds, share = self.gain_over_random, self.mining_seconds_per_epoch, self.mining_share
        return [
            self.sampler,
            *(self._percent(self.quality[metric]) if metric in self.quality else "" for metric in METRICS),
            "" if gain is None else f"{100 * gain.mean:+.2f} ±{100 * gain.standard_error:.2f}",
            "" if seconds is None or share is None else f"{seconds:.2f} s, {share:.1%}",
            "" if self.kept_bytes is None else f"{self.kept_bytes / 1e6:.1f} MB",
        ]

    def _percent(self, metric: Spread) -> str:
        is_one_model = self.sampler == ZERO_SHOT and metric.sd == 0  # the same pretrained weights for every seed
        deviation = "" if metric.sd is None or is_one_model else f" ±{100 * metric.sd:.2f}"
        return f"{100 * metric.mean:.2f}{deviation}"


@dataclass(frozen=True, kw_only=True)
class ComparisonResult:
    """The outcome of `compare`, as compare.json holds it.

    Examples:
        >>> import json, lookalike
        >>> result = ComparisonResult.from_json(json.load(open("runs/compare-glyphs/compare.json")))  # doctest: +SKIP
        >>> {row.sampler: row.quality["recall@1"].mean for row in result.rows}  # doctest: +SKIP
    """

    data: str
    description: str
    """The data set in one sentence."""
    data_checksum: str
    model: str
    """Class and size of the model."""
    settings: dict[str, dict[str, Any]]
    """Settings by the name of a row."""
    seeds: int
    jobs: int
    """Runs trained at a time; above 1, times are not comparable."""
    rows: list[ComparisonRow]
    """The model before training, then one row per strategy."""
    data_options: dict[str, Any] = field(default_factory=dict)
    encoder: str | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**content, "rows": [row.as_json() for row in self.rows]}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Rebuild what `as_json` returned; unknown entries are ignored."""
        own = {each.name: content[each.name] for each in fields(cls) if each.name in content}
        return cls(**{**own, "rows": [ComparisonRow.from_json(row) for row in content["rows"]]})

    def conditions(self) -> str:
        """Describe data, model, settings and machine in one paragraph."""
        settings = next(iter(self.settings.values()))
        where = self.machine.get("gpu") or self.machine["processor"]
        model = self.model if self.encoder is None else f"{self.encoder}, {self.model}"
        several = self.seeds > 1
        spread = ", ± standard deviation, over random (R@1) ± standard error" if several else ""
        share = settings.get("validation_share") or 0.0
        chosen = f", best epoch by validation on {share:.0%} of the training part" if share else ""
        at_a_time = f", {self.jobs} runs at a time, so without times" if self.jobs > 1 else ""
        return (
            f"{self.description[0].upper()}{self.description[1:]}. {model[0].upper()}{model[1:]}, "
            f"{settings['epochs']} epochs{chosen}, {settings['pairs_per_batch']} pairs per batch, "
            f"{self.seeds} seed{'s' if several else ''}; "
            f"in points{spread}; {where}{at_a_time}."
        )

    def as_markdown(self) -> str:
        """Format the rows as a Markdown table above the conditions; without times if runs shared the machine."""
        known = {metric for row in self.rows for metric in row.quality} | set(ALWAYS)
        hidden = {heading for heading, metric in zip(HEADINGS[1:], METRICS, strict=False) if metric not in known}
        hidden |= {MINING} if self.jobs > 1 else set()
        shown = [i for i, heading in enumerate(HEADINGS) if heading not in hidden]
        lines = [HEADINGS, ["---"] * len(HEADINGS), *(row.cells() for row in self.rows)]
        text = "\n".join("| " + " | ".join(line[i] for i in shown) + " |" for line in lines)
        return f"{text}\n\n{self.conditions()}\n"


def summarize(results: Mapping[str, Sequence[RunResult]]) -> list[ComparisonRow]:
    """Average runs over their seeds: one row per name, in the order given, with its gain over the row "random"."""
    rows = [_summarized(name, _by_seed(runs)) for name, runs in results.items()]
    baseline = next((row for row in rows if row.sampler == RANDOM), None)
    return rows if baseline is None else [_with_gain(row, baseline) for row in rows]


def zero_shot_rows(results: Mapping[str, Sequence[RunResult]]) -> list[ComparisonRow]:
    """Return the row of the model before training, or nothing if a run did not record it.

    Runs with the same seed begin with the same weights, so the runs of the first strategy speak for all.
    """
    runs = _by_seed(next(iter(results.values())))
    before = [run.zero_shot for run in runs if run.zero_shot]
    if len(before) < len(runs):
        return []
    return [ComparisonRow(sampler=ZERO_SHOT, runs=len(runs), quality=spreads(before))]


def spreads(measured: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """Average the metrics of several runs, as far as all of them have them."""
    common = [metric for metric in METRICS if metric in ALWAYS or all(metric in each for each in measured)]
    return {metric: Spread.over([each[metric] for each in measured]) for metric in common}


def _by_seed(runs: Sequence[RunResult]) -> list[RunResult]:
    return sorted(runs, key=lambda run: int(run.config["seed"]))


def _summarized(name: str, runs: list[RunResult]) -> ComparisonRow:
    return ComparisonRow(
        sampler=name,
        runs=len(runs),
        quality=spreads([run.metrics for run in runs]),
        seconds=_mean([run.seconds for run in runs]),
        mining_seconds_per_epoch=_mean([run.mining_seconds_per_epoch for run in runs]),
        mining_share=_mean([run.mining_share for run in runs]),
        kept_bytes=runs[0].kept_bytes,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else None


def _with_gain(row: ComparisonRow, baseline: ComparisonRow) -> ComparisonRow:
    ours, theirs = row.quality["recall@1"], baseline.quality["recall@1"]
    if row is baseline or ours.sd is None or theirs.sd is None:
        return row
    error = math.sqrt(sum(each.sd**2 / len(each.values) for each in (ours, theirs) if each.sd is not None))
    return replace(row, gain_over_random=Gain(ours.mean - theirs.mean, error))
