"""Pair labelled samples: every sample with the farthest sample of its label that is still free."""

from typing import Any

import numpy as np
from torch import Tensor

from lookalike.utils.arrays import Array
from lookalike.utils.jit import kernel

LARGEST_GROUP = 1024  # larger classes are paired within random groups of this size


def count_pairs(counts: Array, *, self_pairs: bool) -> Array:
    """Count the pairs of each label: half its samples; an odd one out borrows a partner, a single one needs itself."""
    pairs = (np.asarray(counts, np.int64) + 1) // 2
    return pairs if self_pairs else np.where(np.asarray(counts) == 1, 0, pairs)


def pair_samples(
    codes: Tensor | None, labels: Array, rng: np.random.Generator, *, self_pairs: bool
) -> tuple[Array, Array]:
    """Return anchors and positives, int32 [num_pairs] each, label after label.

    Args:
        codes: uint8 [n, bytes], or None: partners are drawn at random.
        labels: int32 [n].
        rng: Decides the order within each label.
        self_pairs: Pair a label's only sample with itself instead of leaving it out.
    """
    order = rng.permutation(len(labels)).astype(np.int32)
    members = order[np.argsort(labels[order], kind="stable")]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(labels))])
    pairs = count_pairs(np.diff(offsets), self_pairs=self_pairs)
    starts = np.concatenate([[0], np.cumsum(pairs)])
    anchors, positives = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
    words = np.empty((0, 0), np.uint64) if codes is None else _words(codes.numpy())
    distances, taken = np.zeros((LARGEST_GROUP + 1,) * 2, np.int32), np.empty(LARGEST_GROUP + 1, np.bool_)
    _pair(words, members, offsets, pairs, starts, anchors, positives, distances, taken)
    return anchors, positives


def _words(codes: Array) -> Array:
    padded = codes if codes.shape[1] % 8 == 0 else np.pad(codes, ((0, 0), (0, -codes.shape[1] % 8)))
    return np.ascontiguousarray(padded).view(np.uint64)


@kernel
def _popcount(x: Any) -> int:
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def _farthest(distances: Any, taken: Any, size: int, i: int) -> int:
    """Return the farthest free sample, the farthest of all where none is free, or the sample itself if it is alone."""
    best, farthest = -1, -1
    for j in range(size):
        if j != i and not taken[j] and distances[i, j] > farthest:
            best, farthest = j, distances[i, j]
    if best >= 0:
        return best
    best = i
    for j in range(size):
        if j != i and distances[i, j] > farthest:
            best, farthest = j, distances[i, j]
    return best


@kernel
def _pair(
    words: Any,
    members: Any,
    offsets: Any,
    pairs: Any,
    starts: Any,
    anchors: Any,
    positives: Any,
    distances: Any,  # int32 [LARGEST_GROUP + 1, LARGEST_GROUP + 1], zero where there are no codes
    taken: Any,  # bool [LARGEST_GROUP + 1]
) -> None:
    for label in range(len(pairs)):
        if pairs[label] == 0:
            continue
        slot = starts[label]
        end = offsets[label + 1]
        first = offsets[label]
        while first < end:
            size = min(LARGEST_GROUP, end - first)
            if end - first == LARGEST_GROUP + 1:  # nobody is left alone in the last group
                size += 1
            for i in range(size):
                taken[i] = False
                for j in range(i if words.size > 0 else 0):
                    total = 0
                    for word in range(words.shape[1]):
                        total += _popcount(words[members[first + i], word] ^ words[members[first + j], word])
                    distances[i, j] = distances[j, i] = total
            for i in range(size):
                if not taken[i]:
                    best = _farthest(distances, taken, size, i)
                    taken[i] = taken[best] = True
                    anchors[slot], positives[slot] = members[first + i], members[first + best]
                    slot += 1
            first += size
