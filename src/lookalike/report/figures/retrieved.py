"""Figures of what codes retrieve: similarity to the anchor, and distance relative to the true neighbours."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from lookalike.report.figures import Figure, percent
from lookalike.report.figures.axes import COSINES, FRACTIONS, Axis, linear
from lookalike.report.figures.chart import BOTTOM, TOP, Chart
from lookalike.report.figures.svg import HEIGHT, LETTER, WIDTH, element, picture
from lookalike.report.groups import colour

if TYPE_CHECKING:
    from lookalike.report.records.analyses import Analysis, Histogram

BAR = 40.0  # height of a bar with its gap
NARROW = 34  # width of a bar without room for a number


class _Outline(NamedTuple):
    label: str
    style: str
    fractions: list[float]


def similarity_histogram(analysis: Analysis) -> Figure | None:
    """Draw the cosines of retrieved negatives against those of the true ones."""
    if analysis.histogram is None:
        return None
    edges, outlines = analysis.histogram.edges, _outlines(analysis.histogram)
    used = [i for i in range(len(edges) - 1) if any(outline.fractions[i] > 0 for outline in outlines)]
    first, last = (used[0], used[-1] + 1) if used else (0, len(edges) - 1)
    low, high = edges[first], edges[last]
    x = linear((low, high), COSINES, "cosine with the anchor")
    x = Axis(low, high, [tick for tick in x.ticks if low <= tick[0] <= high], x.label)
    chart = Chart(x, linear([value for outline in outlines for value in outline.fractions], FRACTIONS, zero=True))
    for place, (label, style, fractions) in enumerate(outlines):
        steps = [(edge, fractions[i]) for i in range(first, last) for edge in (edges[i], edges[i + 1])]
        if place == 0:
            chart.band(steps, [(edge, 0.0) for edge, _ in steps], style)
        chart.line([(low, 0.0), *steps, (high, 0.0)], style)
        y = TOP + 10 + 16 * place
        chart.draw(element("line", x1=chart.left + 10, x2=chart.left + 28, y1=y - 4, y2=y - 4, class_=f"line {style}"))
        chart.draw(element("text", label, x=chart.left + 34, y=y, class_="name"))
    means = ", ".join(f"{label} {_mean(edges, fractions):.3f}" for label, _, fractions in outlines)
    return Figure(
        "Similarity of retrieved negatives",
        "Cosines of the true nearest negatives and of those found in bits: the closer the outlines, the harder the "
        "negatives.",
        chart.svg(f"Histogram of similarity; means: {means}."),
        ["cosine", *(outline.label for outline in outlines)],
        [
            [f"{edges[i]:.3g} to {edges[i + 1]:.3g}", *(percent(outline.fractions[i]) for outline in outlines)]
            for i in range(first, last)
        ],
    )


def _outlines(histogram: Histogram) -> list[_Outline]:
    """Turn counts into fractions: exact search, then codes, the longest first."""
    series = [] if histogram.exact is None else [("exact", "c-exact", histogram.exact)]
    for bits, counts in sorted(histogram.by_bits.items(), reverse=True):
        series.append((f"{bits} bits", colour(f"lsh:{bits}"), counts))
    return [_Outline(label, style, [count / (sum(counts) or 1) for count in counts]) for label, style, counts in series]


def _mean(edges: list[float], fractions: list[float]) -> float:
    return sum(fraction * (a + b) / 2 for fraction, (a, b) in zip(fractions, pairwise(edges), strict=True))


def bound_usage(analysis: Analysis) -> Figure | None:
    """Draw how much of what LSH retrieves is as near as it should be, nearly so, or farther."""
    rows = [(row.bits, row.bound) for row in analysis.lsh_rows if row.bound is not None]
    if not rows:
        return None
    kinds = (("within eps", "c-near"), (f"within {analysis.settings.a or 'a'} eps", "c-close"), ("beyond", "c-far"))
    left, right, height = 24 + LETTER * 5, WIDTH - 12, BAR * len(rows) + 62
    parts, x = [], left
    for label, style in kinds:
        parts.append(element("rect", x=x, y=TOP, width=12, height=12, rx=2, class_=f"bar {style}"))
        parts.append(element("text", label, x=x + 18, y=TOP + 10, class_="name"))
        x += 38 + LETTER * len(label)
    table = []
    for place, (bits, bound) in enumerate(rows):
        y, x = TOP + 26 + BAR * place, left
        fractions = (bound.within_eps, bound.within_a_eps, bound.beyond)
        parts.append(element("text", str(bits), x=left - 10, y=y + 19, text_anchor="end", class_="name"))
        for (label, style), fraction in zip(kinds, fractions, strict=True):
            width = fraction * (right - left)
            title = element("title", f"{bits} bits, {label}: {percent(fraction)}")
            parts.append(element("rect", title, x=x, y=y, width=max(0.0, width - 1), height=28, class_=f"bar {style}"))
            if width > NARROW:
                place_of_text = {"x": x + width / 2, "y": y + 18.5, "text_anchor": "middle"}
                parts.append(element("text", f"{fraction:.0%}", **place_of_text, class_=f"inside {style}"))
            x += width
        table.append([str(bits), *map(percent, fractions)])
    parts.append(element("text", "bits", x=left - 10, y=height - 12, text_anchor="end", class_="label"))
    summary = "Bound usage: " + "; ".join(f"{bits} bits {near} within eps" for bits, near, _, _ in table) + "."
    return Figure(
        "Bound usage by bits",
        "eps is the distance of the last true neighbour: whatever lies within it is as hard as exact mining demands.",
        picture(parts, summary, max(height, HEIGHT - BOTTOM)),
        ["bits", *(label for label, _ in kinds)],
        table,
    )
