"""What was mined: scores of positives and negatives, what was dropped, which queries came short and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from lookalike.mining.options import MISSING

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor

    from lookalike.mining.selection import Tally
    from lookalike.mining.texts import Mined
    from lookalike.utils.arrays import Array

STATISTICS = ("count", "mean", "std", "min", "25%", "median", "75%", "max")


def summarized(mined: Mined) -> dict[str, Any]:
    """Counts and statistics as JSON takes them.

    The difference is that of each positive of a query to each of its negatives.
    """
    pairs = mined.pairs
    negatives = mined.scores[pairs.owners]  # [p, k]
    differences = (mined.positive_scores[:, None] - negatives)[negatives != MISSING]
    return {
        "pairs": pairs.num_rows,
        "queries": len(pairs.queries),
        "corpus": len(pairs.corpus),
        "scores": {
            "positives": statistics(mined.positive_scores.numpy()),
            "negatives": statistics(mined.scores[mined.scores != MISSING].numpy()),
            "difference": statistics(differences.numpy()),
        },
        **tallied(mined.tally, complete_queries(mined.scores)),
    }


def tallied(tally: Tally, complete: int) -> dict[str, Any]:
    """What was dropped and who came short, without what did not happen."""
    return {
        "candidates": tally.candidates,
        "dropped": _happened(tally.dropped),
        "queries_complete": complete,
        "queries_short": _happened(tally.short),
        "queries_without": _happened(tally.without),
    }


def statistics(values: Array) -> dict[str, float]:
    """Count, mean and quantiles; of no values only the count."""
    if len(values) == 0:
        return {"count": 0}
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    found = (len(values), values.mean(), values.std(), values.min(), low, median, high, values.max())
    return dict(zip(STATISTICS, (int(found[0]), *(round(float(value), 6) for value in found[1:])), strict=True))


def print_summary(console: Console, summary: dict[str, Any], num_negatives: int) -> None:
    """The scores as a table, and a line for everything that was left out."""
    table = Table("score", *summary["scores"])
    for column in table.columns[1:]:
        column.justify = "right"
    for name in STATISTICS:
        values = [group.get(name) for group in summary["scores"].values()]
        table.add_row(name, *("" if v is None else f"{v:,}" if name == "count" else f"{v:.4f}" for v in values))
    console.print(table)
    for name, number in summary["dropped"].items():
        share = number / max(1, summary["candidates"])
        console.print(f"{name} dropped {number:,} candidates ({share:.1%}).", highlight=False)
    for key, what in (
        ("queries_short", f"have fewer than {num_negatives} negatives"),
        ("queries_without", "have no negative and are left out"),
    ):
        for reason, number in summary[key].items():
            share = number / summary["queries"]
            console.print(f"{number:,} queries ({share:.1%}) {what}: {reason}.", highlight=False)


def _happened(counts: dict[str, int]) -> dict[str, int]:
    return {name: number for name, number in counts.items() if number}


def complete_queries(scores: Tensor) -> int:
    """How many queries have all the negatives that were asked for."""
    return int((scores != MISSING).all(dim=1).sum())
