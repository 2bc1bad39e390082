"""What a benchmark of the search shows: time against size, by bits, beside exact search."""

from __future__ import annotations

from typing import Any

from lookalike.report.chart import Chart, logarithmic
from lookalike.report.figures import Figure
from lookalike.report.groups import colour

EXACT = ("cosine, fp32", "cosine, bf16")  # of the peers, those that are drawn
STYLES = {"cosine, fp32": "c-random", "cosine, bf16": "c-plain"}


def speed_by_size(content: dict[str, Any]) -> Figure | None:
    """Seconds to search a set in itself, a line per length and per exact search."""
    rows = [row for row in content["search"] if row["queries"] == row["rows"]]
    lines: dict[str, dict[int, float]] = {}
    for row in rows:
        lines.setdefault(f"{row['bits']} bits", {})[row["rows"]] = row["seconds"]
        for name in EXACT:
            if name in row["others_seconds"]:
                lines.setdefault(name, {})[row["rows"]] = row["others_seconds"][name]
    sizes = sorted({row["rows"] for row in rows})
    if len(sizes) < 2:
        return None
    values = [value for line in lines.values() for value in line.values()]
    chart = Chart(
        logarithmic(sizes, "{:,.0f}".format, "samples"), logarithmic(values, _seconds, ""), labels=list(lines)
    )
    for name, line in lines.items():
        style = STYLES.get(name) or colour(f"lsh:{name.split()[0]}")
        chart.line(sorted(line.items()), style, name)
        for size, value in line.items():
            chart.dot(size, value, style, f"{name}, {size:,} samples: {_seconds(value)}")
    title = "Search time by size"
    gpu = content["gpu"].get("name", "")
    table = [[name, *(_seconds(line[size]) if size in line else "" for size in sizes)] for name, line in lines.items()]
    largest = ", ".join(f"{row[0]} {row[-1]}" for row in table)
    return Figure(
        title,
        f"The hard negatives of every sample among all others{f', {gpu}' if gpu else ''}; both axes are logarithmic.",
        chart.svg(f"{title}; at {sizes[-1]:,} samples: {largest}."),
        ["search", *(f"{size:,}" for size in sizes)],
        table,
    )


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{1000 * value:.3g} ms"
