"""The figure of search time against size, by bits and for exact search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.report.figures import Figure
from lookalike.report.figures.axes import logarithmic
from lookalike.report.figures.chart import Chart
from lookalike.report.groups import colour

if TYPE_CHECKING:
    from lookalike.report.records.benchmarks import SearchBenchmark

EXACT = {"cosine, fp32": "c-random", "cosine, bf16": "c-plain"}  # the other searches that are drawn


def search_time_by_size(benchmark: SearchBenchmark) -> Figure | None:
    """Draw the seconds to search a set in itself, a line per number of bits and per exact search."""
    rows = [row for row in benchmark.rows if row.queries == row.references]
    sizes = sorted({row.references for row in rows})
    if len(sizes) < 2:
        return None
    lines: dict[str, dict[int, float]] = {}
    styles = dict(EXACT)
    for row in rows:
        name = f"{row.bits} bits"
        styles[name] = colour(f"lsh:{row.bits}")
        lines.setdefault(name, {})[row.references] = row.seconds
        for other in (name for name in EXACT if name in row.others_seconds):
            lines.setdefault(other, {})[row.references] = row.others_seconds[other]
    every = [value for line in lines.values() for value in line.values()]
    x, y = logarithmic(sizes, "{:,.0f}".format, "samples"), logarithmic(every, _seconds, "")
    chart = Chart(x, y, labels=list(lines))
    for name, line in lines.items():
        chart.line(sorted(line.items()), styles[name], name)
        for size, value in line.items():
            chart.dot(size, value, styles[name], f"{name}, {size:,} samples: {_seconds(value)}")
    title = "Search time by size"
    table = [[name, *(_seconds(line[size]) if size in line else "" for size in sizes)] for name, line in lines.items()]
    largest = ", ".join(f"{row[0]} {row[-1]}" for row in table if row[-1])
    where = f" ({benchmark.gpu})" if benchmark.gpu else ""
    return Figure(
        title,
        f"Time to find the hard negatives of every sample among all others{where}; both axes are logarithmic.",
        chart.svg(f"{title}; at {sizes[-1]:,} samples: {largest}."),
        ["search", *(f"{size:,}" for size in sizes)],
        table,
    )


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{1000 * value:.3g} ms"
