"""Draw the trade-off of one-epoch runs: R@1 against R@10 over the size of neighbourhoods and the random share."""

import json
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.quality.declared import CURVES, DEFAULT, ONE_EPOCH, RANDOM, TRIPLETS
from benchmarks.quality.explored import runs

FIGURE = "one_epoch.svg"  # in docs/
COLOURS = {"size": "#2563eb", "share": "#059669"}
INK, RED = "#1f2933", "#dc2626"
TITLES = {"medquad": "Medical questions", "debian": "Package descriptions"}
LABELS = {"size": "neighbourhoods of 8, 16 and 64 pairs, all of the batch", "share": "random share of the batch"}
PLACES = {"neighbourhoods of 16": (-5, -12), "neighbourhoods of 8": (4, -10), "random share 0.0": (-18, 4)}


def draw(path: Path, results: Path = record.RESULTS) -> None:
    """Draw the figure from the smaller batches of the tables `one_epoch_*`, and from the runs that chose the defaults.

    Raises:
        FileNotFoundError: None of the tables is there.
    """
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "lookalike", "svg.fonttype": "none", "font.size": 10, "text.color": INK})
    explored = list(runs(results))
    panels = {}
    for data in ONE_EPOCH:
        if (file := results / f"one_epoch_{data}.json").exists():
            content = next(iter(json.loads(file.read_text())["parts"].values()))
            size = next(iter(content["settings"].values()))["pairs_per_batch"]
            rows = {row["sampler"]: _point(row) for row in content["rows"]}
            panels[f"{TITLES[data]}, batches of {size}"] = _explored(explored, data, size) | rows
    if not panels:
        raise FileNotFoundError(f"{results} has no one_epoch_{next(iter(ONE_EPOCH))}.json.")
    figure, axes = plt.subplots(1, len(panels), figsize=(4.8 * len(panels), 4), layout="constrained", squeeze=False)
    for axis, (title, points) in zip(axes[0], panels.items(), strict=True):
        _panel(axis, points)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("R@10")
    axes[0][0].set_ylabel("R@1")
    drawn = {label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", pad_inches=0.1, metadata={"Date": None} if path.suffix == ".svg" else {})
    plt.close(figure)


def _panel(axis: Any, points: dict[str, tuple[float, float]]) -> None:
    shares = {name: float(name.split()[-1]) for name in CURVES["share"]}
    shares |= dict.fromkeys(DEFAULT, 0.5) | dict.fromkeys(RANDOM, 1.0)
    for curve, declared in CURVES.items():
        shown = [name for name in declared if name in points]
        joined = sorted(shares, key=shares.__getitem__) if curve == "share" else shown
        line = [points[name] for name in joined if name in points]
        if shown:
            style = "o-" if curve == "share" else "o"
            axis.plot(*zip(*line, strict=True), style, color=COLOURS[curve], ms=4, lw=1.2, label=LABELS[curve])
        for name in shown:
            where = {"xytext": PLACES.get(name, (5, 4)), "textcoords": "offset points"}
            axis.annotate(name.split()[-1], points[name], **where, fontsize=8, color=COLOURS[curve])
    for name, marker, colour in (
        *((name, "s", INK) for name in RANDOM),
        *((name, "^", INK) for name in TRIPLETS),
        *((name, "*", RED) for name in DEFAULT),
    ):
        if name in points:
            axis.plot(*points[name], marker, color=colour, ms=12 if marker == "*" else 6)
            label, above = (f"{name} (0.5)", 9) if name in DEFAULT else (name, -14)
            where = {"xytext": (0, above), "textcoords": "offset points", "ha": "center"}
            axis.annotate(label, points[name], **where, fontsize=9, color=colour)
    axis.margins(0.16)
    axis.spines[["top", "right"]].set_visible(False)


def _explored(found: list[dict[str, Any]], data: str, size: int) -> dict[str, tuple[float, float]]:
    """Return the runs of one epoch that the curves declare, by their names there."""
    points = {}
    for run in found:
        if (run["name"], run["epochs"], run["pairs_per_batch"]) != (data, 1, size):
            continue
        setting = (run["sampler"], run["warm_start"], run["center"], run["neighbourhood"], run["hardness"])
        if run["learning_rate"] != ONE_EPOCH[data][size].get("learning_rate", 5e-5):
            continue
        for name, row in (row for curve in CURVES.values() for row in curve.items()):
            if setting == ("lsh", "on", 1.0, row["neighbourhood"], row["warm_hardness"]):
                points[name] = 100 * run["recall@10"], 100 * run["recall@1"]
    return points


def _point(row: dict[str, Any]) -> tuple[float, float]:
    return 100 * row["recall@10"]["mean"], 100 * row["recall@1"]["mean"]
