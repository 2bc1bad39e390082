"""Number texts by first appearance without keeping them: 24 bytes of memory per distinct text."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.utils.arrays import Array


class Run(NamedTuple):
    """Texts that are numbered, sorted by the first half of their hash."""

    high: Array  # uint64 [n], sorted
    low: Array  # uint64 [n]
    numbers: Array  # int64 [n]


class Numbering:
    """Numbers of texts, in the order in which they first appear; equal texts share a number.

    Texts are told apart by a hash of 128 bits: among a billion texts, two different ones share a hash with a
    probability of 10^-21. Hashes stay in sorted runs, each at least twice as long as the next, so a text is compared
    with a few of them, and 24 bytes per distinct text are all that is kept; while two runs are merged it is twice that.

    Examples:
        >>> numbering = Numbering()
        >>> [part.tolist() for part in numbering.number(["b", "a", "b"])]
        [[0, 1, 0], [0, 1]]
        >>> [part.tolist() for part in numbering.number(["c", "a", "c"])]
        [[2, 1, 2], [0]]
    """

    def __init__(self) -> None:
        self.count = 0
        self._runs: list[Run] = []

    def number(self, texts: Sequence[str]) -> tuple[Array, Array]:
        """Return the number of each text, int64 [n], and the places of those that are new, in order, int64 [m]."""
        high, low = hashed(texts)
        by_hash = np.lexsort((low, high))
        repeated = np.zeros(len(by_hash), bool)
        repeated[1:] = (np.diff(high[by_hash]) == 0) & (np.diff(low[by_hash]) == 0)
        firsts = by_hash[~repeated]  # sorting is stable: the first of several equal ones
        numbers = self._known(high[firsts], low[firsts])
        fresh = np.flatnonzero(numbers < 0)
        by_place = fresh[np.argsort(firsts[fresh])]
        numbers[by_place] = np.arange(self.count, self.count + len(fresh))
        self.count += len(fresh)
        if len(fresh):
            self._runs.append(Run(high[firsts[fresh]], low[firsts[fresh]], numbers[fresh]))
            self._merge()
        every = np.empty(len(by_hash), np.int64)
        every[by_hash] = numbers[np.cumsum(~repeated) - 1]
        return every, firsts[by_place]

    def _known(self, high: Array, low: Array) -> Array:
        """Return the numbers of hashes, -1 for those that are new."""
        numbers = np.full(len(high), -1, np.int64)
        for run in self._runs:
            places = np.searchsorted(run.high, high)
            waiting = np.arange(len(high))
            while True:  # more than once only where the first halves of two hashes are equal
                inside = places < len(run.high)
                waiting, places = waiting[inside], places[inside]
                alike = run.high[places] == high[waiting]
                waiting, places = waiting[alike], places[alike]
                if not len(waiting):
                    break
                same = run.low[places] == low[waiting]
                numbers[waiting[same]] = run.numbers[places[same]]
                waiting, places = waiting[~same], places[~same] + 1
        return numbers

    def _merge(self) -> None:
        while len(self._runs) > 1 and len(self._runs[-2].high) < 2 * len(self._runs[-1].high):
            a, b = self._runs.pop(-2), self._runs.pop()
            high = np.concatenate([a.high, b.high])
            order = np.argsort(high, kind="stable")  # merges two sorted runs
            self._runs.append(
                Run(high[order], np.concatenate([a.low, b.low])[order], np.concatenate([a.numbers, b.numbers])[order])
            )


def hashed(texts: Sequence[str]) -> tuple[Array, Array]:
    """Hash texts to 128 bits each: both halves, uint64 [n]."""
    digests = b"".join(
        hashlib.blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=16).digest() for text in texts
    )
    halves = np.frombuffer(digests, "<u8").reshape(-1, 2)
    return halves[:, 0].astype(np.uint64), halves[:, 1].astype(np.uint64)
