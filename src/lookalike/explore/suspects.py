"""Rank pairs of samples by how likely they are false negatives, over a whole data set and in the background.

A pair of different labels is suspicious if the two are more similar than each is to its own nearest positive, on
average: by the cosines that codes imply. Both count, or every neighbour of an outlier would be suspected. A sample
without a positive counts as one at the median distance; without any positive, all pairs rank by their distance.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from lookalike.hashing import implied_cosine
from lookalike.negatives import Filters
from lookalike.negatives.hard import hard_negatives_of
from lookalike.negatives.spaces import HAMMING
from lookalike.search import hamming_topk
from lookalike.search.plain import popcount

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.explore.neighbours import Neighbours
    from lookalike.utils.arrays import Array

NEAREST = 3  # neighbours of each sample that may be suspected
CHUNK = 2048  # samples between two reports of progress
MOST = 10_000  # pairs to list
SMALL = 32  # classes up to this size are compared by shifting; larger ones are searched


class Suspects(NamedTuple):
    """Pairs, the most suspicious first."""

    pairs: Array  # int64 [m, 2]
    distances: Array  # int32 [m]
    positives: (
        Array  # int32 [m, 2], distance of each to its nearest positive, or the median; -1 if there is none at all
    )


class SuspectSearch:
    """A search that others can look at while it runs in a thread, and stop."""

    def __init__(self, neighbours: Neighbours, most: int = MOST) -> None:
        self._neighbours, self._most = neighbours, most
        self._stop = threading.Event()
        self.found: Suspects | None = None
        self.progress, self.problem = 0.0, ""

    def run(self) -> None:
        """Search until the end, or until `stop`."""
        try:
            self.found = find_suspects(self._neighbours, self._most, self._advance)
        except _StoppedError:
            pass
        except Exception as error:  # noqa: BLE001 - the page tells, and goes on without the list
            self.problem = str(error) or type(error).__name__

    def stop(self) -> None:
        """End the search as soon as the current chunk is done."""
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def _advance(self, progress: float) -> None:
        if self._stop.is_set():
            raise _StoppedError
        self.progress = progress


class _StoppedError(Exception):
    pass


def find_suspects(neighbours: Neighbours, most: int, advance: Callable[[float], None]) -> Suspects:
    """Find the most suspicious pairs of a data set.

    Args:
        neighbours: Its codes and labels.
        most: The most pairs to return.
        advance: Called with the fraction that is done, again and again; may raise to stop.
    """
    n, query, reference = len(neighbours), neighbours.query, neighbours.reference
    labels, filters = torch.from_numpy(neighbours.labels), Filters(exclude=neighbours.exclude)
    indices, distances = np.empty((n, NEAREST), np.int64), np.empty((n, NEAREST), np.int32)
    for first in range(0, n, CHUNK):
        rows = range(first, min(n, first + CHUNK))
        found = hard_negatives_of(rows, HAMMING, query, labels, NEAREST, reference=reference, filters=filters)
        distances[rows.start : rows.stop], indices[rows.start : rows.stop] = (part.numpy() for part in found)
        advance(0.9 * rows.stop / n)
    positives = nearest_positives(neighbours, advance)
    return _ranked(indices, distances, positives, neighbours.bits, most)


def nearest_positives(neighbours: Neighbours, advance: Callable[[float], None]) -> Array:
    """Return the distance of every sample to its nearest positive, int32 `[n]`, -1 for none.

    Sorted by label, the members of a class stand together, so that a few comparisons of the whole array with itself,
    shifted, cover all pairs of a small class.
    """
    query, reference = neighbours.query, neighbours.reference
    if reference is not None:
        return popcount(query ^ reference).sum(1, dtype=torch.int32).numpy()
    order = np.argsort(neighbours.labels, kind="stable")
    labels, far = neighbours.labels[order], np.int32(neighbours.bits + 1)
    nearest = np.full(len(order), far, np.int32)  # in that order
    starts = np.flatnonzero(np.diff(labels, prepend=labels[:1] - 1))
    sizes = np.diff(starts, append=len(order))
    ids = torch.from_numpy(order)
    for shift in range(1, min(SMALL, int(sizes.max()))):
        near = np.flatnonzero(labels[shift:] == labels[:-shift])
        for part in np.array_split(near, max(1, len(near) // (1 << 16))):
            distances = popcount(query[ids[part]] ^ query[ids[part + shift]]).sum(1, dtype=torch.int32).numpy()
            nearest[part] = np.minimum(nearest[part], distances)
            nearest[part + shift] = np.minimum(nearest[part + shift], distances)
        advance(0.9 + 0.05 * shift / SMALL)
    for start, size in zip(starts[sizes > SMALL].tolist(), sizes[sizes > SMALL].tolist(), strict=True):
        codes = query[ids[start : start + size]]
        itself = torch.arange(size + 1), torch.arange(size)
        nearest[start : start + size] = hamming_topk(codes, codes, 1, exclude=itself).distances[:, 0].numpy()
        advance(0.95 + 0.05 * start / len(order))
    result = np.empty_like(nearest)
    result[order] = np.where(nearest == far, -1, nearest)
    return result


def _ranked(indices: Array, distances: Array, positives: Array, bits: int, most: int) -> Suspects:
    """Rank pairs by how much more similar they are than their positives; each pair counts once."""
    known = positives >= 0
    against = np.where(known, positives, int(np.median(positives[known])) if known.any() else -1).astype(np.int32)
    anchors, places = np.nonzero(indices >= 0)
    others, apart = indices[anchors, places], distances[anchors, places]
    gap = _cosines(apart, bits)
    if known.any():
        similarity = _cosines(against, bits)
        gap -= (similarity[anchors] + similarity[others]) / 2
        suspicious = gap > 0
        anchors, others, apart, gap = (each[suspicious] for each in (anchors, others, apart, gap))
    order = np.lexsort((others, anchors, -gap))
    pairs, apart = np.stack([anchors, others], axis=1)[order], apart[order]
    _, once = np.unique(pairs.min(axis=1) * len(indices) + pairs.max(axis=1), return_index=True)
    chosen = np.sort(once)[:most]
    return Suspects(pairs[chosen], apart[chosen], against[pairs[chosen]])


def _cosines(distances: Array, bits: int) -> Array:
    cosines: Array = implied_cosine(torch.from_numpy(distances.astype(np.int64)), bits).numpy()
    return cosines
