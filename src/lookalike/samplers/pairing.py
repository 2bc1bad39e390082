"""The pairs that batches are made of: drawn anew every epoch from labelled samples, or those of a paired data set."""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from lookalike.negatives.same import merge_labels, read_same
from lookalike.utils.checks import checked_positive
from lookalike.utils.jit import kernel
from lookalike.utils.lengthless import refuse_stream
from lookalike.utils.tensors import checked_integers

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.utils.arrays import Array

logger = logging.getLogger("lookalike")

CHUNK = 1 << 18  # pairs whose neighbours are looked up at a time
LARGEST_GROUP = 1024  # larger classes are paired within random groups of this size


class Pairs(NamedTuple):
    """The pairs of one epoch: the query sample and the reference sample of each, int32 [num_pairs]."""

    query: Array
    reference: Array


class Pairing(Protocol):
    """How a data set becomes pairs. Decided once, so that no other code depends on the kind of data set."""

    towers: tuple[str, ...]
    """Names of the embeddings that `observe` takes."""
    ids_per_pair: int
    """Ids that a batch lists for each pair."""
    num_samples: int
    self_pairs: bool
    """Whether a sample may be its own positive, so that a batch lists it twice."""

    @property
    def labels(self) -> Array | None:
        """Labels, int32 [n]; equal ones may not meet in a batch. None if every pair has a label of its own."""

    def identity(self) -> dict[str, Any]:
        """Return what must be the same on every rank, and in a state and the sampler that loads it."""

    def counts(self) -> Array:
        """Count the pairs of each label."""

    def classes(self) -> Tensor:
        """Return a label for every sample or pair, int64 [n]."""

    def expected(self) -> Tensor:
        """Return which samples are in some pair, bool [n]."""

    def draw(self, codes: Tensor | None, rng: np.random.Generator) -> Pairs:
        """Draw the pairs of an epoch; `codes` of all samples, uint8 [n, bytes], decide which positives are hard."""

    def neighbours(self, near: Tensor, pairs: Pairs) -> Tensor:
        """Turn neighbours of samples, int32 [n, k] with -1 for none, into neighbours of pairs, int32 as well."""

    def listed(self, batch_ids: Array, pairs: Pairs) -> Array:
        """Turn numbers of pairs into the ids that batches list."""


def make_pairing(labels: Any, pairs: int | None, *, self_pairs: bool = False, same: Any = None) -> Pairing:
    """Choose the pairing that a sampler's arguments describe; two samples in `same` count as one label.

    Raises:
        TypeError: A stream was passed in place of labels or of the number of pairs.
        ValueError: There are neither labels nor pairs, or the labels allow no pair.
    """
    for name, value in (("labels", labels), ("pairs", pairs)):
        refuse_stream(name, value, "a sampler needs samples by number")
    if pairs is not None:
        if same is not None and len(marked := read_same(same, checked_positive("pairs", pairs))):
            labels = merge_labels(labels, marked, pairs)
        return Paired(pairs, labels)
    if labels is None:
        raise ValueError("labels are missing: give one per sample, or, for a data set of pairs, pairs=how many.")
    if same is not None and (n := len(own := checked_integers("labels", labels))):
        labels = merge_labels(own, read_same(same, n), n)
    return Labelled(labels, self_pairs=self_pairs)


class Labelled:
    """Labelled samples: a pair is an anchor and a positive of its label, and a batch lists both, one after the other.

    Args:
        labels: Integers, one per sample.
        self_pairs: Pair a label's only sample with itself, for two augmented views, instead of leaving it out.
    """

    towers: tuple[str, ...] = ("embeddings",)
    ids_per_pair = 2

    def __init__(self, labels: Any, *, self_pairs: bool = False) -> None:
        self.labels: Array = compact_labels(labels)
        self.self_pairs = self_pairs
        if not self_pairs:
            _check_positives(self.labels)
        self.num_samples = len(self.labels)

    def identity(self) -> dict[str, Any]:
        """Return kind, size and checksum of the data set."""
        return _identity(self)

    def counts(self) -> Array:
        """Count the pairs of each label."""
        return count_pairs(np.bincount(self.labels), self_pairs=self.self_pairs)

    def classes(self) -> Tensor:
        """Return the labels, int64 [n]."""
        return torch.from_numpy(self.labels).long()

    def expected(self) -> Tensor:
        """Return which samples are in some pair: those with a positive."""
        return torch.from_numpy(self.counts()[self.labels] > 0)

    def draw(self, codes: Tensor | None, rng: np.random.Generator) -> Pairs:
        """Pair every sample with the farthest sample of its label that is still free."""
        return Pairs(*pair_samples(codes, self.labels, rng, self_pairs=self.self_pairs))

    def neighbours(self, near: Tensor, pairs: Pairs) -> Tensor:
        """Take the neighbours of the anchor and of the positive in turns."""
        pair_of = np.full(len(near), -1, np.int32)
        for side in (pairs.reference, pairs.query):
            pair_of[side] = np.arange(len(side), dtype=np.int32)
        samples = near.numpy()[:, : max(1, near.shape[1] // 2)]
        lists = np.empty((len(pairs.query), samples.shape[1], 2), np.int32)
        for first in range(0, len(lists), CHUNK):  # NumPy looks numbers up by int64, twice the memory of the lists
            rows = slice(first, first + CHUNK)
            for column, members in enumerate(pairs):
                found = samples[members[rows]]
                lists[rows, :, column] = np.where(found >= 0, pair_of[found], -1)
        return torch.from_numpy(lists.reshape(len(lists), -1))

    def listed(self, batch_ids: Array, pairs: Pairs) -> Array:
        """List anchor and positive of each pair, one after the other."""
        return np.stack([pairs.query[batch_ids], pairs.reference[batch_ids]], axis=1).reshape(-1)


class Paired:
    """A data set of pairs: pair i is query i with reference i, and a batch lists pair ids.

    Args:
        pairs: How many there are.
        labels: Integers, one per pair, where several pairs must not meet in a batch; None where none share a label.
    """

    towers: tuple[str, ...] = ("query", "reference")
    ids_per_pair = 1
    self_pairs = False

    def __init__(self, pairs: int, labels: Any = None) -> None:
        self.num_samples = checked_positive("pairs", pairs)
        self.labels: Array | None = None if labels is None else compact_labels(labels)
        if self.labels is not None and len(self.labels) != pairs:
            raise ValueError(f"labels must have one label per pair, {pairs}, got {len(self.labels)}.")

    def identity(self) -> dict[str, Any]:
        """Return kind, size and checksum of the data set."""
        return _identity(self)

    def counts(self) -> Array:
        """Count the pairs of each label."""
        return np.ones(self.num_samples, np.int64) if self.labels is None else np.bincount(self.labels)

    def classes(self) -> Tensor:
        """Return the labels, or a label of its own for every pair, int64 [n]."""
        return torch.arange(self.num_samples) if self.labels is None else torch.from_numpy(self.labels).long()

    def expected(self) -> Tensor:
        """Return True for every pair."""
        return torch.ones(self.num_samples, dtype=torch.bool)

    def draw(self, codes: Tensor | None, rng: np.random.Generator) -> Pairs:  # noqa: ARG002 - as `Pairing` has it
        """Return the pairs, which are the same in every epoch."""
        ids = np.arange(self.num_samples, dtype=np.int32)
        return Pairs(ids, ids)

    def neighbours(self, near: Tensor, pairs: Pairs) -> Tensor:  # noqa: ARG002 - as `Pairing` has it
        """Return the neighbours as they are: samples are pairs."""
        return near

    def listed(self, batch_ids: Array, pairs: Pairs) -> Array:
        """List the ids of pairs."""
        return pairs.query[batch_ids]


def _identity(pairing: Pairing) -> dict[str, Any]:
    return {
        "paired": pairing.ids_per_pair == 1,
        "samples": pairing.num_samples,
        "labels (checksum)": 0 if pairing.labels is None else zlib.crc32(pairing.labels.tobytes()),
        "self_pairs": pairing.self_pairs,
    }


def compact_labels(labels: Any) -> Array:
    """Return the labels as int32 [n], renumbered where their values are too large to count by."""
    numbers = checked_integers("labels", labels).cpu().numpy()
    if numbers.min(initial=0) < 0 or numbers.max(initial=0) >= 2 * len(numbers):  # not worth an array of counts
        numbers = np.unique(numbers, return_inverse=True)[1]
    return numbers.astype(np.int32)


def _check_positives(labels: Array) -> None:
    """Report samples that are the only one of their label; raise a ValueError if all are."""
    if len(labels) == 0:
        raise ValueError("there are no labels: give one per sample.")
    alone = int((np.bincount(labels) == 1).sum())
    if alone == len(labels):
        raise ValueError(
            f"all {alone} labels are different, so no sample has a positive: for a data set of pairs give "
            "pairs=how many, for two augmented views of each sample self_pairs=True."
        )
    if alone:
        logger.warning(
            "%d of %d samples are the only one of their label: without a positive they are left out. "
            "self_pairs=True pairs each with itself, for two augmented views.",
            alone,
            len(labels),
        )


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
            if end - first == LARGEST_GROUP + 1:  # so that no sample is alone in the last group
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
