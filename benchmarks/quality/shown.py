"""Show the tables about quality as Markdown; a table whose results do not exist yet is empty."""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.markdown import markdown
from benchmarks.quality.declared import ALONE, ONE_EPOCH, QUALITY, TABLES
from benchmarks.quality.explored import exploration, flips, readiness
from benchmarks.quality.figure import FIGURE
from lookalike.training.comparison_results import ZERO_SHOT

SHOWN = {"recall@1": "R@1", "recall@10": "R@10", "mrr@10": "MRR@10"}
RANDOM, DEFAULT, PAPER = "random", "default", "the paper's LSH, 512 bits"
SMALL = "default, but neighbourhoods of 32"
DOCS = Path(__file__).parents[2] / "docs"


def table(name: str, metrics: tuple[str, ...] = tuple(SHOWN)) -> str:
    """Show every row of a table, with some metrics for each of its parts.

    Args:
        name: Name of the table.
        metrics: The metrics.
    """
    result = _read(name)
    if result is None:
        return ""
    parts = result["parts"]
    samplers = dict.fromkeys(row["sampler"] for part in parts.values() for row in part["rows"])
    names = {part: part.split(",")[0].removesuffix(" per batch") for part in parts}
    header = ["", *(f"{SHOWN[metric]}, {names[part]}" for part in parts for metric in metrics)]
    lines = []
    for sampler in samplers:
        cells = []
        for part in parts.values():
            row: dict[str, Any] = next((row for row in part["rows"] if row["sampler"] == sampler), {})
            cells += [_percent(row[metric]) if metric in row else "" for metric in metrics]
        if any(cells):
            lines.append([sampler, *cells])
    return f"{markdown(header, lines)}\n\n{_conditions(name, result)}"


def overview() -> str:
    """Show the rows that decide of all tables of quality, and how far the default is above the paper's LSH."""
    lines: list[list[Any]] = []
    for data in QUALITY:
        result = _read(f"quality_{data}")
        for part in [] if result is None else result["parts"].values():
            rows = {row["sampler"]: row for row in part["rows"]}
            ours = next((name for name in (DEFAULT, SMALL) if name in rows), None)
            size = next(iter(part["settings"].values()))["pairs_per_batch"]
            shown = [_both(rows[name]) if name in rows else "" for name in (ZERO_SHOT, RANDOM, PAPER, ours)]
            shown[-1] += " *" if ours == SMALL else ""
            lines.append([data, size, *shown, _above(rows, ours)])
    if not lines:
        return ""
    header = ["R@1 / R@10", "pairs per batch", "before", "random", "the paper's LSH", "default", "R@1 over the paper's"]
    note = (
        "In points, 3 seeds, ± standard error of the difference. * neighbourhoods of 32, which are not the default in "
        "batches of 64. From `benchmarks/results/quality_*.json`."
    )
    return f"{markdown(header, lines)}\n\n{note}"


def one_epoch() -> str:
    """Show what a single epoch brings over random batches, in R@1 and in R@10."""
    lines: list[list[Any]] = []
    for data in ONE_EPOCH:
        result = _read(f"one_epoch_{data}")
        for part in [] if result is None else result["parts"].values():
            rows = {row["sampler"]: row for row in part["rows"]}
            cells = [next(iter(part["settings"].values()))["pairs_per_batch"]]
            for metric in ("recall@1", "recall@10"):
                cells += [_percent(rows[name][metric]) for name in (RANDOM, DEFAULT)]
                cells += [_difference(rows[DEFAULT][metric], rows[RANDOM][metric])]
            lines.append([data, *cells])
    if not lines:
        return ""
    header = ["data", "pairs per batch", "R@1 random", "default", "difference", "R@10 random", "default", "difference"]
    note = (
        "One epoch, 3 seeds, in points, ± standard deviation, of differences the standard error; from "
        "`benchmarks/results/one_epoch_*.json`."
    )
    return f"{markdown(header, lines)}\n\n{note}"


def rates() -> str:
    """Show learning rates by what they reach on the validation part."""
    lines = []
    for data in QUALITY:
        result = _read(f"rates_{data}")
        for part, content in [] if result is None else result["parts"].items():
            for row in content["rows"]:
                if "validation" in row:
                    before = f"{100 * row['by_epoch'][0][0]:.1f}"
                    validated = [f"{100 * row['validation'][metric]['mean']:.1f}" for metric in ("recall@1", "mrr@10")]
                    lines.append([data, part.split()[-1], row["sampler"], before, *validated, _mean(row)])
    if not lines:
        return ""
    header = ["data", "learning rate", "", "validation R@1 before", "R@1", "MRR@10", "test R@1"]
    note = (
        "One seed, a fifth of the training classes held out, the better of two evaluated epochs by MRR@10; from "
        "`benchmarks/results/rates_*.json`."
    )
    return f"{markdown(header, lines)}\n\n{note}"


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
    machine = next(iter(result["parts"].values()))["machine"]
    where = machine.get("gpu") or machine["processor"]
    note = f"One run at a time, alone on the machine ({where}); from `benchmarks/results/cost.json`.{_missing(result)}"
    return f"{markdown(header, lines)}\n\n{note}"


def one_epoch_figure() -> str:
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


def _mean(row: dict[str, Any]) -> str:
    return f"{100 * row['recall@1']['mean']:.1f}"


def _both(row: dict[str, Any]) -> str:
    return f"{_mean(row)} / {100 * row['recall@10']['mean']:.1f}"


def _above(rows: dict[str, dict[str, Any]], ours: str | None) -> str:
    if ours is None or PAPER not in rows:
        return ""
    return _difference(rows[ours]["recall@1"], rows[PAPER]["recall@1"])


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    points = f"{100 * (ours['mean'] - theirs['mean']):+.1f}"
    if ours["sd"] is None or theirs["sd"] is None:
        return points
    error = math.sqrt(sum(each["sd"] ** 2 / len(each["values"]) for each in (ours, theirs)))
    return f"{points} ± {100 * error:.1f}"


def _conditions(name: str, result: dict[str, Any]) -> str:
    part = next(iter(result["parts"].values()))
    where = part["machine"].get("gpu") or part["machine"]["processor"]
    shared = f"{part['jobs']} runs at a time" if part["jobs"] > 1 else "one run at a time"
    runs = sorted({row["runs"] for each in result["parts"].values() for row in each["rows"]})
    seeds = f"{runs[0]} to {runs[-1]} seeds" if len(runs) > 1 else f"{runs[0]} seed{'s' if runs[0] > 1 else ''}"
    description = part["description"]
    return (
        f"{description[0].upper()}{description[1:]}. {part['encoder']}; {seeds}, in points, ± standard deviation; "
        f"{where}, {shared}; from `benchmarks/results/{name}.json`.{_missing(result)}"
    )


def _missing(result: dict[str, Any]) -> str:
    """Name the parts without any run, and the rows that have fewer than declared."""
    cells = [each.rsplit(", seed", 1)[0].split(": ", 1) for each in result["missing"]]
    parts = dict.fromkeys(part for part, _ in cells if part not in result["parts"])
    rows = dict.fromkeys(row for part, row in cells if part in result["parts"])
    left_out = f" Not trained: {'; '.join(parts)}." if parts else ""
    return left_out + (f" Not trained, or not with every seed or batch size: {'; '.join(rows)}." if rows else "")


SHOWN_TABLES: dict[str, Callable[[], str]] = {
    "quality_overview": overview,
    **{
        name: partial(table, name)
        for name in TABLES
        if name not in ALONE and not name.startswith(("compare_", "rates_", "emoji_rates"))
    },
    "emoji_rates": partial(table, "emoji_rates", ("recall@1",)),
    "rates": rates,
    "one_epoch": one_epoch,
    "one_epoch_figure": one_epoch_figure,
    "cost": cost,
    "exploration": exploration,
    "flips": flips,
    "readiness": readiness,
}
