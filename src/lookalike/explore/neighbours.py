"""Compare one sample with all others, in bits: everything that the page says about distances.

`hamming_topk` prepares its references for many queries, which takes longer than comparing a single one with all of
them; a plain scan answers sooner, and it knows every distance, by which the page filters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from lookalike.hashing import implied_cosine

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.utils.arrays import Array
    from lookalike.utils.lists import Lists

ROWS = 1 << 15  # codes compared at a time: 2 MB of 512 bits stay in the cache


class Found(NamedTuple):
    """Samples and their distances, nearest first."""

    ids: Array  # int64 [k]
    distances: Array  # int32 [k]
    total: int  # how many there are within the limits, shown or not


class Neighbours:
    """The codes of a data set.

    Args:
        query: Codes of the samples, uint8 `[n, bits / 8]`.
        reference: Codes of the references of paired data; None where samples are compared with each other.
        labels: int64 `[n]`; samples of one label are no negatives of each other.
        exclude: Further ids that are no negatives of each sample.
    """

    def __init__(self, query: Tensor, reference: Tensor | None, labels: Array, exclude: Lists | None = None) -> None:
        self.query, self.reference, self.labels = query, reference, labels
        self.exclude = exclude
        self.bits = 8 * query.shape[1]
        self._query = _words(query.numpy())
        self._reference = self._query if reference is None else _words(reference.numpy())

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._query)

    def distances(self, i: int, ids: Array | None = None) -> Array:
        """Return the distances of sample i to all samples, or to some, int32; of a query to references in pairs."""
        rows = self._reference if ids is None else self._reference[ids]
        out = np.empty(len(rows), np.int32)
        for first in range(0, len(rows), ROWS):
            part = slice(first, first + ROWS)
            np.bitwise_count(rows[part] ^ self._query[i]).sum(axis=1, dtype=np.int32, out=out[part])
        return out

    def negatives(self, i: int, labels: Array, k: int, *, low: int = 0, high: int | None = None) -> Found:
        """Return the k nearest samples of another label, as `hard_negatives` finds them.

        Args:
            i: The sample.
            labels: int64 `[n]`: the data's, or those that marks have merged.
            k: The most to return.
            low: The smallest distance that counts.
            high: The largest distance that counts; by default any.
        """
        distances = self.distances(i)
        allowed = (labels != labels[i]) & (distances >= low) & (distances <= (self.bits if high is None else high))
        if self.exclude is not None:
            offsets, ids = self.exclude
            allowed[ids[int(offsets[i]) : int(offsets[i + 1])].numpy()] = False
        left = np.flatnonzero(allowed)
        return _nearest(left, distances[left], k)

    def positives(self, i: int, labels: Array, k: int) -> Found:
        """Return samples of the same label, farthest first; of a pair, its own reference too."""
        ids = np.flatnonzero(labels == labels[i])
        if self.reference is None:
            ids = ids[ids != i]
        farthest = _nearest(ids, -self.distances(i, ids), k)
        return farthest._replace(distances=-farthest.distances)

    def cosines(self, distances: Array) -> Array:
        """Return the cosines that distances imply, of embeddings from which the mean was subtracted."""
        cosines: Array = implied_cosine(torch.from_numpy(np.asarray(distances, np.int64)), self.bits).numpy()
        return cosines


def _nearest(ids: Array, among: Array, k: int) -> Found:
    """Return the k nearest of some ascending ids, by their distances `among`; ties by the smaller id."""
    total = len(ids)
    if total > k:
        limit = np.partition(among, k - 1)[k - 1]
        ids, among = ids[among <= limit], among[among <= limit]
    order = np.argsort(among, kind="stable")[:k]  # ids ascend
    return Found(ids[order], among[order], total)


def _words(codes: Array) -> Array:
    """Return codes as uint64 `[n, words]`, padded with zeros, which change no distance."""
    padded = codes if codes.shape[1] % 8 == 0 else np.pad(codes, ((0, 0), (0, -codes.shape[1] % 8)))
    return np.ascontiguousarray(padded).view(np.uint64)
