"""What the runs came to: recall by sampler, against memory, by hardness."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

from lookalike.report.chart import LETTER, PLAIN, SHARES, TOP, WIDTH, Axis, Chart, linear, picture, symbol
from lookalike.report.figures import Figure, exact_percent
from lookalike.report.groups import Group, colour, essential, strategy_of
from lookalike.report.markup import shortened, tag

if TYPE_CHECKING:
    from collections.abc import Sequence

ROW = 34.0  # height of one
LONGEST_NAME = 30  # letters beside a row


def recall_by_sampler(rows: Sequence[dict[str, Any]], settings: dict[str, Any]) -> Figure:
    """R@1 of every sampler: seeds as dots, mean and standard deviation."""
    known = [(row["sampler"], row["recall@1"]) for row in rows]
    ends = {name: (max(0.0, r["mean"] - (r["sd"] or 0)), min(1.0, r["mean"] + (r["sd"] or 0))) for name, r in known}
    axis = linear([value for name, r in known for value in (*r["values"], r["mean"], *ends[name])], SHARES)
    longest = max(len(shortened(name, LONGEST_NAME)) for name, _ in known)
    height, left, right = ROW * len(known) + 44, 20 + LETTER * longest, WIDTH - 64

    def at(value: float) -> float:
        return left + (value - axis.low) / (axis.high - axis.low) * (right - left)

    parts = []
    for value, text in axis.ticks[:: 2 if len(axis.ticks) > 5 else 1]:
        parts.append(tag("line", x1=at(value), x2=at(value), y1=TOP, y2=height - 30, class_="grid"))
        parts.append(tag("text", text, x=at(value), y=height - 12, text_anchor="middle", class_="tick"))
    for place, (name, recall) in enumerate(known):
        y, style = TOP + ROW * (place + 0.5), style_of(name, settings)
        mean, deviation = recall["mean"], recall["sd"]
        parts.append(tag("text", shortened(name, LONGEST_NAME), x=left - 12, y=y + 4, text_anchor="end", class_="name"))
        if deviation is not None:
            low, high = ends[name]
            parts.append(tag("path", d=f"M{at(low):.1f} {y}H{at(high):.1f}", class_=f"whisker wide {style}"))
            parts += [tag("circle", cx=at(v), cy=y, r=2.2, class_=f"seed {style}") for v in recall["values"]]
        title = tag("title", f"{name}: {exact_percent(mean)}")
        parts.append(
            tag(
                "path",
                title,
                d=symbol(style),
                class_=f"dot {style}",
                transform=f"translate({at(mean):.1f} {y}) scale(1.4)",
            )
        )
        parts.append(tag("text", exact_percent(mean), x=WIDTH - 8, y=y + 4, text_anchor="end", class_="value"))
    table = [
        [
            name,
            exact_percent(r["mean"]),
            "" if r["sd"] is None else f"{100 * r['sd']:.2f}",
            ", ".join(map(exact_percent, r["values"])),
        ]
        for name, r in known
    ]
    summary = "Recall@1 by sampler: " + ", ".join(f"{name} {exact_percent(r['mean'])}" for name, r in known) + "."
    several = any(recall["sd"] is not None for _, recall in known)
    note = "Mean over seeds, each seed a small dot, the bar one standard deviation to either side." if several else ""
    note = note or "How often the nearest reference is the right one."
    return Figure(
        "Recall@1 by sampler", note, picture(parts, summary, height), ["sampler", "mean", "sd, points", "seeds"], table
    )


def recall_by_memory(rows: Sequence[dict[str, Any]], settings: dict[str, Any]) -> Figure | None:
    """R@1 against what a sampler keeps between epochs: where bits and floats differ."""
    rows = [row for row in rows if row["kept_bytes"] is not None]
    if len({row["kept_bytes"] for row in rows}) < 2:
        return None
    scale, unit = (1e6, "MB") if max(row["kept_bytes"] for row in rows) >= 1e6 else (1e3, "kB")
    known = [(row["sampler"], row["kept_bytes"] / scale, row["recall@1"]["mean"]) for row in rows]
    x = linear([kept for _, kept, _ in known], PLAIN, f"{unit} kept between epochs", zero=True)
    x = Axis(x.low, x.high * 1.12, x.ticks, x.label)
    chart = Chart(x, linear([recall for _, _, recall in known], SHARES))
    for name, kept, recall in known:
        title = f"{name}: {exact_percent(recall)} with {kept:.2f} {unit}"
        chart.dot(kept, recall, style_of(name, settings), title, label=shortened(name, LONGEST_NAME))
    summary = (
        "Recall@1 against memory: " + "; ".join(f"{n} {exact_percent(r)}, {k:.2f} {unit}" for n, k, r in known) + "."
    )
    return Figure(
        "Recall@1 against memory",
        "What a sampler must remember of an epoch to mine for the next one.",
        chart.svg(summary),
        ["sampler", f"{unit} kept", "R@1"],
        [[n, f"{k:.2f}", exact_percent(r)] for n, k, r in known],
    )


def hardness_curve(groups: Sequence[Group]) -> Figure | None:
    """R@1 against the share of hard negatives in a batch, for groups that differ in nothing else."""
    families: dict[str, list[Group]] = {}
    for group in groups:
        if "hardness" in group.config and any(run.result for run in group.runs):
            rest = {name: value for name, value in essential(group.config).items() if name != "hardness"}
            families.setdefault(json.dumps(rest, sort_keys=True), []).append(group)
    lines = []
    for members in families.values():
        recalls = {
            float(g.config["hardness"]): [r.result["metrics"]["recall@1"] for r in g.runs if r.result]
            for g in members
            if "hardness" in essential(g.config)
        }
        if len(recalls) > 1:
            lines.append((strategy_of(members[0].config), dict(sorted(recalls.items()))))
    if not lines:
        return None
    values = [value for _, recalls in lines for part in recalls.values() for value in part]
    x = Axis(0, 1, [(i / 4, f"{i / 4:g}") for i in range(5)], "hardness: share of hard negatives in a batch")
    chart = Chart(x, linear(values, SHARES), labels=[label for label, _ in lines])
    for label, recalls in lines:
        means = [(hardness, statistics.mean(part)) for hardness, part in recalls.items()]
        chart.line(means, colour(label), label)
        for (hardness, mean), part in zip(means, recalls.values(), strict=True):
            chart.whisker(hardness, min(part), max(part), colour(label))
            chart.dot(hardness, mean, colour(label), f"{label}, hardness {hardness:g}: {exact_percent(mean)}")
    rows = [
        [label, f"{h:g}", exact_percent(statistics.mean(part)), str(len(part))]
        for label, recalls in lines
        for h, part in recalls.items()
    ]
    summary = "Recall@1 by hardness: " + ", ".join(f"{row[0]} {row[2]} at {row[1]}" for row in rows) + "."
    return Figure(
        "Recall@1 by hardness",
        "Runs that differ only in how much of a batch is hard; the rest is random.",
        chart.svg(summary),
        ["sampler", "hardness", "R@1", "seeds"],
        rows,
    )


def style_of(name: str, settings: dict[str, Any]) -> str:
    """The colour of a row of a comparison, whose name may leave out the bits."""
    config = settings.get(name)
    return colour(strategy_of(config) if isinstance(config, dict) and "sampler" in config else name)
