"""Figures of recall: by sampler, against memory, and by hardness."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from lookalike.report.figures import Figure, percent
from lookalike.report.figures.axes import FRACTIONS, PLAIN, Axis, linear
from lookalike.report.figures.chart import TOP, Chart
from lookalike.report.figures.svg import LETTER, WIDTH, element, picture, symbol
from lookalike.report.groups import colour
from lookalike.report.text import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.report.groups import Group
    from lookalike.report.records.comparisons import SamplerRow
    from lookalike.report.records.runs import Setting

ROW = 34.0  # height of a row
LONGEST_NAME = 30  # letters beside a row
HARDNESS = "hardness"


def recall_by_sampler(rows: Sequence[SamplerRow]) -> Figure:
    """Draw recall@1 of every sampler: its seeds as dots, mean and standard deviation."""
    deviations = [row.recall.sd or 0.0 for row in rows]
    ends = [
        (max(0.0, row.recall.mean - sd), min(1.0, row.recall.mean + sd))
        for row, sd in zip(rows, deviations, strict=True)
    ]
    every = [
        value for row, end in zip(rows, ends, strict=True) for value in (*row.recall.values, row.recall.mean, *end)
    ]
    axis = linear(every, FRACTIONS)
    names = [shortened(row.sampler, LONGEST_NAME) for row in rows]
    height, left, right = ROW * len(rows) + 44, 20 + LETTER * max(map(len, names)), WIDTH - 64

    def at(value: float) -> float:
        return left + axis.position(value) * (right - left)

    parts = []
    for value, text in axis.ticks[:: 2 if len(axis.ticks) > 5 else 1]:
        parts.append(element("line", x1=at(value), x2=at(value), y1=TOP, y2=height - 30, class_="grid"))
        parts.append(element("text", text, x=at(value), y=height - 12, text_anchor="middle", class_="tick"))
    for place, (row, name, (low, high)) in enumerate(zip(rows, names, ends, strict=True)):
        y, style, mean = TOP + ROW * (place + 0.5), colour(row.strategy), row.recall.mean
        parts.append(element("text", name, x=left - 12, y=y + 4, text_anchor="end", class_="name"))
        if row.recall.sd is not None:
            parts.append(element("path", d=f"M{at(low):.1f} {y}H{at(high):.1f}", class_=f"whisker wide {style}"))
            parts += [element("circle", cx=at(v), cy=y, r=2.2, class_=f"seed {style}") for v in row.recall.values]
        title = element("title", f"{row.sampler}: {percent(mean)}")
        where = f"translate({at(mean):.1f} {y}) scale(1.4)"
        parts.append(element("path", title, d=symbol(style), class_=f"dot {style}", transform=where))
        parts.append(element("text", percent(mean), x=WIDTH - 8, y=y + 4, text_anchor="end", class_="value"))
    summary = "Recall@1 by sampler: " + ", ".join(f"{row.sampler} {percent(row.recall.mean)}" for row in rows) + "."
    note = "Fraction of queries whose nearest reference is a correct one."
    if any(row.recall.sd is not None for row in rows):
        note = "Mean over seeds; small dots are the seeds, the bar is one standard deviation to either side."
    table = [
        [
            row.sampler,
            percent(row.recall.mean),
            "" if row.recall.sd is None else f"{100 * row.recall.sd:.2f}",
            ", ".join(map(percent, row.recall.values)),
        ]
        for row in rows
    ]
    headings = ["sampler", "mean", "sd, points", "seeds"]
    return Figure("Recall@1 by sampler", note, picture(parts, summary, height), headings, table)


def recall_by_memory(rows: Sequence[SamplerRow]) -> Figure | None:
    """Draw recall@1 against what samplers keep between epochs, where bits and floats differ."""
    sized = [(row, row.kept_bytes) for row in rows if row.kept_bytes is not None]
    if len({size for _, size in sized}) < 2:
        return None
    scale, unit = (1e6, "MB") if max(size for _, size in sized) >= 1e6 else (1e3, "kB")
    x = linear([size / scale for _, size in sized], PLAIN, f"{unit} kept between epochs", zero=True)
    x = Axis(x.low, x.high * 1.12, x.ticks, x.label)
    chart = Chart(x, linear([row.recall.mean for row, _ in sized], FRACTIONS))
    for row, size in sized:
        title = f"{row.sampler}: {percent(row.recall.mean)} with {size / scale:.2f} {unit}"
        label = shortened(row.sampler, LONGEST_NAME)
        chart.dot(size / scale, row.recall.mean, colour(row.strategy), title, label=label)
    table = [[row.sampler, f"{size / scale:.2f}", percent(row.recall.mean)] for row, size in sized]
    summary = "Recall@1 against memory: " + "; ".join(f"{name} {r}, {size} {unit}" for name, size, r in table) + "."
    return Figure(
        "Recall@1 against memory",
        "Memory that a sampler keeps from one epoch to mine for the next.",
        chart.svg(summary),
        ["sampler", f"{unit} kept", "R@1"],
        table,
    )


def recall_by_hardness(groups: Sequence[Group]) -> Figure | None:
    """Draw recall@1 against the fraction of hard negatives in a batch, for groups that differ in nothing else."""
    families: dict[tuple[tuple[str, Setting], ...], dict[float, list[float]]] = {}
    labels = {}
    for group in groups:
        of_seeds = [run.result.metrics["recall@1"] for run in group.runs if run.result is not None]
        if group.config.hardness is not None and group.config.mines and of_seeds:
            others = tuple(sorted(item for item in group.config.identity.items() if item[0] != HARDNESS))
            labels[others] = group.config.strategy
            families.setdefault(others, {})[group.config.hardness] = of_seeds
    lines = [
        (labels[others], dict(sorted(recalls.items()))) for others, recalls in families.items() if len(recalls) > 1
    ]
    if not lines:
        return None
    every = [value for _, recalls in lines for part in recalls.values() for value in part]
    x = Axis(0, 1, [(i / 4, f"{i / 4:g}") for i in range(5)], "hardness: fraction of hard negatives in a batch")
    chart = Chart(x, linear(every, FRACTIONS), labels=[label for label, _ in lines])
    rows = []
    for label, recalls in lines:
        means = {hardness: statistics.mean(part) for hardness, part in recalls.items()}
        chart.line(list(means.items()), colour(label), label)
        for hardness, part in recalls.items():
            mean = means[hardness]
            chart.whisker(hardness, min(part), max(part), colour(label))
            chart.dot(hardness, mean, colour(label), f"{label}, hardness {hardness:g}: {percent(mean)}")
            rows.append([label, f"{hardness:g}", percent(mean), str(len(part))])
    summary = "Recall@1 by hardness: " + ", ".join(f"{row[0]} {row[2]} at {row[1]}" for row in rows) + "."
    return Figure(
        "Recall@1 by hardness",
        "Runs that differ only in how much of a batch is hard; the rest of the batch is random.",
        chart.svg(summary),
        ["sampler", "hardness", "R@1", "seeds"],
        rows,
    )
