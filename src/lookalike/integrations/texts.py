"""Which pairs of texts must not meet in a batch, because a text of one is a text of the other."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.checks import checked_labels
from lookalike.samplers import LSHBatchSampler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

logger = logging.getLogger("lookalike")

Array = np.ndarray[Any, Any]

TRIES = 64  # places that are tried for a pair before it stays where it is


def pair_sampler(dataset: Any, columns: list[str], labels: Any, batch_size: int, **options: Any) -> LSHBatchSampler:
    """A sampler of the rows of a `datasets.Dataset` in which no text of one pair is a negative of the same text.

    Args:
        dataset: Anchors, positives and further negatives in its columns.
        columns: Their names, in this order.
        labels: Integers, one per row, that keep more apart, or None.
        batch_size: Rows per batch.
        options: As in `LSHBatchSampler`.
    """
    dataset = dataset.with_format(None)
    is_text = [getattr(dataset.features[column], "dtype", "") in ("string", "large_string") for column in columns]
    numbers = [_numbers(_values(dataset, column)) for column, text in zip(columns, is_text, strict=True) if text]
    if not all(is_text[:2]):  # images or other things, of which equality says little
        numbers = []
    members = np.stack(numbers[:2], axis=1) if numbers else np.empty((len(dataset), 0), np.int64)
    keeping_apart = members
    if labels is not None:
        given = checked_labels("labels", labels, len(dataset)).tolist()
        keeping_apart = np.column_stack([members, _numbers(("label", label) for label in given)])
    groups = connected(keeping_apart) if keeping_apart.size else None
    if len(numbers) > 2:
        negatives = np.stack(numbers[2:], axis=1)
        return TextPairBatchSampler(negatives, members, groups, batch_size, pairs=len(dataset), **options)
    return LSHBatchSampler(groups, batch_size, pairs=len(dataset), **options)


def _values(dataset: Any, column: str) -> Iterator[Any]:
    for rows in dataset.select_columns([column]).iter(1024):
        yield from rows[column]


def _numbers(values: Iterable[Any]) -> Array:
    """A number for each value, equal for equal ones: int64 [n]. 8 bytes each, however long the texts are."""
    digests = b"".join(hashlib.blake2b(str(value).encode(), digest_size=8).digest() for value in values)
    return np.frombuffer(digests, np.int64)


def connected(members: Array) -> Array:
    """One label for rows that share a member, directly or through others, whichever column it is in: int64 [n].

    Args:
        members: Integers `[n, columns]`.

    Example:
        >>> import numpy as np
        >>> connected(np.array([[5, 6], [6, 7], [8, 9], [9, 9]])).tolist()
        [0, 0, 2, 2]
    """
    values, places = np.unique(members, return_inverse=True)
    places = places.reshape(members.shape)
    labels = np.arange(len(members))
    while True:  # the smallest label spreads through the members until nothing changes
        least = np.full(len(values), len(labels))
        np.minimum.at(least, places, labels[:, None])
        smallest = least[places].min(axis=1)
        smallest = smallest[smallest]
        if np.array_equal(smallest, labels):
            return labels
        labels = smallest


class TextPairBatchSampler(LSHBatchSampler):
    """An `LSHBatchSampler` of pairs with further negatives, none of which is a text of another pair in its batch.

    Labels cannot say this: in sets whose negatives were mined, every negative is some other pair's positive, and all
    pairs would be connected to one label. So pairs that disagree change places with pairs of other batches instead.

    Args:
        negatives: Numbers of the texts that are each pair's own negatives, int64 `[pairs, m]`.
        members: Numbers of its anchor and positive, int64 `[pairs, 2]`.
        arguments: As in `LSHBatchSampler`.
        options: Likewise.
    """

    def __init__(self, negatives: Array, members: Array, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._members = members
        self._negatives = np.where(np.isin(negatives, members), negatives, -1)  # others harm nobody
        self._warned_of_meetings = False

    def _compose_all(self) -> list[Tensor]:
        order, offsets = super()._compose_all()
        if (self._negatives == -1).all():
            return [order, offsets]
        ids = order.numpy().copy()
        met = self._separate(ids, offsets.numpy(), np.random.default_rng([self.seed, self.epoch, 1]))
        if met and not self._warned_of_meetings:
            self._warned_of_meetings = True
            logger.warning(
                "%d pairs share a batch with a pair whose text is their negative: no other place was found; "
                "smaller batches leave more places.",
                met,
            )
        return [torch.from_numpy(ids), offsets]

    def _separate(self, ids: Array, offsets: Array, rng: np.random.Generator) -> int:
        """Exchange pairs that harm another of their batch; how many found no place."""
        met = 0
        for batch in range(len(offsets) - 1):
            first, last = int(offsets[batch]), int(offsets[batch + 1])
            if not np.isin(self._negatives[ids[first:last]], self._members[ids[first:last]]).any():
                continue
            for place in range(first, last):
                if self._harms(ids[place], np.delete(ids[first:last], place - first)):
                    met += not self._exchange(ids, offsets, place, batch, rng)
        return met

    def _harms(self, pair: int, others: Array) -> bool:
        own, theirs = self._negatives[pair], self._negatives[others]
        return bool(
            ((self._members[others][:, :, None] == own) & (own != -1)).any()
            or (theirs[:, :, None] == self._members[pair]).any()
        )

    def _exchange(self, ids: Array, offsets: Array, place: int, batch: int, rng: np.random.Generator) -> bool:
        labels = self._batch_labels()
        here = np.delete(ids[offsets[batch] : offsets[batch + 1]], place - offsets[batch])
        for other in rng.integers(len(ids), size=TRIES):
            there_batch = int(np.searchsorted(offsets, other, side="right")) - 1
            if there_batch == batch:
                continue
            there = np.delete(ids[offsets[there_batch] : offsets[there_batch + 1]], other - offsets[there_batch])
            mine, yours = ids[place], ids[other]
            if labels is not None and (labels[mine] in labels[there] or labels[yours] in labels[here]):
                continue
            if not self._harms(mine, there) and not self._harms(yours, here):
                ids[place], ids[other] = yours, mine
                return True
        return False
