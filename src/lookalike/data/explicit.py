"""Explicit negatives: add them to a data set of pairs, and find those that are not negatives of a query."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.data.fingerprints import checksum
from lookalike.data.parts import TrainingItems
from lookalike.utils.lists import Lists, lists_among, lists_mask

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lookalike.data.retrieval import RetrievalData, TrainingPart
    from lookalike.utils.arrays import Array

UNKNOWN, MISSING = -1, -2  # in place of a pair: no pair has this reference; there is no negative


def with_negatives(data: RetrievalData, negative_ids: Any) -> RetrievalData:
    """Give every training pair explicit negatives: references of other training pairs, such as mined ones.

    Args:
        data: A data set of pairs of texts or images.
        negative_ids: The pairs whose references are the negatives, integers `[pairs, m]`; -1 where a pair has fewer.

    Raises:
        TypeError: `negative_ids` are not integers, or the data are not made of pairs that are read by number.
        ValueError: `negative_ids` do not fit the pairs, or the data have explicit negatives already.

    Examples:
        >>> from lookalike.data.build import paired_texts
        >>> pairs = [("one", "1"), ("two", "2"), ("three", "3"), ("four", "4")]
        >>> data = with_negatives(paired_texts("numbers", "numbers", pairs, pairs), [[1], [0], [3], [-1]])
        >>> data.train.num_negatives, data.train.negatives(torch.tensor([0, 2]), seed=0)
        (1, ['2', '4'])
    """
    part = data.train
    if not isinstance(part, TrainingItems) or part.pairs is None:
        raise TypeError(f"explicit negatives need pairs of texts or images, and {data.name} has none.")
    if part.num_negatives:
        raise ValueError(f"{data.name} already has {part.num_negatives} explicit negatives per pair.")
    ids = checked_negative_ids(negative_ids, part.pairs)
    items = np.where(ids < 0, -1, part.reference.ids[np.maximum(ids, 0)])
    return replace(
        data,
        description=f"{data.description}; {ids.shape[1]} explicit negative{'s' if ids.shape[1] > 1 else ''} per pair",
        checksum=checksum(data.checksum, ids),
        train=replace(part, negative_items=items),
        counts={**data.counts, "negatives per pair": ids.shape[1]},
        source=None,
    )


def load_negative_ids(path: Path, pairs: int) -> Array:
    """Load row numbers of pairs from a .npy file, as `with_negatives` takes them.

    Raises:
        ValueError: The file holds something else.
    """
    try:
        ids = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} cannot be read as a NumPy array: {error}.") from None
    try:
        return checked_negative_ids(ids, pairs)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def checked_negative_ids(negative_ids: Any, pairs: int) -> Array:
    """Return numbers of pairs, int64 `[pairs, m]`, -1 for none."""
    ids = np.asarray(negative_ids.cpu() if isinstance(negative_ids, Tensor) else negative_ids)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"negative_ids must be integers, got {ids.dtype}.")
    if ids.ndim != 2 or len(ids) != pairs or ids.shape[1] == 0:
        raise ValueError(f"negative_ids must have the shape [{pairs}, m], a row per pair, got {list(ids.shape)}.")
    if int(ids.min()) < -1 or int(ids.max()) >= pairs:
        raise ValueError(
            f"negative_ids must be pairs from 0 to {pairs - 1}, or -1 for none, got {int(ids.min())} to "
            f"{int(ids.max())}."
        )
    return ids.astype(np.int64)


def numbered_negatives(texts: list[str], negatives: Sequence[Sequence[str]]) -> tuple[list[str], Array]:
    """Number negatives among the texts, which grow by those that are new: all texts, and int64 `[pairs, m]`.

    Examples:
        >>> numbered_negatives(["a", "b"], [["b", "c"], ["a"]])
        (['a', 'b', 'c'], array([[ 1,  2],
               [ 0, -1]]))
    """
    numbers = {text: i for i, text in enumerate(texts)}
    items = np.full((len(negatives), max(map(len, negatives), default=0)), -1, np.int64)
    for row, own in enumerate(negatives):
        items[row, : len(own)] = [numbers.setdefault(text, len(numbers)) for text in own]
    return list(numbers), items


class ExplicitNegatives:
    """Knows which explicit negatives in a batch are not negatives of one of its queries.

    These are items that answer the query: its own reference, or that of a pair with its label; references that
    `exclude` names; and what fills the place of a negative that a pair lacks.

    Args:
        part: The training part.
        exclude: Ids that are not negatives of each pair, besides those with its label.
    """

    def __init__(self, part: TrainingPart, exclude: Lists | None = None) -> None:
        n = len(part.labels) if part.labels is not None else int(part.pairs or 0)
        self.labels = torch.arange(n) if part.labels is None else part.labels.cpu()
        self.exclude = exclude
        references, negatives = part.item_numbers(torch.arange(n))
        ordered, ids = references.sort(stable=True)
        places = torch.searchsorted(ordered, negatives).clamp(max=n - 1)
        # For each negative the first pair that has it as its reference, int64 [n, m].
        self.ids = torch.where(ordered[places] == negatives, ids[places], UNKNOWN)
        self.ids[negatives < 0] = MISSING
        self.firsts = ids[torch.searchsorted(ordered, references)]  # likewise for each pair's own reference, int64 [n]
        self.hidden = None if exclude is None else (exclude[0], self.firsts[exclude[1]])

    def excluded(self, queries: Tensor, references: Tensor) -> Lists:
        """Return what each query of a batch excludes, as positions among its references and then its negatives."""
        ids = self.ids[queries].flatten()
        known = ids >= 0
        mask = (self.labels[queries][:, None] == self.labels[ids.clamp(min=0)]) & known
        mask |= (self.firsts[queries][:, None] == ids) | (ids == MISSING)
        before = torch.zeros(len(queries), len(references), dtype=torch.bool)
        if self.exclude is not None and self.hidden is not None:
            cpu = torch.device("cpu")
            before = lists_mask(lists_among(self.exclude, queries, references), len(references), cpu)
            columns, places = torch.unique(ids[known], return_inverse=True)
            mask[:, known] |= lists_mask(lists_among(self.hidden, queries, columns), len(columns), cpu)[:, places]
        both = torch.cat([before, mask], dim=1)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), both.sum(1).cumsum(0)])
        return offsets, both.nonzero()[:, 1]
