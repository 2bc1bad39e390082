"""What an analysis shows of the bits: similarity, bound, overlap, and what overlap costs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lookalike.report.chart import (
    BOTTOM,
    COSINES,
    HEIGHT,
    LETTER,
    PLAIN,
    SHARES,
    TOP,
    WIDTH,
    Axis,
    Chart,
    Scale,
    linear,
    logarithmic,
    marked,
    picture,
)
from lookalike.report.figures import Figure, exact_percent
from lookalike.report.groups import colour
from lookalike.report.markup import tag

if TYPE_CHECKING:
    from collections.abc import Callable

METHODS = {
    "lsh": ("LSH", "c-lsh4"),
    "not centred": ("not centred", "c-plain"),
    "gaussian rows": ("Gaussian rows", "c-gaussian"),
    "pca-sign": ("PCA-sign", "c-pca"),
    "incremental pca-sign": ("incremental PCA", "c-ipca"),
}
BAR = 40.0  # height of one, with its gap


def overlap_by_bits(content: dict[str, Any]) -> Figure | None:
    """Overlap of every method, with the random floor."""
    note = "Share of the nearest in bits that are among the nearest by cosine; the bars are confidence intervals."
    return _by_bits(content, "overlap", "Overlap by bits", note, SHARES, exact_percent)


def positional_distance_by_bits(content: dict[str, Any]) -> Figure | None:
    """How far the rankings are apart, with what random retrieval would give."""
    note = "Mean difference between the places in both rankings; lower is better."
    title = "Positional distance by bits"
    return _by_bits(content, "positional_distance", title, note, PLAIN, thousands, log=True)


def _by_bits(
    content: dict[str, Any],
    name: str,
    title: str,
    note: str,
    scale: Scale,
    exact: Callable[[float], str],
    *,
    log: bool = False,
) -> Figure | None:
    rows = [row for row in content["rows"] if row[name] is not None]
    if not rows:
        return None
    floor = content["random"].get(name)
    values = [value for row in rows for value in row[name].values()]
    values += [] if floor is None else [floor]
    present = [
        method
        for method in [*METHODS, *(row["method"] for row in rows)]
        if any(row["method"] == method for row in rows)
    ]
    present = list(dict.fromkeys(present))
    labels = [METHODS.get(method, (method, ""))[0] for method in present]
    named = tuple(
        (label, METHODS.get(method, ("", "c-other"))[1]) for method, label in zip(present, labels, strict=True)
    )
    chart = Chart(
        marked([row["bits"] for row in rows], "{:.0f}".format, "bits"),
        logarithmic(values, exact, "") if log and min(values) > 0 else linear(values, scale, zero=True),
        labels=[*labels, *([] if floor is None else ["random"])],
    )
    if floor is not None:
        chart.level(floor, "c-random", "random")
    for method, label in reversed([*zip(present, labels, strict=True)]):  # LSH is drawn last, on top
        style = METHODS.get(method, ("", "c-other"))[1]
        of_method = sorted((row for row in rows if row["method"] == method), key=lambda row: row["bits"])
        chart.line([(row["bits"], row[name]["mean"]) for row in of_method], style, label)
        for row in of_method:
            if "low" in row[name]:
                chart.whisker(row["bits"], row[name]["low"], row[name]["high"], style)
            chart.dot(row["bits"], row[name]["mean"], style, f"{label}, {row['bits']} bits: {exact(row[name]['mean'])}")
    by_key = {(row["method"], row["bits"]): exact(row[name]["mean"]) for row in rows}
    lengths = sorted({row["bits"] for row in rows})
    table = [
        [label, *(by_key.get((method, bits), "") for bits in lengths)]
        for method, label in zip(present, labels, strict=True)
    ]
    if floor is not None:
        table.append(["random", *[exact(floor)] * len(lengths)])
    ends = ", ".join(f"{line[0]} {line[-1]}" for line in table if line[-1])
    summary = f"{title}; at {lengths[-1]} bits: {ends}."
    return Figure(
        title,
        note,
        chart.svg(summary),
        ["method", *(f"{bits} bits" for bits in lengths)],
        table,
        () if chart.labelled else named,
    )


def similarity_histogram(content: dict[str, Any]) -> Figure | None:
    """Cosines of what the bits retrieve, against the true neighbours'."""
    histogram = content["histogram"]
    if histogram is None:
        return None
    edges = histogram["edges"]
    series = [] if histogram["exact"] is None else [("exact", "c-exact", histogram["exact"])]
    series += [
        (f"{bits} bits", colour(f"lsh:{bits}"), histogram["lsh"][bits])
        for bits in sorted(histogram["lsh"], key=int, reverse=True)
    ]
    shares = [(label, style, [count / (sum(counts) or 1) for count in counts]) for label, style, counts in series]
    used = [i for i in range(len(edges) - 1) if any(part[i] > 0 for _, _, part in shares)]
    first, last = (used[0], used[-1] + 1) if used else (0, len(edges) - 1)
    x = linear(edges[first : last + 1], COSINES, "cosine with the anchor")
    x = Axis(edges[first], edges[last], [tick for tick in x.ticks if edges[first] <= tick[0] <= edges[last]], x.label)
    top = linear([share for _, _, part in shares for share in part], SHARES, zero=True)
    chart = Chart(x, top)
    for place, (label, style, part) in enumerate(shares):
        steps = [point for i in range(first, last) for point in ((edges[i], part[i]), (edges[i + 1], part[i]))]
        outline = [(edges[first], 0.0), *steps, (edges[last], 0.0)]
        if place == 0:
            chart.band(steps, [(edge, 0.0) for edge, _ in steps], style)
        chart.line(outline, style)
        y = TOP + 10 + 16 * place
        chart.draw(tag("line", x1=chart.left + 10, x2=chart.left + 28, y1=y - 4, y2=y - 4, class_=f"line {style}"))
        chart.draw(tag("text", label, x=chart.left + 34, y=y, class_="name"))
    means = ", ".join(f"{label} {_mean(edges, part):.3f}" for label, _, part in shares)
    rows = [
        [f"{a:.3g} to {b:.3g}", *(exact_percent(part[i]) for _, _, part in shares)]
        for i, (a, b) in enumerate(pairwise(edges))
        if first <= i < last
    ]
    return Figure(
        "Similarity of what is retrieved",
        "Cosines of the true nearest negatives and of those that the bits find: the "
        "closer the outlines, the harder the negatives.",
        chart.svg(f"Histogram of similarity; means: {means}."),
        ["cosine", *(label for label, _, _ in shares)],
        rows,
    )


def bound_usage(content: dict[str, Any]) -> Figure | None:
    """Of what is retrieved, how much is as near as it should be, nearly, or not."""
    rows = [row for row in content["rows"] if row["method"] == "lsh" and row["bound"] is not None]
    if not rows:
        return None
    a = content["settings"].get("a", "a")
    kinds = (
        ("within_eps", "within eps", "c-near"),
        ("within_a_eps", f"within {a} eps", "c-close"),
        ("beyond", "beyond", "c-far"),
    )
    left, right, height = 24 + LETTER * 5, WIDTH - 12, BAR * len(rows) + 62
    parts, x = [], left
    for _, label, style in kinds:
        parts.append(tag("rect", x=x, y=TOP, width=12, height=12, rx=2, class_=f"bar {style}"))
        parts.append(tag("text", label, x=x + 18, y=TOP + 10, class_="name"))
        x += 38 + LETTER * len(label)
    table = []
    for place, row in enumerate(sorted(rows, key=lambda row: row["bits"])):
        y, x = TOP + 26 + BAR * place, left
        parts.append(tag("text", str(row["bits"]), x=left - 10, y=y + 19, text_anchor="end", class_="name"))
        for name, label, style in kinds:
            share = row["bound"][name]
            width = share * (right - left)
            title = tag("title", f"{row['bits']} bits, {label}: {exact_percent(share)}")
            parts.append(tag("rect", title, x=x, y=y, width=max(0.0, width - 1), height=28, class_=f"bar {style}"))
            if width > 34:
                parts.append(
                    tag(
                        "text",
                        f"{share:.0%}",
                        x=x + width / 2,
                        y=y + 18.5,
                        text_anchor="middle",
                        class_=f"inside {style}",
                    )
                )
            x += width
        table.append([str(row["bits"]), *(exact_percent(row["bound"][name]) for name, _, _ in kinds)])
    parts.append(tag("text", "bits", x=left - 10, y=height - 12, text_anchor="end", class_="label"))
    summary = "Bound usage: " + "; ".join(f"{bits} bits {near} within eps" for bits, near, _, _ in table) + "."
    return Figure(
        "Bound usage by bits",
        "eps is the distance of the last true neighbour: what is within it is as hard as exact mining would ask for.",
        picture(parts, summary, max(height, HEIGHT - BOTTOM)),
        ["bits", *(label for _, label, _ in kinds)],
        table,
    )


def overlap_by_speed(content: dict[str, Any]) -> Figure | None:
    """Overlap against queries per second, with exact search at one end."""
    exact = content["exact"].get("queries_per_second")
    return _trade(content, "queries_per_second", exact, "Overlap against speed", "queries per second", thousands)


def overlap_by_compression(content: dict[str, Any]) -> Figure | None:
    """Overlap against how much smaller codes are than floats."""
    return _trade(content, "compression", 1.0, "Overlap against compression", "times smaller than float32", times)


def _trade(
    content: dict[str, Any], name: str, exact: float | None, title: str, label: str, text: Callable[[float], str]
) -> Figure | None:
    rows = [row for row in content["rows"] if row["method"] == "lsh" and name in row and row["overlap"] is not None]
    if not rows:
        return None
    rows.sort(key=lambda row: row["bits"])
    points = [(f"{row['bits']} bits", row[name], row["overlap"]["mean"], colour(f"lsh:{row['bits']}")) for row in rows]
    whole = points if exact is None else [*points, ("exact", exact, 1.0, "c-exact")]
    axis = logarithmic([x for _, x, _, _ in whole], text, label)
    chart = Chart(axis, linear([y for _, _, y, _ in whole], SHARES, zero=True))
    chart.line([(x, y) for _, x, y, _ in points], "c-lsh4 thin")
    for point, x, y, style in whole:
        chart.dot(x, y, style, f"{point}: {exact_percent(y)} at {text(x)}", label=point)
    rows_shown = [[point, text(x), exact_percent(y)] for point, x, y, _ in whole]
    summary = f"{title}: " + "; ".join(f"{a} {c} at {b}" for a, b, c in rows_shown) + "."
    return Figure(
        title,
        f"LSH by number of bits; further right is {'faster' if name[0] == 'q' else 'smaller'}.",
        chart.svg(summary),
        ["code", label, "overlap"],
        rows_shown,
    )


def thousands(value: float) -> str:
    """1200 -> 1.2k."""
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.3g}"


def times(value: float) -> str:
    """How many times."""
    return f"{value:.3g}x"


def _mean(edges: list[float], shares: list[float]) -> float:
    return sum(share * (a + b) / 2 for share, (a, b) in zip(shares, pairwise(edges), strict=True))


FIGURES: tuple[tuple[str, Callable[[dict[str, Any]], Figure | None]], ...] = (
    ("overlap", overlap_by_bits),
    ("positional distance", positional_distance_by_bits),
    ("similarity", similarity_histogram),
    ("bound usage", bound_usage),
    ("overlap against speed", overlap_by_speed),
    ("overlap against compression", overlap_by_compression),
)
