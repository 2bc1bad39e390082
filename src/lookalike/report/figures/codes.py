"""Figures of what codes keep of exact search by number of bits, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.report.figures import Figure, percent, thousands
from lookalike.report.figures.axes import FRACTIONS, PLAIN, Scale, linear, logarithmic, marked
from lookalike.report.figures.chart import Chart
from lookalike.report.groups import colour

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.report.records.analyses import Analysis, Interval

METHOD_STYLES = {
    "lsh": ("LSH", "c-lsh4"),
    "not centred": ("not centred", "c-plain"),
    "gaussian rows": ("Gaussian rows", "c-gaussian"),
    "pca-sign": ("PCA-sign", "c-pca"),
    "incremental pca-sign": ("incremental PCA", "c-ipca"),
    "scalar": ("several bits", "c-scalar"),
}


def overlap_by_bits(analysis: Analysis) -> Figure | None:
    """Draw the overlap of every method, above that of random retrieval."""
    return _by_bits(
        {(row.method, row.bits): row.overlap for row in analysis.rows if row.overlap is not None},
        analysis.random_overlap,
        "Overlap by bits",
        "Fraction of the nearest by code that are also the nearest by cosine; bars are confidence intervals.",
        FRACTIONS,
        percent,
    )


def positional_distance_by_bits(analysis: Analysis) -> Figure | None:
    """Draw how far apart the rankings are, below random retrieval."""
    return _by_bits(
        {
            (row.method, row.bits): row.positional_distance
            for row in analysis.rows
            if row.positional_distance is not None
        },
        analysis.random_positional_distance,
        "Positional distance by bits",
        "Mean difference between ranks by code and by cosine; lower is better.",
        PLAIN,
        thousands,
        log=True,
    )


def _by_bits(
    known: dict[tuple[str, int], Interval],
    floor: float | None,
    title: str,
    note: str,
    scale: Scale,
    text: Callable[[float], str],
    *,
    log: bool = False,
) -> Figure | None:
    if not known:
        return None
    methods = dict.fromkeys(method for method, _ in known)
    ordered = sorted(methods, key=lambda method: [*METHOD_STYLES, method].index(method))
    shown = [(method, *METHOD_STYLES.get(method, (method, "c-other"))) for method in ordered]
    lengths = sorted({bits for _, bits in known})
    random = [] if floor is None else [floor]
    every = [value for interval in known.values() for value in interval.values] + random
    y = logarithmic(every, text, "") if log and min(every) > 0 else linear(every, scale, zero=True)
    labels = [label for _, label, _ in shown] + ["random" for _ in random]
    chart = Chart(marked(lengths, "{:.0f}".format, "bits"), y, labels=labels)
    for value in random:
        chart.level(value, "c-random", "random")
    for method, label, style in reversed(shown):  # LSH is drawn last, on top
        means = [(bits, known[method, bits].mean) for bits in lengths if (method, bits) in known]
        chart.line(means, style, label)
        for bits, mean in means:
            ends = known[method, bits].ends
            if ends is not None:
                chart.whisker(bits, *ends, style)
            chart.dot(bits, mean, style, f"{label}, {bits} bits: {text(mean)}")
    table = [
        [label, *(text(known[method, bits].mean) if (method, bits) in known else "" for bits in lengths)]
        for method, label, _ in shown
    ]
    table += [["random", *[text(value)] * len(lengths)] for value in random]
    ends_said = ", ".join(f"{line[0]} {line[-1]}" for line in table if line[-1])
    return Figure(
        title,
        note,
        chart.svg(f"{title}; at {lengths[-1]} bits: {ends_said}."),
        ["method", *(f"{bits} bits" for bits in lengths)],
        table,
        () if chart.labelled else tuple((label, style) for _, label, style in shown),
    )


def overlap_by_speed(analysis: Analysis) -> Figure | None:
    """Draw overlap against queries per second, up to exact search."""
    return _trade_off(
        [(row.bits, row.queries_per_second, row.overlap) for row in analysis.lsh_rows],
        analysis.exact_queries_per_second,
        "Overlap against speed",
        "LSH by number of bits; farther right is faster.",
        "queries per second",
        thousands,
    )


def overlap_by_compression(analysis: Analysis) -> Figure | None:
    """Draw overlap against how much smaller than floats codes are."""
    return _trade_off(
        [(row.bits, row.compression, row.overlap) for row in analysis.lsh_rows],
        1.0,
        "Overlap against compression",
        "LSH by number of bits; farther right is smaller.",
        "times smaller than float32",
        lambda value: f"{value:.3g}x",
    )


def _trade_off(
    rows: list[tuple[int, float | None, Interval | None]],
    exact: float | None,
    title: str,
    note: str,
    label: str,
    text: Callable[[float], str],
) -> Figure | None:
    points = [
        (f"{bits} bits", x, overlap.mean, colour(f"lsh:{bits}"))
        for bits, x, overlap in rows
        if x is not None and overlap is not None
    ]
    if not points:
        return None
    every = points if exact is None else [*points, ("exact", exact, 1.0, "c-exact")]
    axis = logarithmic([x for _, x, _, _ in every], text, label)
    chart = Chart(axis, linear([y for _, _, y, _ in every], FRACTIONS, zero=True))
    chart.line([(x, y) for _, x, y, _ in points], "c-lsh4 thin")
    for name, x, y, style in every:
        chart.dot(x, y, style, f"{name}: {percent(y)} at {text(x)}", label=name)
    table = [[name, text(x), percent(y)] for name, x, y, _ in every]
    summary = f"{title}: " + "; ".join(f"{name} {overlap} at {x}" for name, x, overlap in table) + "."
    return Figure(title, note, chart.svg(summary), ["code", label, "overlap"], table)
