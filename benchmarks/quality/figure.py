"""Draw the trade-off of one-epoch runs: R@1 against R@10 over the size of neighbourhoods and the random share."""

import json
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.quality.declared import CURVES, DEFAULT, ONE_EPOCH, RANDOM, TRIPLETS

FIGURE = "one_epoch.svg"  # in docs/
COLOURS = {"size": "#2563eb", "share": "#059669"}
INK, RED = "#1f2933", "#dc2626"
LABELS = {"size": "neighbourhood size", "share": "random share"}


def draw(path: Path, results: Path = record.RESULTS) -> None:
    """Draw the figure from the tables `one_epoch_*` in a folder of results.

    Raises:
        FileNotFoundError: None of them is there.
    """
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "lookalike", "svg.fonttype": "none", "font.size": 10, "text.color": INK})
    parts = [
        (data, part, {row["sampler"]: row for row in content["rows"]})
        for data in ONE_EPOCH
        if (file := results / f"one_epoch_{data}.json").exists()
        for part, content in json.loads(file.read_text())["parts"].items()
    ]
    if not parts:
        raise FileNotFoundError(f"{results} has no one_epoch_{next(iter(ONE_EPOCH))}.json.")
    figure, axes = plt.subplots(1, len(parts), figsize=(4.6 * len(parts), 3.8), layout="constrained", squeeze=False)
    for axis, (data, part, rows) in zip(axes[0], parts, strict=True):
        _panel(axis, rows)
        axis.set_title(f"{data}, {part.split(',')[0]}", fontsize=10)
        axis.set_xlabel("R@10")
    axes[0][0].set_ylabel("R@1")
    axes[0][0].legend(frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", pad_inches=0.1, metadata={"Date": None})
    plt.close(figure)


def _panel(axis: Any, rows: dict[str, dict[str, Any]]) -> None:
    for curve, declared in CURVES.items():
        shown = [name for name in declared if name in rows]
        points = [_point(rows[name]) for name in shown]
        if points:
            axis.plot(*zip(*points, strict=True), "o-", color=COLOURS[curve], ms=4, lw=1.2, label=LABELS[curve])
        for name, point in zip(shown, points, strict=True):
            axis.annotate(name.split()[-1], point, (4, 4), textcoords="offset points", fontsize=8, color=COLOURS[curve])
    for name, marker, colour in (
        *((name, "s", INK) for name in RANDOM),
        *((name, "^", INK) for name in TRIPLETS),
        *((name, "*", RED) for name in DEFAULT),
    ):
        if name in rows:
            point = _point(rows[name])
            axis.plot(*point, marker, color=colour, ms=12 if marker == "*" else 6)
            axis.annotate(name, point, (6, -10), textcoords="offset points", fontsize=8, color=colour)
    axis.spines[["top", "right"]].set_visible(False)


def _point(row: dict[str, Any]) -> tuple[float, float]:
    return 100 * row["recall@10"]["mean"], 100 * row["recall@1"]["mean"]
