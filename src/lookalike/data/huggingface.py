"""A `Dataset` of the Hugging Face library, or anything that gives rows by number and names its columns."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lookalike.data.augment import Augmentation
from lookalike.data.build import labelled_items, paired_items, paired_texts
from lookalike.data.folders import checksum, is_test
from lookalike.data.images import Size, checked_size, to_array
from lookalike.data.reading import Table
from lookalike.data.text_pairs import known_columns, listed, read_text_pairs
from lookalike.data.texts import split_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.data.retrieval import RetrievalData
    from lookalike.utils.arrays import Array


class Rows(Protocol):
    """What is asked of a data set; `datasets.Dataset` has it."""

    @property
    def column_names(self) -> Sequence[str]:
        """What the columns are called."""

    def __len__(self) -> int:
        """Number of rows."""

    def __getitem__(self, key: Any) -> Any:
        """A row by its number, a dictionary; a column by its name."""


class ImageColumn:
    """The images in a column of one data set or of several, one after another; `Items`."""

    def __init__(self, parts: Sequence[Rows], column: str, size: Size) -> None:
        self.parts, self.column, self.size = list(parts), column, checked_size(size)
        self._ends = np.cumsum([len(part) for part in self.parts])

    def __len__(self) -> int:
        """Number of images."""
        return int(self._ends[-1])

    def read(self, ids: Array) -> Tensor:
        """uint8 [n, 3, height, width].

        Raises:
            ValueError: A row cannot be read as an image; says which.
        """
        images = torch.empty((len(ids), 3, *self.size), dtype=torch.uint8)
        for i, number in enumerate(ids.tolist()):
            part = int(np.searchsorted(self._ends, number, side="right"))
            row = number - (int(self._ends[part - 1]) if part else 0)
            try:
                images[i] = torch.from_numpy(to_array(self.parts[part][row][self.column], self.size))
            except (OSError, ValueError, AttributeError, TypeError) as error:
                raise ValueError(f"row {row} of the column {self.column!r} is no image: {error}.") from None
        return images


def from_dataset(
    train: Rows,
    test: Rows | None = None,
    *,
    columns: tuple[str, str] | None = None,
    name: str = "dataset",
    test_share: float = 0.1,
    size: Size = 384,
    reference_size: Size | None = None,
    augment: bool = True,
) -> RetrievalData:
    """Make a data set of the rows of a Hugging Face `Dataset`.

    The columns decide what it is: an image and a label, two images, or two texts. Without `test`, a share of the
    labels, references or texts is held out.

    Args:
        train: The rows.
        test: Rows to test on, with the same columns.
        columns: Image and label, or query and reference; by default image and label, or query and reference, or
            anchor and positive.
        name: What it is called in results.
        test_share: Share to test on, where there is no `test`.
        size: Height and width images are brought to; of queries, where there are two.
        reference_size: Likewise, of references; by default the same.
        augment: Augment images in training.

    Raises:
        ValueError: There are no such columns.

    Examples:
        >>> class Rows(dict):
        ...     column_names = ("anchor", "positive")
        ...     def __len__(self):
        ...         return 40
        >>> rows = Rows(anchor=[f"question {i}" for i in range(40)], positive=[f"answer {i}" for i in range(40)])
        >>> from_dataset(rows, test_share=0.5).train.queries(torch.tensor([0]), seed=0)
        ['question 0']
    """
    names = list(train.column_names)
    first, second = found = columns or _known_columns(names)
    if any(column not in names for column in found):
        raise ValueError(f"the data set must have the columns {first} and {second}, got {listed(names)}.")
    parts = [train] if test is None else [train, test]
    if all(isinstance(train[column][0], (str, bytes, list, NoneType)) for column in found):
        return _texts(name, parts, found, test_share)
    rows = sum(len(part) for part in parts)
    images = ImageColumn(parts, first, size)
    given = np.arange(rows) < len(train)
    key = checksum(images.size, rows, found)
    augmentation = Augmentation() if augment else None
    if isinstance(train[second][0], (int, str, np.integer)):
        labels = [label for part in parts for label in part[second]]
        training = given if test is not None else np.array([not is_test(str(label), test_share) for label in labels])
        return labelled_items(name, name, images, training, np.ones(rows, bool), labels, augmentation, key)
    others = ImageColumn(parts, second, reference_size or size)
    training = given if test is not None else np.array([not is_test(str(row), test_share) for row in range(rows)])
    order = np.argsort(~training, kind="stable")
    return paired_items(name, name, images, others, order, order, int(training.sum()), augmentation, key)


def _known_columns(names: Sequence[str]) -> tuple[str, str]:
    if {"image", "label"} <= set(names):
        return "image", "label"
    queries, references = known_columns(names)
    if len(queries) == len(references) == 1:
        return queries[0], references[0]
    raise ValueError(
        f"the data set must have the columns image and label, or query and reference, got {listed(names)}; columns "
        "says which two to use."
    )


def _texts(name: str, parts: Sequence[Rows], columns: tuple[str, str], test_share: float) -> RetrievalData:
    sources = (name, f"{name} (test)")
    pairs = []
    for source, part in zip(sources, parts, strict=False):
        read = read_text_pairs(Table(source, list(part.column_names), part.__getitem__), columns)
        pairs.append(list(zip(read.queries, read.references, strict=True)))
    if len(pairs) == 2:
        return paired_texts(name, name, *pairs)
    return split_texts(name, name, pairs[0], None, test_share)
