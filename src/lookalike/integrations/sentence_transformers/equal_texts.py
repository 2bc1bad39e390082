"""Keep pairs of texts apart that have a text in common."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.negatives.same import merge_labels, read_same
from lookalike.samplers import LSHBatchSampler
from lookalike.utils.components import connected_rows
from lookalike.utils.tensors import checked_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lookalike.utils.arrays import Array

logger = logging.getLogger("lookalike")

TRIES = 64  # places to try for a pair before it stays where it is


def pair_sampler(
    dataset: Any, columns: list[str], labels: Any, batch_size: int, *, same: Any = None, **options: Any
) -> LSHBatchSampler:
    """Make a sampler of the rows of a `datasets.Dataset` in which no text is a negative of itself.

    Args:
        dataset: Anchors, positives and further negatives in its columns.
        columns: Their names, in this order.
        labels: Integers, one per row, that keep more apart, or None.
        batch_size: Rows per batch.
        same: Pairs of rows that a person marked as the same, or None.
        options: As in `LSHBatchSampler`.
    """
    dataset = dataset.with_format(None)
    is_text = [getattr(dataset.features[column], "dtype", "") in ("string", "large_string") for column in columns]
    numbers = [_numbers(_values(dataset, column)) for column, text in zip(columns, is_text, strict=True) if text]
    if not all(is_text[:2]):  # images or other values, whose equality says little
        numbers = []
    own = None if labels is None else np.unique(checked_labels("labels", labels, len(dataset)), return_inverse=True)[1]
    if same is not None and len(marked := read_same(same, len(dataset))):
        own = merge_labels(own, marked, len(dataset))
    if not numbers:
        return LSHBatchSampler(own, batch_size, pairs=len(dataset), **options)
    members = np.stack(numbers[:2], axis=1)
    groups = connected_rows(members)
    too_large = np.bincount(groups)[groups] > len(dataset) // batch_size  # more pairs than there are batches
    groups[too_large] = len(dataset) + np.unique(members[:, 1], return_inverse=True)[1][too_large]
    if own is not None:
        groups = connected_rows(np.stack([groups, -1 - own], axis=1))
    if len(numbers) > 2 or too_large.any():
        negatives = np.stack(numbers[2:], axis=1) if len(numbers) > 2 else np.empty((len(dataset), 0), np.int64)
        options["rearrange"] = EqualTextsApart(negatives, members)
    return LSHBatchSampler(groups, batch_size, pairs=len(dataset), **options)


def _values(dataset: Any, column: str) -> Iterator[Any]:
    for rows in dataset.select_columns([column]).iter(1024):
        yield from rows[column]


def _numbers(values: Iterable[Any]) -> Array:
    """Number the values, equal ones alike: int64 [n]. 8 bytes each, however long the texts are."""
    digests = b"".join(hashlib.blake2b(str(value).encode(), digest_size=8).digest() for value in values)
    return np.frombuffer(digests, np.int64)


class EqualTextsApart:
    """Rearranges batches of pairs until no pair has a text in common with another of its batch, negatives included.

    Labels cannot always say this. In sets whose negatives were mined, every negative is some other pair's positive, and
    almost all pairs would be connected into one label; in others, chains of pairs that share an anchor or a positive
    are longer than there are batches. So pairs that conflict swap places with pairs of other batches instead.

    Args:
        negatives: Numbers of the texts that are each pair's own negatives, int64 `[pairs, m]`.
        members: Numbers of its anchor and positive, int64 `[pairs, 2]`.
    """

    def __init__(self, negatives: Array, members: Array) -> None:
        everything = np.column_stack([members, negatives])
        numbers = np.unique(everything, return_inverse=True)[1].reshape(everything.shape)
        self._members, self._negatives = numbers[:, :2], numbers[:, 2:]
        self._warned = False

    def __call__(self, ids: Array, offsets: Array, labels: Array | None, rng: np.random.Generator) -> None:
        """Swap conflicting pairs of an epoch's batches in place, as a sampler's `rearrange`."""
        met = 0
        for batch in range(len(offsets) - 1):
            first, last = int(offsets[batch]), int(offsets[batch + 1])
            for place in first + self._suspects(ids[first:last]):
                if self._conflicts(ids[place], np.delete(ids[first:last], place - first)):
                    met += not self._swap(ids, offsets, labels, int(place), batch, rng)
        if met and not self._warned:
            self._warned = True
            logger.warning(
                "%d pairs share a batch with a pair that has a text in common with them, because no other place was "
                "free; smaller batches leave more places.",
                met,
            )

    def _suspects(self, pairs: Array) -> Array:
        """Find the places in a batch of pairs that may conflict with another; few, and quickly found."""
        members = self._members[pairs]
        values, times = np.unique(members, return_counts=True)
        shared = np.isin(members, values[times > 1]).any(axis=1)
        found: Array = np.flatnonzero(shared | np.isin(self._negatives[pairs], values).any(axis=1))
        return found

    def _conflicts(self, pair: int, others: Array) -> bool:
        """Return whether a text of the pair is one of the others', unless both have it as a negative."""
        theirs = self._members[others][:, :, None]
        return bool(
            (theirs == self._members[pair]).any()
            or (theirs == self._negatives[pair]).any()
            or (self._negatives[others][:, :, None] == self._members[pair]).any()
        )

    def _swap(
        self, ids: Array, offsets: Array, labels: Array | None, place: int, batch: int, rng: np.random.Generator
    ) -> bool:
        """Swap a pair with one of another batch where neither conflicts; return whether one was found."""
        here = np.delete(ids[offsets[batch] : offsets[batch + 1]], place - offsets[batch])
        for other in rng.integers(len(ids), size=TRIES):
            there_batch = int(np.searchsorted(offsets, other, side="right")) - 1
            if there_batch == batch:
                continue
            there = np.delete(ids[offsets[there_batch] : offsets[there_batch + 1]], other - offsets[there_batch])
            mine, yours = ids[place], ids[other]
            if labels is not None and (labels[mine] in labels[there] or labels[yours] in labels[here]):
                continue
            if not self._conflicts(mine, there) and not self._conflicts(yours, here):
                ids[place], ids[other] = yours, mine
                return True
        return False
