"""Readiness for hard batches, from codes alone: does the model find a sample's positive among its lookalikes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lookalike.hashing import ScalarCodes
from lookalike.search import answer
from lookalike.search.plain import popcount
from lookalike.search.request import checked_request
from lookalike.utils.tensors import checked_codes, checked_labels

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.hashing import Scheme
    from lookalike.utils.arrays import Array

RANKS = (1, 8, 32, 128)
ANCHORS = 2048  # the standard error of a fraction is then below .011
MEMBERS = 64  # positives that an anchor is compared with, at most
DECISIVE_RANK, ENOUGH = 32, 0.7  # models that know the task are well above, others well below; docs/batches.md


@dataclass(frozen=True)
class Readiness:
    """How often a sample's nearest positive is nearer than its k-th nearest negative."""

    beats: dict[int, float]
    """By k, the fraction of the anchors whose positive is nearer than their k-th negative; a tie does not count."""
    anchors: int
    """Samples that were looked at."""

    @property
    def decisive(self) -> float:
        """The fraction that decides."""
        return self.beats[DECISIVE_RANK]

    @property
    def is_ready(self) -> bool:
        """Whether hard batches may be expected to help from the first step."""
        return self.decisive >= ENOUGH


def measure_readiness(
    codes: Any, labels: Any, *, reference: Any = None, population: int | None = None, seed: int = 0
) -> Readiness:
    """Measure how often a sample's nearest positive is nearer than its 1st, 8th, 32nd and 128th negative.

    A model that does not know the task yet finds its positives no sooner than anything else; its hard negatives are
    noise, and batches of them teach it little.

    Args:
        codes: Packed codes, uint8 `[n, bits / 8]`, or `ScalarCodes`; with `reference`, those of the queries.
        labels: Integers `[n]`: samples, or pairs, with the same label are positives.
        reference: Codes of the references of the same pairs, for two towers.
        population: How many samples there are, if these are a random choice of them. Ranks are scaled accordingly.
        seed: Decides which samples are looked at, if there are many.

    Examples:
        >>> import torch
        >>> codes = torch.tensor([[0b0000], [0b0001], [0b1110], [0b1111]], dtype=torch.uint8)
        >>> measure_readiness(codes, [0, 0, 1, 1]).beats[1]
        1.0
        >>> measure_readiness(codes, [0, 1, 0, 1]).beats[1]
        0.0
    """
    query, scheme = _unwrapped("codes", codes)
    classes = checked_labels("labels", labels, len(query)).cpu().numpy()
    among = query if reference is None else _unwrapped("reference", reference)[0]
    mates = _Mates(classes, with_itself=reference is not None)
    able = np.flatnonzero(mates.count > 0)
    anchors = np.sort(np.random.default_rng(seed).permutation(able)[:ANCHORS])
    if len(anchors) == 0:
        return Readiness(dict.fromkeys(RANKS, 0.0), 0)
    nearest = _nearest_positives(query, among, scheme, mates, anchors)
    scale = 1.0 if population is None or population <= len(query) else (len(query) - 1) / (population - 1)
    scaled = {k: max(1, round(k * scale)) for k in RANKS}
    chosen, own = torch.from_numpy(anchors).to(query.device), torch.from_numpy(classes)
    request = checked_request(
        query[chosen], among, max(scaled.values()), labels=(own[chosen.cpu()], own), scheme=scheme
    )
    negatives = answer(request).distances.cpu()
    farthest = negatives.amax(1)  # the last one, where there are fewer than k
    kth = {k: torch.where(negatives[:, rank - 1] < 0, farthest, negatives[:, rank - 1]) for k, rank in scaled.items()}
    return Readiness({k: float((nearest < limit.numpy()).mean()) for k, limit in kth.items()}, len(anchors))


class _Mates:
    """The other samples of a sample's label, by number."""

    def __init__(self, labels: Array, *, with_itself: bool) -> None:
        self._first = 0 if with_itself else 1
        self._sorted = np.argsort(labels, kind="stable")
        _, self._starts, sizes = np.unique(labels[self._sorted], return_index=True, return_counts=True)
        self._class = np.unique(labels, return_inverse=True)[1]
        self._place = np.empty(len(labels), np.int64)
        self._place[self._sorted] = np.arange(len(labels))
        self._sizes = sizes[self._class]
        self.count = self._sizes - self._first

    def numbered(self, j: int, samples: Array) -> Array:
        """Return the j-th mate of each sample; samples with fewer get one of theirs again."""
        start, size = self._starts[self._class[samples]], self._sizes[samples]
        mates: Array = self._sorted[start + (self._place[samples] - start + self._first + j) % size]
        return mates


def _unwrapped(name: str, codes: Any) -> tuple[Tensor, Scheme | None]:
    if isinstance(codes, ScalarCodes):
        return codes.packed, codes.scheme
    return checked_codes(name, codes), None


def _nearest_positives(query: Tensor, reference: Tensor, scheme: Scheme | None, mates: _Mates, anchors: Array) -> Array:
    """Return the distance of each anchor to its nearest positive."""
    own = query[torch.from_numpy(anchors).to(query.device)].cpu()
    nearest = np.full(len(anchors), np.iinfo(np.int64).max)
    for j in range(min(MEMBERS, int(mates.count[anchors].max()))):
        able = np.flatnonzero(mates.count[anchors] > j)
        mate = reference[torch.from_numpy(mates.numbered(j, anchors[able])).to(reference.device)].cpu()
        some = own[torch.from_numpy(able)]
        apart = popcount(some ^ mate).sum(1) if scheme is None else scheme.compare(some, mate)
        nearest[able] = np.minimum(nearest[able], apart.long().numpy())
    return nearest
