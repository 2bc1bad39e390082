"""Data sets from a Hugging Face `Dataset`, or anything that returns rows by number and names its columns."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lookalike.data.augment import Augmentation
from lookalike.data.build import labelled_items, paired_items, paired_texts, split_texts
from lookalike.data.fingerprints import checksum, training_rows
from lookalike.data.image_files import Size, checked_size, to_array
from lookalike.data.parts import Selection
from lookalike.data.table_files import Table
from lookalike.data.text_pairs import known_columns, listed
from lookalike.data.text_tuples import PASSAGES, holds_passages, read_text_tuples
from lookalike.utils.lengthless import refuse_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.data.retrieval import RetrievalData
    from lookalike.utils.arrays import Array


class RowSource(Protocol):
    """The part of `datasets.Dataset` that is used here."""

    @property
    def column_names(self) -> Sequence[str]:
        """The names of the columns."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, key: Any) -> Any:
        """Return a row by its number, as a dictionary, or a column by its name."""


class ImageColumn:
    """The images in a column of one or more data sets, one after another; `Items`."""

    def __init__(self, parts: Sequence[RowSource], column: str, size: Size) -> None:
        self.parts, self.column, self.size = list(parts), column, checked_size(size)
        self._ends = np.cumsum([len(part) for part in self.parts])

    def __len__(self) -> int:
        """Return the number of images."""
        return int(self._ends[-1])

    def read(self, ids: Array) -> Tensor:
        """Return images by number, uint8 `[n, 3, height, width]`.

        Raises:
            ValueError: A row holds no image; the message names it.
        """
        images = torch.empty((len(ids), 3, *self.size), dtype=torch.uint8)
        for i, number in enumerate(ids.tolist()):
            part = int(np.searchsorted(self._ends, number, side="right"))
            row = number - (int(self._ends[part - 1]) if part else 0)
            try:
                images[i] = torch.from_numpy(to_array(self.parts[part][row][self.column], self.size))
            except (OSError, ValueError, AttributeError, TypeError) as error:
                raise ValueError(f"row {row} of the column {self.column!r} is not an image: {error}.") from None
        return images


def from_dataset(
    train: RowSource,
    test: RowSource | None = None,
    *,
    columns: tuple[str, str] | None = None,
    name: str = "dataset",
    test_share: float = 0.1,
    size: Size = 384,
    reference_size: Size | None = None,
    augment: bool = True,
    negatives: int | None = None,
) -> RetrievalData:
    """Make a data set from the rows of a Hugging Face `Dataset`.

    The columns decide what it is: an image and a label, two images, or two texts.

    Args:
        train: Rows to train on and, without `test`, to test on.
        test: Rows to test on, with the same columns. Without them, a fraction of the labels, references or texts is
            held out.
        columns: Image and label, or query and reference; by default those with known names: image and label, or query
            and reference, or anchor and positive.
        name: What results call it.
        test_share: Fraction to hold out; ignored if there is a `test`.
        size: Height and width to resize images to; of queries, in pairs.
        reference_size: Likewise for references; by default `size`.
        augment: Augment images in training.
        negatives: Number of explicit negatives of each pair of texts to use, as in `load_data("texts")`; by default
            all that the columns hold.

    Raises:
        ValueError: There are no such columns, or there are no `negatives`.
        TypeError: `train` or `test` is a stream.

    Examples:
        >>> class Rows(dict):
        ...     column_names = ("anchor", "positive")
        ...     def __len__(self):
        ...         return 40
        >>> rows = Rows(anchor=[f"question {i}" for i in range(40)], positive=[f"answer {i}" for i in range(40)])
        >>> from_dataset(rows, test_share=0.5).train.queries(torch.tensor([0]), seed=0)
        ['question 0']
    """
    refuse_stream("train", train, "a data set to train on needs rows by number")
    refuse_stream("test", test, "a data set to test on needs rows by number")
    names = list(train.column_names)
    first, second = found = columns or _known_columns(names)
    if any(column not in names for column in found):
        raise ValueError(f"the data set must have the columns {first} and {second}, got {listed(names)}.")
    parts = [train] if test is None else [train, test]
    if all(isinstance(train[column][0], (str, bytes, list, NoneType)) for column in found):
        return _texts(name, parts, columns if holds_passages(names) else found, test_share, negatives)
    if negatives:
        raise ValueError("negatives= is for pairs of texts; give images theirs with data.explicit.with_negatives.")
    rows, given = sum(len(part) for part in parts), None if test is None else len(train)
    images = ImageColumn(parts, first, size)
    key = checksum(images.size, rows, found)
    augmentation = Augmentation() if augment else None
    if isinstance(train[second][0], (int, str, np.integer)):
        labels = [label for part in parts for label in part[second]]
        training = _training(labels, test_share, given)
        return labelled_items(name, name, images, training, np.ones(rows, bool), labels, augmentation, key)
    training = _training(range(rows), test_share, given)
    order = np.argsort(~training, kind="stable")
    query = Selection(images, order)
    reference = Selection(ImageColumn(parts, second, reference_size or size), order)
    return paired_items(name, name, query, reference, int(training.sum()), augmentation, key)


def _known_columns(names: Sequence[str]) -> tuple[str, str]:
    if {"image", "label"} <= set(names):
        return "image", "label"
    if holds_passages(names):
        return "query", PASSAGES[0]
    queries, references = known_columns(names)
    if len(queries) == len(references) == 1:
        return queries[0], references[0]
    raise ValueError(
        f"the data set must have the columns image and label, or query and reference, got {listed(names)}; name the "
        "two to use with columns=."
    )


def _training(names: Sequence[Any], test_share: float, given: int | None) -> Array:
    """Return for each row whether to train on it, bool `[n]`: the first ones, if their number is given."""
    return np.array(training_rows(names, test_share)) if given is None else np.arange(len(names)) < given


def _texts(
    name: str,
    parts: Sequence[RowSource],
    columns: tuple[str, str] | None,
    test_share: float,
    negatives: int | None,
) -> RetrievalData:
    named = zip((name, f"{name} (test)"), parts, (negatives, 0), strict=False)
    train, *test = [
        read_text_tuples(Table(source, list(part.column_names), part.__getitem__), columns, number)
        for source, part, number in named
    ]
    if test:
        return paired_texts(name, name, train.pairs, test[0].pairs, negatives=train.negatives)
    return split_texts(name, name, train.pairs, test_share, negatives=train.negatives)
