"""Draw what codes find against their bytes, a panel per data set, from the results of `benchmarks.overlap`.

python -m benchmarks.overlap_figure [--out FILE]
"""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from benchmarks import record
from benchmarks.code_tables import DOCS, FIGURE

INK = "#1f2933"
# Kind and query -> colour, marker, line style; filled markers compare codes with codes.
STYLES = {
    ("several bits", "float"): ("#dc2626", "o", "--"),
    ("several bits", "code"): ("#dc2626", "o", "-"),
    ("FAISS RaBitQ", "float"): ("#059669", "^", "--"),
    ("FAISS PQ", "float"): ("#7c3aed", "s", "--"),
    ("FAISS PQ", "code"): ("#7c3aed", "s", "-"),
    ("signs", "code"): ("#2563eb", "D", "-"),
}
WIDTH = 3.4  # inches of a panel
COLUMNS = 3


def main(out: Annotated[Path, arg(help="The picture.")] = DOCS / FIGURE) -> None:
    """Draw the figure of the documentation."""
    draw(out, record.read("overlap"))
    print(f"Written: {out}")


def draw(path: Path, result: dict[str, Any]) -> None:
    """Draw the figure; the last place of the grid takes the legend."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "lookalike", "svg.fonttype": "none", "font.size": 10, "text.color": INK})
    data = result["data"]
    lines = -(-(len(data) + 1) // COLUMNS)
    figure, axes = plt.subplots(
        lines,
        COLUMNS,
        figsize=(WIDTH * COLUMNS, 3 * lines),
        layout="constrained",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    places = axes.flatten()
    for axis, each in zip(places, data, strict=False):
        _panel(axis, [row for row in result["overlap"] if row["data"] == each["data"]])
        axis.set_title(f"{each['title'][0].upper()}{each['title'][1:]}", fontsize=10)
    for axis in places[len(data) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel(f"overlap@{result['settings']['k']}")
    for place in range(max(0, len(data) - COLUMNS), len(data)):  # the lowest panel of each column
        places[place].set_xlabel("bytes per vector")
        places[place].tick_params(labelbottom=True)
    handles, labels = places[0].get_legend_handles_labels()
    places[len(data)].legend(handles, labels, loc="center", frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", pad_inches=0.1, metadata={"Date": None} if path.suffix == ".svg" else {})
    plt.close(figure)


def _panel(axis: Any, rows: list[dict[str, Any]]) -> None:
    for (kind, query), (colour, marker, line) in STYLES.items():
        points = sorted((row["bytes"], row["overlap"]) for row in rows if (row["kind"], row["query"]) == (kind, query))
        filling = colour if query == "code" else "white"
        label = f"{kind}, queries as {query}s"
        axis.plot(
            *zip(*points, strict=True), marker=marker, ls=line, lw=1.3, ms=5, color=colour, mfc=filling, label=label
        )
    sizes = sorted({row["bytes"] for row in rows})
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, list(map(str, sizes)))
    axis.set_ylim(0, 1)
    axis.grid(alpha=0.25, lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    record.run(main)
