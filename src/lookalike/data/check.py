"""Check a data set: are its counts the official ones, are its images there, and do its pairs belong together?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lookalike.data import load_data
from lookalike.data.image_files import ImageFiles, unreadable
from lookalike.data.registry import data_set

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.retrieval import RetrievalData

PAIRS = 12  # on the contact sheet
HEIGHT = 128  # pixels of an image there
GAP = 8


class Count(NamedTuple):
    """A count of a data set, and the official one."""

    name: str
    found: int
    official: int | None

    @property
    def agrees(self) -> bool:
        """Whether the count is the official one, if there is one."""
        return self.official is None or self.found == self.official


class DataCheck(NamedTuple):
    """What `check_data` found."""

    data: RetrievalData
    counts: list[Count]
    bad: list[Path]  # images that are missing or, if all were decoded, damaged
    pairs: list[tuple[Any, Any]]  # a dozen: images uint8 [3, height, width], or texts

    @property
    def complete(self) -> bool:
        """Whether all counts agree and no image is bad."""
        return all(count.agrees for count in self.counts) and not self.bad


def check_data(
    name: str, root: str | Path | None = None, *, decode: bool = False, progress: bool = False, **options: Any
) -> DataCheck:
    """Load a data set, compare its counts with the official ones, and look for its images.

    Args:
        name: As in `load_data`.
        root: As in `load_data`.
        decode: Decode every image instead of only looking for its file.
        progress: Show progress bars on a terminal.
        options: Options of the reader.
    """
    data = load_data(name, root, progress=progress, **options)
    official = data_set(name).official
    counts = [Count(what, found, official.get(what)) for what, found in data.counts.items()]
    paths = sorted({path for items in _items(data) if isinstance(items, ImageFiles) for path in items.paths})
    bad = sorted(unreadable(paths, progress=progress)) if decode else [path for path in paths if not path.exists()]
    return DataCheck(data, counts, bad, [] if bad else sample_pairs(data))


def _items(data: RetrievalData) -> list[Any]:
    selections = [getattr(part, side, None) for part in (data.train, data.test) for side in ("query", "reference")]
    return [getattr(selection, "items", None) for selection in selections]


def sample_pairs(data: RetrievalData, number: int = PAIRS) -> list[tuple[Any, Any]]:
    """Return pairs of the training part, spread evenly over it, without augmentation."""
    part = data.train
    if part.pairs is not None:
        first = second = np.unique(np.linspace(0, part.pairs - 1, number).astype(np.int64))
    else:
        labels = np.asarray(part.labels)
        order = np.argsort(labels, kind="stable")
        starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
        sizes = np.diff(np.append(starts, len(order)))
        chosen = starts[sizes > 1]
        chosen = chosen[np.unique(np.linspace(0, len(chosen) - 1, number).astype(np.int64))] if len(chosen) else chosen
        first, second = order[chosen], order[chosen + 1]
    rows = part.plain("query", torch.from_numpy(first)), part.plain("reference", torch.from_numpy(second))
    return list(zip(*rows, strict=True))


def contact_sheet(pairs: list[tuple[Any, Any]], columns: int = 3) -> Image.Image:
    """Draw pairs of images side by side on one page.

    Raises:
        TypeError: The pairs are not images.
    """
    if not pairs or not all(isinstance(x, Tensor) for pair in pairs for x in pair):
        raise TypeError("a contact sheet takes pairs of images.")
    scaled = [[_scaled(x) for x in pair] for pair in pairs]
    width = max(sum(image.width for image in pair) for pair in scaled) + 2 * GAP
    rows = -(-len(scaled) // columns)
    page = Image.new("RGB", (columns * width + GAP, rows * (HEIGHT + GAP) + GAP), "white")
    for i, pair in enumerate(scaled):
        x, y = GAP + (i % columns) * width, GAP + (i // columns) * (HEIGHT + GAP)
        for image in pair:
            page.paste(image, (x, y))
            x += image.width
    return page


def _scaled(pixels: Tensor) -> Image.Image:
    """Make an image of uint8 [3, height, width], or of floats from 0 to 1 with one channel or three."""
    values = pixels if pixels.dtype == torch.uint8 else (pixels.clamp(0, 1) * 255).byte()
    image = Image.fromarray(values.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy())
    return image.resize((max(1, round(image.width * HEIGHT / image.height)), HEIGHT))
