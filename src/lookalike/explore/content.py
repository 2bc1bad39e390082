"""What the page shows of a sample: a text or a picture, in each tower, and the name of its label."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, ImageOps

from lookalike.explore.texts import TextIndex, members_of
from lookalike.report.gallery import picture
from lookalike.report.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from lookalike.utils.arrays import Array

LONGEST_TEXT = 600  # characters of a sample on the page
THUMBNAIL = 256  # pixels
PICTURES = ("image", "ink")
CHUNK = 4096  # samples whose texts are read at a time


class Content:
    """The samples of a data set as a reader sees them.

    Args:
        n: Number of samples or pairs.
        views: Returns the items of some ids for a tower, by the tower's name: a text each, or an image tensor
            `[channels, height, width]`, or a path of an image. The last tower is the one that is searched.
        labels: One label per sample, int64, or None.
        names: The name of each label, if labels have names.
    """

    def __init__(
        self,
        n: int,
        views: dict[str, Callable[[Tensor], Sequence[Any]]],
        labels: Array | None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.n, self._views, self.labels, self.names = n, views, labels, names
        self.towers = tuple(views)
        self.kinds = {tower: _kind(self._item(tower, 0)) for tower in self.towers}
        self._by_label = None if labels is None else members_of(labels)
        self._names = None if names is None else TextIndex(names)
        self._texts = {tower: TextIndex(self._all_texts(tower)) for tower in self.towers if self.kinds[tower] == "text"}

    @property
    def is_paired(self) -> bool:
        """Whether a sample is a pair of a query and a reference."""
        return len(self.towers) == 2

    def describe(self, i: int) -> dict[str, Any]:
        """Return what the page needs to show a sample; pictures are fetched by id."""
        label = None if self.labels is None else int(self.labels[i])
        views = {tower: self._text(tower, i) if kind == "text" else None for tower, kind in self.kinds.items()}
        name = str(label) if self.names is None or label is None else shortened(printable(self.names[label]), 120)
        return {"id": i, "label": None if label is None else name, "views": views}

    def picture(self, tower: str, i: int) -> bytes:
        """Return a sample's image as PNG.

        Raises:
            LookupError: The sample is not shown as a picture, or there is none.
        """
        if self.kinds.get(tower) not in PICTURES or not 0 <= i < self.n:
            raise LookupError(f"{tower} {i} has no picture.")
        item = self._item(tower, i)
        if isinstance(item, torch.Tensor):
            return picture(item)[0]
        return _thumbnail(item)

    def with_label(self, label: int, most: int) -> list[int]:
        """Return the first samples of a label."""
        if self._by_label is None:
            return []
        order, labels = self._by_label
        first, last = np.searchsorted(labels, [label, label + 1])
        return [int(i) for i in order[first : min(last, first + most)]]

    def search(self, query: str, most: int) -> list[int]:
        """Find samples by id (`#12`), by label (`label:name`), or by a part of a text or label; `12` is an id as well.

        Args:
            query: What was typed.
            most: The most samples to return.
        """
        query = " ".join(query.split())
        found: dict[int, None] = {}
        number = query.removeprefix("#")
        if number.isascii() and number.isdigit() and len(number) < 19 and int(number) < self.n:
            found[int(number)] = None
            if query.startswith("#"):
                return list(found)
        word, _, rest = query.partition(":")
        only_label = word.casefold() == "label" and bool(rest.strip())
        for label in self._labels_called(rest.strip() if only_label else query, numbers=only_label):
            found |= dict.fromkeys(self.with_label(label, most))
        if not only_label:
            for index in self._texts.values():
                found |= dict.fromkeys(index.find(query, most))
        return list(found)[:most]

    def _labels_called(self, name: str, *, numbers: bool) -> list[int]:
        if self._names is not None:
            return self._names.find(name, 20)
        return [int(name)] if numbers and name.isascii() and name.isdigit() and len(name) < 19 else []

    def _item(self, tower: str, i: int) -> Any:
        return self._views[tower](torch.tensor([i]))[0]

    def _text(self, tower: str, i: int) -> str:
        return shortened(printable(" ".join(str(self._item(tower, i)).split())), LONGEST_TEXT)

    def _all_texts(self, tower: str) -> Iterator[str]:
        for first in range(0, self.n, CHUNK):
            yield from map(str, self._views[tower](torch.arange(first, min(self.n, first + CHUNK))))


def _kind(item: Any) -> str:
    """Return how an item is shown: "image", "ink" (black on white), "text", or "nothing" but its id."""
    if item is None:
        return "nothing"
    if isinstance(item, torch.Tensor) and item.ndim == 3:
        return "ink" if len(item) == 1 else "image"
    return "image" if isinstance(item, Path) else "text"


def _thumbnail(path: Path) -> bytes:
    """Encode a small PNG of an image file.

    Raises:
        LookupError: It cannot be read as an image.
    """
    try:
        with Image.open(path) as opened:
            opened.draft("RGB", (THUMBNAIL, THUMBNAIL))
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise LookupError(f"{path.name} cannot be read as an image.") from error
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
