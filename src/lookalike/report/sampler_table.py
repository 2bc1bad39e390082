"""The table of samplers, from a comparison or from single runs, and its key figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from lookalike.report.groups import colour, grouped
from lookalike.report.records.comparisons import Comparison, SamplerRow
from lookalike.report.text import counted
from lookalike.training.comparison_results import HEADINGS, METRICS, MINING, summarize
from lookalike.training.settings import CODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.report.records.runs import Run
    from lookalike.training.comparison_results import Spread
    from lookalike.training.results import RunResult

NAME = HEADINGS[0]
DISTINCT = 2  # standard errors between two means
FLOATS = ("incremental", "full")  # samplers that keep embeddings between epochs


class Tile(NamedTuple):
    """A key figure."""

    value: str
    label: str
    remark: str


class Cell(NamedTuple):
    """A cell of the table."""

    text: str
    is_bold: bool = False


class Line(NamedTuple):
    """A line of the table."""

    name: str
    style: str
    cells: list[Cell]


@dataclass(frozen=True)
class SamplerTable:
    """Samplers with their metrics over seeds, and the conditions they hold for."""

    title: str
    headline: str
    rows: list[SamplerRow]
    conditions: str
    timed: bool = True
    """Whether times mean anything: parallel runs slow each other down."""

    @property
    def columns(self) -> dict[str, list[Cell]]:
        """The cells by heading, without empty columns; bold marks the best mean and those not distinct from it."""
        texts = dict(zip(HEADINGS, zip(*(row.cells() for row in self.rows), strict=True), strict=True))
        bold = {
            heading: leaders([row.quality.get(metric) if row.trained else None for row in self.rows])
            for heading, metric in zip(HEADINGS[1:], METRICS, strict=False)
        }
        return {
            heading: [Cell(text, i in bold.get(heading, ())) for i, text in enumerate(column)]
            for heading, column in texts.items()
            if any(column) and heading != NAME and (heading != MINING or self.timed)
        }

    @property
    def lines(self) -> list[Line]:
        """The lines of the table."""
        columns = self.columns.values()
        return [
            Line(row.sampler, colour(row.strategy), [cells[i] for cells in columns]) for i, row in enumerate(self.rows)
        ]

    @property
    def note(self) -> str:
        """The conditions, and what bold means."""
        if any(cell.is_bold for cells in self.columns.values() for cell in cells):
            bold = f"Bold marks the best mean in a column and every mean within {DISTINCT} standard errors of it."
            return f"{self.conditions} {bold}"
        return self.conditions

    def tiles(self) -> list[Tile]:
        """Return the key figures: recall, and what the best LSH gains and costs."""
        tiles = self._recall_tiles()
        others = {row.sampler.partition(",")[0]: row for row in self.rows}
        ours = max((row for row in self.rows if row.sampler.startswith(("lsh", *CODES))), key=_recall, default=None)
        if ours is None:
            return tiles
        if "random" in others:
            points = 100 * (_recall(ours) - _recall(others["random"]))
            gain = ours.gain_over_random
            error = "one seed" if gain is None else f"±{100 * gain.standard_error:.1f} standard error"
            tiles.append(Tile(f"{points:+.1f}", "points over random", f"{ours.sampler}, {error}"))
        if self.timed and ours.mining_share is not None and ours.mining_seconds_per_epoch is not None:
            seconds = f"{ours.mining_seconds_per_epoch:.2f} s per epoch"
            tiles.append(Tile(f"{ours.mining_share:.1%}", "of training time spent mining", seconds))
        if ours.kept_bytes is not None:
            size, floats = ours.kept_bytes, next((others[name].kept_bytes for name in FLOATS if name in others), None)
            remark = f"{floats / size:.0f} times less than floats" if floats and size else ours.sampler
            shown = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
            tiles.append(Tile(shown, "kept between epochs", remark))
        return tiles

    def _recall_tiles(self) -> list[Tile]:
        """Return the highest mean of the trained rows, or their range if there are too few seeds to trust it."""
        trained = [row for row in self.rows if row.trained]
        if not trained:
            return []
        worst, best = min(trained, key=_recall), max(trained, key=_recall)
        if all(len(row.recall.values) > 1 for row in trained):
            return [Tile(f"{_recall(best):.1%}", "recall@1", f"highest mean: {best.sampler}")]
        if len(trained) == 1:
            return [Tile(f"{_recall(best):.1%}", "recall@1", f"{best.sampler}, one seed")]
        remark = f"{len(trained)} samplers, too few seeds to rank them"
        return [Tile(f"{_recall(worst):.1%} to {_recall(best):.1%}", "recall@1", remark)]


def leaders(column: Sequence[Spread | None]) -> list[int]:
    """Return the places of the best mean and of those not distinct from it.

    Empty if all are alike, and if there are too few seeds to estimate the noise.
    """
    known = [(i, spread) for i, spread in enumerate(column) if spread is not None and len(spread.values) > 1]
    errors = {i: spread.sd**2 / len(spread.values) for i, spread in known if spread.sd is not None}  # squared
    known = [(i, spread) for i, spread in known if i in errors]
    if len(known) < 2:
        return []
    top, best = max(known, key=lambda pair: pair[1].mean)
    alike = [i for i, each in known if best.mean - each.mean <= DISTINCT * math.sqrt(errors[top] + errors[i])]
    return alike if len(alike) < len(known) else []


def table_of_comparison(comparison: Comparison) -> SamplerTable:
    """Show the table that `lookalike compare` wrote."""
    contenders = sum(row.trained for row in comparison.rows)
    return SamplerTable(
        f"Comparison on {comparison.data}",
        f"{comparison.data}: {counted(contenders, 'sampler')}, {counted(comparison.seeds, 'seed')}",
        comparison.rows,
        _conditions(comparison),
        timed=comparison.jobs == 1,
    )


def table_of_runs(runs: Sequence[Run]) -> SamplerTable | None:
    """Make a row per configuration; unfinished runs have rows of their own, which say how far they got."""
    results: dict[str, list[RunResult]] = {}
    strategies: dict[str, str] = {}
    for group in grouped(runs):
        for finished in (True, False):
            members = [run for run in group.runs if (run.result is not None) == finished]
            outcomes = [outcome for outcome in (run.outcome() for run in members) if outcome is not None]
            if outcomes:
                label = group.label if finished else f"{group.label} ({members[0].progress})"
                results[label], strategies[label] = outcomes, group.config.strategy
    if not results:
        return None
    names = {run.config.data for run in runs}
    data = PurePath(names.pop()).name if len(names) == 1 else "several data sets"
    several_seeds = max(map(len, results.values())) > 1
    return SamplerTable(
        f"Runs on {data}",
        f"{data}: {counted(len(runs), 'run')}",
        [SamplerRow(**vars(row), strategy=strategies[row.sampler]) for row in summarize(results)],
        f"Metrics in percent{', mean ± standard deviation over seeds' if several_seeds else ''}.",
    )


def _conditions(comparison: Comparison) -> str:
    """Describe the conditions of the figures, as far as they are known."""
    error = " ± standard deviation, over random in points of R@1 ± standard error" if comparison.seeds > 1 else ""
    about = [
        "" if comparison.model.lower().startswith(comparison.encoder.lower()) else comparison.encoder,
        comparison.model,
        "" if comparison.epochs is None else counted(comparison.epochs, "epoch"),
        "" if comparison.pairs_per_batch is None else f"{comparison.pairs_per_batch} pairs per batch",
        counted(comparison.seeds, "seed"),
    ]
    clauses = [
        ", ".join(filter(None, about)),
        f"metrics in percent{error}",
        comparison.machine,
        f"{comparison.jobs} runs at a time, so without times" if comparison.jobs > 1 else "",
    ]
    sentences = filter(None, [comparison.description, "; ".join(filter(None, clauses))])
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)


def _recall(row: SamplerRow) -> float:
    return row.recall.mean
