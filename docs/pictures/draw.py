"""Draw the pictures of concepts.md and design.md; those of concepts.md are computed by the functions they illustrate.

python docs/pictures/draw.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from lookalike import InfoNCE, LSHBatchSampler, SignHasher, compose_batches, hamming_topk, hard_negatives
from lookalike.data.synthetic import clustered_embeddings

INK, PALE, BLUE, RED, GREEN = "#1f2933", "#d5dbe1", "#2563eb", "#dc2626", "#059669"
BATCH_COLOURS = plt.get_cmap("tab10").colors

mpl.rcParams.update(
    {
        "svg.hashsalt": "lookalike",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": PALE,
        "figure.facecolor": "white",
    }
)


def main(folder: Path) -> None:
    """Draw all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        figure = draw()
        figure.savefig(folder / f"{name}.svg", bbox_inches="tight", pad_inches=0.1, metadata={"Date": None})
        plt.close(figure)


def codes() -> Any:
    """Draw embeddings -> codes: on which side of each hyperplane through the mean a point lies."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.tensor([[2.2, 1.6], [-0.6, 2.4], [1.4, -0.4]])
    x = centres.repeat_interleave(14, 0) + 0.42 * torch.randn(42, 2, generator=generator)
    hasher = SignHasher(dim=2, bits=8, seed=4)
    hasher.update_mean(x)
    bits = np.unpackbits(hasher.encode(x).numpy(), axis=1, bitorder="little")
    figure, (plane, table) = plt.subplots(1, 2, figsize=(9, 3.8), width_ratios=(3, 2), layout="constrained")
    mean = hasher.mean.numpy()
    for row in hasher.rows.numpy():
        along = np.array([-row[1], row[0]])
        plane.axline(mean, mean + along, color=PALE, lw=1)
    shown = [3, 8, 20, 35]
    plane.scatter(*x.T, s=16, color=INK, alpha=0.35, lw=0)
    plane.scatter(*mean, marker="+", s=90, color=INK)
    plane.annotate("mean", mean, (6, -12), textcoords="offset points", fontsize=9)
    for place, i in enumerate(shown):
        colour = BATCH_COLOURS[place]
        plane.scatter(*x[i], s=60, color=colour, zorder=3)
        _bits(table, bits[i], y=3 - place, colour=colour)
    plane.set(xticks=[], yticks=[], title="embeddings and random hyperplanes")
    plane.set_aspect("equal")
    table.set(xlim=(-1.2, 8.2), ylim=(-0.6, 4), title="codes: which side of each")
    table.set_axis_off()
    return figure


def neighbours() -> Any:
    """Draw codes -> neighbours: those that differ in the fewest bits."""
    packed, _ = _small_set()
    found = hamming_topk(packed[:1], packed, k=7)
    figure, axes = plt.subplots(figsize=(9, 3.2))
    _rows(axes, packed, found.indices[0], found.distances[0], lambda place: BLUE if place == 0 else INK)
    captions = ["the anchor", *["bits differ"] * (len(found.indices[0]) - 1)]
    for place, caption in enumerate(captions):
        axes.text(35.2, len(captions) - 1 - place, caption, va="center", fontsize=9)
    return figure


def negatives() -> Any:
    """Draw neighbours -> hard negatives: the nearest of another label."""
    packed, labels = _small_set()
    near = hamming_topk(packed[:1], packed, k=7)
    kept = set(hard_negatives(packed, labels, k=4).indices[0].tolist())
    figure, axes = plt.subplots(figsize=(9, 3.2))

    def colour(place: int) -> str:
        return BLUE if place == 0 else RED if int(near.indices[0, place]) in kept else PALE

    _rows(axes, packed, near.indices[0], near.distances[0], colour)
    for place, i in enumerate(near.indices[0].tolist()):
        role = "the anchor" if place == 0 else "hard negative" if i in kept else "its own label: excluded"
        y = len(near.indices[0]) - 1 - place
        axes.text(35.2, y, f"label {int(labels[i])}: {role}", va="center", fontsize=9)
    return figure


def batches() -> Any:
    """Draw hard negatives -> batches: pairs that are hard negatives of each other share a batch."""
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(96, 2, generator=generator)
    distances = torch.cdist(x, x).fill_diagonal_(torch.inf)
    near = distances.topk(8, largest=False).indices
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 4.0))
    for axis, hardness, title in ((axes[0], 0.0, "random batches"), (axes[1], 1.0, "batches of hard negatives")):
        composed = compose_batches(near, 12, hardness=hardness, seed=0)
        for number, (first, last) in enumerate(zip(composed.offsets[:-1], composed.offsets[1:], strict=True)):
            ids = composed.ids[first:last].long()
            axis.scatter(*x[ids].T, s=44, color=BATCH_COLOURS[number % 10], lw=0)
        axis.set(xticks=[], yticks=[], title=f"{title}: a colour each")
        axis.set_aspect("equal")
    return figure


def training() -> Any:
    """Draw batches -> training: the similarities that the loss sees in a random batch and in a mined one."""
    x, _ = clustered_embeddings(2000, dim=64)
    labels = torch.arange(2000) // 2
    noise = torch.randn(1000, 64, generator=torch.Generator().manual_seed(0))
    x[1::2] = torch.nn.functional.normalize(x[::2] + 0.05 * noise, dim=1)
    sampler = LSHBatchSampler(labels, 48, bits=256)
    chosen = []
    for _ in range(2):
        for place, ids in enumerate(sampler):
            sampler.observe(ids, x[ids])
            if place == 0:
                chosen.append(ids)
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 4.0))
    criterion = InfoNCE(learnable=False, label_smoothing=0.0)
    for axis, ids, title in zip(axes, chosen, ("first epoch, random", "second epoch, mined"), strict=True):
        query, reference = x[ids[::2]], x[ids[1::2]]
        shown = axis.imshow(query @ reference.T, vmin=-0.2, vmax=1, cmap="Blues")
        axis.set(
            xticks=[],
            yticks=[],
            title=f"{title}: loss {float(criterion(query, reference)):.2f}",
            xlabel="references",
            ylabel="queries",
        )
    figure.colorbar(shown, ax=axes, label="cosine", shrink=0.8)
    return figure


def walk() -> Any:
    """Draw the files that an embedding crosses from `observe` to the next epoch's batches."""
    figure, axes = plt.subplots(figsize=(10.4, 4.3))
    axes.set(xlim=(0, 104), ylim=(0, 43))
    axes.set_axis_off()
    width, height, top, bottom = 14.6, 8.6, 30.0, 5.0
    observe = (
        ("samplers/epochs.py", "observe: check"),
        ("samplers/code_memory.py", "one stream per tower"),
        ("samplers/streams.py", "gather 1,024 rows"),
        ("hashing/signs.py", "rotate, center, signs"),
        ("samplers/arrivals.py", "copy to the host"),
        ("codes.py", "write by sample id"),
    )
    compose = (
        ("samplers/iteration.py", "yield one by one"),
        ("batches/", "lookalikes together"),
        ("samplers/pairing.py", "draw the pairs"),
        ("search/", "k nearest codes"),
        ("negatives/", "labels and filters"),
        ("samplers/composition.py", "compose the epoch"),
    )
    for row, y, forward, colour in ((observe, top, True, BLUE), (compose, bottom, False, GREEN)):
        for place, (name, does) in enumerate(row):
            x = 1 + place * 17.5
            axes.add_patch(Rectangle((x, y), width, height, facecolor="white", edgecolor=colour, lw=1.4))
            folder, slash, file = name.rpartition("/") if name.endswith(".py") else ("", "", name)
            centred = {"x": x + width / 2, "ha": "center", "va": "center"}
            axes.text(y=y + 7.0, s=folder + slash, fontsize=6.6, family="monospace", color="#7b8794", **centred)
            axes.text(y=y + 4.9, s=file, fontsize=7.8, family="monospace", weight="bold", **centred)
            axes.text(y=y + 2.1, s=does, fontsize=7.0, **centred)
            if place < len(row) - 1:
                ends = (x + width, x + 17.5) if forward else (x + 17.5, x + width)
                _arrow(axes, (ends[0], y + height / 2), (ends[1], y + height / 2))
    last = 1 + 5 * 17.5 + width / 2
    _arrow(axes, (last, top), (last, bottom + height))
    axes.text(last - 1.5, 21.9, "codes of the whole epoch", ha="right", va="center", fontsize=8.5)
    axes.text(1, top + height + 1.6, "every training step", fontsize=10, color=BLUE, weight="bold")
    axes.text(1, bottom + height + 1.6, "once per epoch", fontsize=10, color=GREEN, weight="bold")
    axes.text(1, 1.2, "the next batch", fontsize=9)
    return figure


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.1})


def _small_set() -> tuple[torch.Tensor, torch.Tensor]:
    """Make codes of 32 bits and labels of two dozen samples, four of each label."""
    x, _ = clustered_embeddings(24, dim=16, seed=2)
    labels = torch.arange(24) // 4
    x = torch.nn.functional.normalize(x + 0.8 * x[labels * 4], dim=1)  # samples of a label are alike
    hasher = SignHasher(dim=16, bits=32)
    hasher.update_mean(x)
    return hasher.encode(x), labels


def _rows(axes: Any, packed: torch.Tensor, ids: torch.Tensor, distances: torch.Tensor, colour: Any) -> None:
    """Draw a row of bits per sample, those that differ from the first in red."""
    bits = np.unpackbits(packed.numpy(), axis=1, bitorder="little")
    for place, (i, distance) in enumerate(zip(ids.tolist(), distances.tolist(), strict=True)):
        y = len(ids) - 1 - place
        _bits(axes, bits[i], y, colour(place), differing=bits[i] != bits[int(ids[0])])
        axes.text(33.2, y, f"{distance}", va="center", fontsize=10, weight="bold")
    axes.set(xlim=(-1.5, 46), ylim=(-0.7, len(ids) - 0.3))
    axes.set_axis_off()


def _bits(axes: Any, bits: Any, y: float, colour: Any, differing: Any = None) -> None:
    axes.add_patch(Rectangle((-1.1, y - 0.3), 0.6, 0.6, color=colour))
    for place, bit in enumerate(bits):
        differs = differing is not None and differing[place]
        edge, width = (RED, 1.8) if differs else (PALE, 0.8)
        fill = INK if bit else "white"
        axes.add_patch(Rectangle((place, y - 0.36), 0.8, 0.72, facecolor=fill, edgecolor=edge, lw=width))


PICTURES = {
    "codes": codes,
    "neighbours": neighbours,
    "negatives": negatives,
    "batches": batches,
    "training": training,
    "walk": walk,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
