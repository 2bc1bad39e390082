"""A figure, and those that follow training epoch by epoch."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from lookalike.report.chart import COSINES, PLAIN, SHARES, WHOLE, Chart, Scale, epochs, linear
from lookalike.report.groups import Group, colour

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lookalike.report.markup import Markup


class Figure(NamedTuple):
    """A picture with what it says in words and in numbers."""

    title: str
    note: str  # how to read it
    svg: Markup
    headings: list[str]
    rows: list[list[str]]
    legend: tuple[tuple[str, str], ...] = ()  # label and style, where labels found no room in the picture


def exact_percent(value: float) -> str:
    """Format a share as a table has it."""
    return f"{value:.2%}"


def decimal(value: float) -> str:
    """Format a number with three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


CURVES: tuple[tuple[str, str, str, Scale, Callable[[float], str], bool], ...] = (
    ("recall@1", "Recall@1", "How often the nearest reference is the right one.", SHARES, exact_percent, False),
    (
        "loss",
        "Loss",
        "InfoNCE, averaged over the epoch. Harder batches cost more: a higher loss is no worse model.",
        PLAIN,
        decimal,
        False,
    ),
    (
        "hardest_negative",
        "Hardest negative in the batch",
        "Its cosine with the anchor: how hard the batches are.",
        COSINES,
        decimal,
        False,
    ),
    (
        "mining_share",
        "Time spent mining",
        "Share of the epoch spent on finding hard negatives and composing batches.",
        SHARES,
        exact_percent,
        True,
    ),
)


def curves(groups: Sequence[Group]) -> list[Figure]:
    """Draw a figure per metric with a line per sampler: the mean over seeds in the range that they span."""
    found = []
    for name, title, note, scale, exact, zero in CURVES:
        series = [(group.label, group.style, over_seeds(group, name)) for group in groups]
        figure = by_epoch(series, f"{title} by epoch", note, scale, exact, zero=zero)
        if figure is not None:
            found.append(figure)
    return found


Series = dict[int, list[float]]  # the values of an epoch, one per seed


def over_seeds(group: Group, name: str, bits: str | None = None) -> Series:
    """Collect a metric by epoch, or what it is at a number of bits, from the runs that recorded it."""
    series: Series = {}
    for run in group.runs:
        for epoch in run.epochs:
            value = epoch.get(name) if bits is None else epoch.get(name, {}).get(bits)
            if value is not None:
                series.setdefault(epoch["epoch"], []).append(float(value))
    return dict(sorted(series.items()))


def by_epoch(
    named: Sequence[tuple[str, str, Series]],
    title: str,
    note: str,
    scale: Scale,
    exact: Callable[[float], str],
    *,
    zero: bool = False,
) -> Figure | None:
    """Lines over epochs, named at their ends."""
    named = [(label, style, series) for label, style, series in named if series]
    if not named:
        return None
    numbers = sorted({epoch for _, _, series in named for epoch in series})
    values = [value for _, _, series in named for part in series.values() for value in part]
    chart = Chart(epochs(numbers), linear(values, scale, zero=zero), labels=[label for label, _, _ in named])
    several = any(len(part) > 1 for _, _, series in named for part in series.values())
    for _, style, series in named:
        if several and len(series) > 1:
            low, high = ([(epoch, end(part)) for epoch, part in series.items()] for end in (min, max))
            chart.band(low, high, style)
    for label, style, series in named:
        means = [(epoch, statistics.mean(part)) for epoch, part in series.items()]
        chart.line(means, style, label)
        if len(numbers) <= 20:
            for epoch, value in means:
                chart.dot(epoch, value, style, f"{label}, epoch {epoch}: {exact(value)}")
    last = ", ".join(f"{label} {exact(statistics.mean(list(series.values())[-1]))}" for label, _, series in named)
    rows = [
        [str(epoch), *(exact(statistics.mean(s[epoch])) if epoch in s else "" for _, _, s in named)]
        for epoch in numbers
    ]
    return Figure(
        title,
        note + (" The band spans the seeds." if several else ""),
        chart.svg(f"{title}; at the end: {last}."),
        ["epoch", *(label for label, _, _ in named)],
        rows,
        () if chart.labelled else tuple((label, style) for label, style, _ in named),
    )


def bits_by_epoch(groups: Sequence[Group]) -> Figure | None:
    """Draw the number of bits where it changed during training."""
    series = [(g.label, g.style, over_seeds(g, "bits")) for g in groups]
    series = [each for each in series if len({value for values in each[2].values() for value in values}) > 1]
    note = "Chosen during training from a sample of embeddings."
    return by_epoch(series, "Bits in use by epoch", note, WHOLE, "{:.0f}".format)


TRACKED: tuple[tuple[str, str, str, Scale, Callable[[float], str]], ...] = (
    ("overlap", "Overlap", "Share of the nearest in bits that are among the nearest by cosine.", SHARES, exact_percent),
    (
        "positional_distance",
        "Positional distance",
        "Mean difference of places in both rankings; lower is better.",
        PLAIN,
        decimal,
    ),
)


def tracked(group: Group) -> list[Figure]:
    """Draw overlap and positional distance by epoch, a line per number of bits, where a run recorded them."""
    found = []
    for name, title, note, scale, exact in TRACKED:
        lengths = sorted({bits for run in group.runs for epoch in run.epochs for bits in epoch.get(name, {})}, key=int)
        series = [(f"{bits} bits", colour(f"lsh:{bits}"), over_seeds(group, name, bits)) for bits in lengths]
        figure = by_epoch(series, f"{title} by epoch, {group.label}", note, scale, exact, zero=True)
        if figure is not None:
            found.append(figure)
    return found
