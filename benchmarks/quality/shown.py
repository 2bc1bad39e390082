"""Show the tables about quality as Markdown; a table whose results do not exist yet is empty."""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.markdown import markdown
from benchmarks.quality.declared import ALONE, QUALITY, TABLES
from benchmarks.quality.figure import FIGURE

SHOWN = {"recall@1": "R@1", "recall@10": "R@10", "mrr@10": "MRR@10"}
DEFAULT, PAPER = "default", "the paper's LSH, 512 bits"
DOCS = Path(__file__).parents[2] / "docs"


def table(name: str, metrics: tuple[str, ...] = tuple(SHOWN), quality: str | None = None) -> str:
    """Show every row of a table, with some metrics for each of its parts.

    Args:
        name: Name of the table.
        metrics: The metrics.
        quality: The entry of a row that holds them; None if the row does.
    """
    result = _read(name)
    if result is None:
        return ""
    parts = result["parts"]
    samplers = dict.fromkeys(row["sampler"] for part in parts.values() for row in part["rows"])
    header = ["", *(f"{SHOWN[metric]}, {part}" for part in parts for metric in metrics)]
    lines = []
    for sampler in samplers:
        cells = []
        for part in parts.values():
            row: dict[str, Any] = next((row for row in part["rows"] if row["sampler"] == sampler), {})
            values = row if quality is None else row.get(quality, {})
            cells += [_percent(values[metric]) if metric in values else "" for metric in metrics]
        if any(cells):
            lines.append([sampler, *cells])
    return f"{markdown(header, lines)}\n\n{_conditions(name, result)}"


def overview() -> str:
    """Show recall@1 of all tables of quality, and how far the default is above the paper's LSH."""
    lines: list[list[Any]] = []
    samplers: dict[str, None] = {}
    found = {data: result for data in QUALITY if (result := _read(f"quality_{data}")) is not None}
    if not found:
        return ""
    for result in found.values():
        for part in result["parts"].values():
            samplers |= dict.fromkeys(row["sampler"] for row in part["rows"] if row["sampler"] != DEFAULT)
    for data, result in found.items():
        for part in result["parts"].values():
            rows = {row["sampler"]: row["recall@1"] for row in part["rows"]}
            size = next(iter(part["settings"].values()))["pairs_per_batch"]
            shown = [f"{100 * rows[each]['mean']:.1f}" if each in rows else "" for each in (*samplers, DEFAULT)]
            lines.append([data, size, *shown, _above(rows)])
    header = ["R@1", "pairs per batch", *samplers, DEFAULT, "default over the paper's"]
    return f"{markdown(header, lines)}\n\nIn points, ± standard error; from `benchmarks/results/quality_*.json`."


def cost() -> str:
    """Show the times of runs that had the machine to themselves."""
    result = _read("cost")
    if result is None:
        return ""
    lines = []
    for part, content in result["parts"].items():
        for row in content["rows"]:
            for timed in row.get("timed", ()):
                warm = timed.get("warm_start_seconds", 0.0)
                epoch = timed["seconds"][0] - warm
                mining = timed["mining_seconds"][0] - warm
                lines.append(
                    [
                        part,
                        row["sampler"],
                        f"{epoch:.1f} s",
                        f"{warm:.1f} s, {warm / epoch:.0%}" if warm else "",
                        f"{mining:.2f} s, {mining / epoch:.1%}",
                    ]
                )
    header = ["data", "", "an epoch", "a warm start before it", "mining in it"]
    return f"{markdown(header, lines)}\n\n{_conditions('cost', result)}"


def one_epoch() -> str:
    """Show the figure of one-epoch runs, if it was drawn."""
    if not (DOCS / FIGURE).exists():
        return ""
    return f"![R@1 against R@10 after one epoch, over the size of neighbourhoods and the random share]({FIGURE})"


def _read(name: str) -> dict[str, Any] | None:
    path = record.RESULTS / f"{name}.json"
    result: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return result


def _percent(spread: dict[str, Any]) -> str:
    deviation = "" if not spread["sd"] else f" ±{100 * spread['sd']:.2f}"
    return f"{100 * spread['mean']:.2f}{deviation}"


def _above(rows: dict[str, dict[str, Any]]) -> str:
    if DEFAULT not in rows or PAPER not in rows:
        return ""
    ours, theirs = rows[DEFAULT], rows[PAPER]
    if ours["sd"] is None or theirs["sd"] is None:
        return f"{100 * (ours['mean'] - theirs['mean']):+.1f}"
    error = math.sqrt(sum(each["sd"] ** 2 / len(each["values"]) for each in (ours, theirs)))
    return f"{100 * (ours['mean'] - theirs['mean']):+.1f} ± {100 * error:.1f}"


def _conditions(name: str, result: dict[str, Any]) -> str:
    part = next(iter(result["parts"].values()))
    where = part["machine"].get("gpu") or part["machine"]["processor"]
    shared = f"{part['jobs']} runs at a time" if part["jobs"] > 1 else "one run at a time"
    runs = sorted({row["runs"] for each in result["parts"].values() for row in each["rows"]})
    seeds = f"{runs[0]} to {runs[-1]} seeds" if len(runs) > 1 else f"{runs[0]} seed{'s' if runs[0] > 1 else ''}"
    description = part["description"]
    return (
        f"{description[0].upper()}{description[1:]}. {part['encoder']}; {seeds}, in points, ± standard deviation; "
        f"{where}, {shared}; from `benchmarks/results/{name}.json`."
    )


SHOWN_TABLES: dict[str, Callable[[], str]] = {
    "quality_overview": overview,
    **{
        name: partial(table, name)
        for name in TABLES
        if name not in ALONE and not name.startswith(("compare_", "rates_", "emoji_rates"))
    },
    "emoji_rates": partial(table, "emoji_rates", ("recall@1",)),
    **{
        name: partial(table, name, ("recall@1", "mrr@10"), "validation") for name in TABLES if name.startswith("rates_")
    },
    "one_epoch": one_epoch,
    "cost": cost,
}
