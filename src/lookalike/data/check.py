"""`lookalike data check`: is a data set complete, and do its pairs show the same thing?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lookalike.data import cvact, cvusa, inshop, load_data, msmarco, sop, vigor
from lookalike.data.images import ImageFiles, unreadable

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.retrieval import RetrievalData

OFFICIAL = {
    "sop": sop.OFFICIAL,
    "inshop": inshop.OFFICIAL,
    "cvusa": cvusa.OFFICIAL,
    "cvact": cvact.OFFICIAL,
    "cvact-test": cvact.OFFICIAL_TEST,
    "vigor-same": vigor.OFFICIAL_SAME,
    "vigor-cross": vigor.OFFICIAL_CROSS,
    "msmarco": msmarco.OFFICIAL,
}
PAIRS = 12  # on the contact sheet
HEIGHT = 128  # pixels of an image there
GAP = 8


class Count(NamedTuple):
    """A row of the table."""

    name: str
    found: int
    official: int | None

    @property
    def agrees(self) -> bool:
        """Nothing official says otherwise."""
        return self.official is None or self.found == self.official


class Report(NamedTuple):
    """What was found."""

    data: RetrievalData
    counts: list[Count]
    bad: list[Path]  # images that are missing or, if all were decoded, cannot be
    pairs: list[tuple[Any, Any]]  # a dozen: images uint8 [3, height, width], or texts

    @property
    def complete(self) -> bool:
        """All counts agree and no image is bad."""
        return all(count.agrees for count in self.counts) and not self.bad


def check_data(
    name: str, root: str | Path | None, *, decode: bool = False, progress: bool = False, **options: Any
) -> Report:
    """Read a data set, compare its counts with the official ones and look for its images.

    Args:
        name: As in `load_data`.
        root: Likewise.
        decode: Decode every image, not only look whether it is there.
        progress: Show bars on a terminal.
        options: For the reader.
    """
    data = load_data(name, root, progress=progress, **options)
    official = OFFICIAL.get(name, {})
    counts = [Count(what, found, official.get(what)) for what, found in data.counts.items()]
    paths = sorted({path for items in _items(data) if isinstance(items, ImageFiles) for path in items.paths})
    bad = sorted(unreadable(paths, progress=progress)) if decode else [path for path in paths if not path.exists()]
    return Report(data, counts, bad, [] if bad else sample_pairs(data))


def _items(data: RetrievalData) -> list[Any]:
    parts = (data.train, data.test)
    return [getattr(part, f"{tower}_items", None) for part in parts for tower in ("query", "reference")]


def sample_pairs(data: RetrievalData, number: int = PAIRS) -> list[tuple[Any, Any]]:
    """Some pairs of the training part, spread over it, without augmentation."""
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
    """Pairs of images next to each other on one page.

    Raises:
        TypeError: They are no images.
    """
    if not pairs or not all(isinstance(x, Tensor) for pair in pairs for x in pair):
        raise TypeError("a contact sheet is made of pairs of images.")
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
    """uint8 [3, height, width], or floats from 0 to 1 with one channel or three -> an image."""
    values = pixels if pixels.dtype == torch.uint8 else (pixels.clamp(0, 1) * 255).byte()
    image = Image.fromarray(values.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy())
    return image.resize((max(1, round(image.width * HEIGHT / image.height)), HEIGHT))
