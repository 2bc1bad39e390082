"""Figures by epoch: metrics, the length of the codes, and what they keep of exact search."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from lookalike.report.figures import Figure, decimal, percent
from lookalike.report.figures.axes import COSINES, FRACTIONS, INTEGERS, PLAIN, Scale, epochs, linear
from lookalike.report.figures.chart import Chart
from lookalike.report.groups import Group, colour

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lookalike.training.results import EpochMetrics

FEW = 20  # epochs; beyond that dots would hide the line


class Measure(NamedTuple):
    """What a figure shows by epoch, and how."""

    title: str
    note: str
    scale: Scale
    text: Callable[[float], str]
    zero: bool = False


class Line(NamedTuple):
    """A line of a figure: the values of every epoch, one per seed."""

    label: str
    style: str
    values: dict[int, list[float]]


CURVES: tuple[tuple[Callable[[EpochMetrics], float | None], Measure], ...] = (
    (
        lambda epoch: None if epoch.validation else epoch.quality.get("recall@1"),  # else only the best is tested
        Measure("Recall@1", "Fraction of queries whose nearest reference is a correct one.", FRACTIONS, percent),
    ),
    (
        lambda epoch: epoch.validation.get("recall@1"),
        Measure(
            "Validation recall@1",
            "Fraction of queries held out of training whose nearest reference is a correct one. The weights of the "
            "epoch with the best MRR@10 on them are kept and tested.",
            FRACTIONS,
            percent,
        ),
    ),
    (
        lambda epoch: epoch.loss,
        Measure(
            "Loss",
            "Mean InfoNCE over the epoch. Harder batches raise it, so a higher loss does not mean a worse model.",
            PLAIN,
            decimal,
        ),
    ),
    (
        lambda epoch: epoch.hardest_negative,
        Measure(
            "Hardest negative in the batch",
            "Mean cosine between a query and its hardest negative: how hard the batches are.",
            COSINES,
            decimal,
        ),
    ),
    (
        lambda epoch: epoch.masked,
        Measure(
            "Masked negatives",
            "Fraction of the negatives that the loss left out as likely false ones.",
            FRACTIONS,
            percent,
            zero=True,
        ),
    ),
    (
        lambda epoch: epoch.mining_share,
        Measure(
            "Time spent mining",
            "Fraction of the epoch spent finding hard negatives and composing batches.",
            FRACTIONS,
            percent,
            zero=True,
        ),
    ),
)
BITS = Measure(
    "Bits in use", "Length of the codes, which training chose from a sample of embeddings.", INTEGERS, decimal
)
TRACKED: tuple[tuple[Callable[[EpochMetrics], dict[str, float]], Measure], ...] = (
    (
        lambda epoch: epoch.overlap,
        Measure(
            "Overlap",
            "Fraction of the nearest by Hamming distance that are also the nearest by cosine.",
            FRACTIONS,
            percent,
            zero=True,
        ),
    ),
    (
        lambda epoch: epoch.positional_distance,
        Measure(
            "Positional distance",
            "Mean difference between ranks by Hamming distance and by cosine; lower is better.",
            PLAIN,
            decimal,
            zero=True,
        ),
    ),
)


def training_curves(groups: Sequence[Group]) -> list[Figure]:
    """Draw a figure per metric with a line per configuration: the mean over seeds and their range."""
    drawn = [
        _by_epoch([_line(group.label, group.style, group, value) for group in groups], measure)
        for value, measure in CURVES
    ]
    return [figure for figure in drawn if figure is not None]


def bits_by_epoch(groups: Sequence[Group]) -> Figure | None:
    """Draw the number of bits of configurations in which it changed."""
    lines = [_line(group.label, group.style, group, lambda epoch: epoch.bits) for group in groups]
    changing = [line for line in lines if len({value for part in line.values.values() for value in part}) > 1]
    return _by_epoch(changing, BITS)


def tracked_overlap(group: Group) -> list[Figure]:
    """Draw overlap and positional distance of runs that recorded them, a line per number of bits."""
    drawn = [_by_epoch(_lines_by_bits(group, by_bits), measure, f", {group.label}") for by_bits, measure in TRACKED]
    return [figure for figure in drawn if figure is not None]


def _lines_by_bits(group: Group, by_bits: Callable[[EpochMetrics], dict[str, float]]) -> list[Line]:
    def at(bits: str) -> Callable[[EpochMetrics], float | None]:
        return lambda epoch: by_bits(epoch).get(bits)

    lengths = sorted({bits for run in group.runs for epoch in run.epochs for bits in by_bits(epoch)}, key=int)
    return [_line(f"{bits} bits", colour(f"lsh:{bits}"), group, at(bits)) for bits in lengths]


def _line(label: str, style: str, group: Group, value: Callable[[EpochMetrics], float | None]) -> Line:
    """Collect a value by epoch from the runs that recorded it."""
    values: dict[int, list[float]] = {}
    for run in group.runs:
        for epoch in run.epochs:
            recorded = value(epoch)
            if recorded is not None:
                values.setdefault(epoch.epoch, []).append(float(recorded))
    return Line(label, style, dict(sorted(values.items())))


def _by_epoch(lines: Sequence[Line], measure: Measure, suffix: str = "") -> Figure | None:
    lines = [line for line in lines if line.values]
    if not lines:
        return None
    title = f"{measure.title} by epoch{suffix}"
    numbers = sorted({epoch for line in lines for epoch in line.values})
    every = [value for line in lines for part in line.values.values() for value in part]
    y = linear(every, measure.scale, zero=measure.zero)
    chart = Chart(epochs(numbers), y, labels=[line.label for line in lines])
    several_seeds = any(len(part) > 1 for line in lines for part in line.values.values())
    for line in lines:
        if several_seeds and len(line.values) > 1:
            low, high = ([(epoch, end(part)) for epoch, part in line.values.items()] for end in (min, max))
            chart.band(low, high, line.style)
    means = [{epoch: statistics.mean(part) for epoch, part in line.values.items()} for line in lines]
    for line, mean in zip(lines, means, strict=True):
        chart.line(list(mean.items()), line.style, line.label)
        for epoch, value in mean.items() if len(numbers) <= FEW else ():
            chart.dot(epoch, value, line.style, f"{line.label}, epoch {epoch}: {measure.text(value)}")
    texts = [{epoch: measure.text(value) for epoch, value in mean.items()} for mean in means]
    last = ", ".join(f"{line.label} {list(text.values())[-1]}" for line, text in zip(lines, texts, strict=True))
    return Figure(
        title,
        measure.note + (" The band is the range over seeds." if several_seeds else ""),
        chart.svg(f"{title}; at the end: {last}."),
        ["epoch", *(line.label for line in lines)],
        [[str(epoch), *(text.get(epoch, "") for text in texts)] for epoch in numbers],
        () if chart.labelled else tuple((line.label, line.style) for line in lines),
    )
