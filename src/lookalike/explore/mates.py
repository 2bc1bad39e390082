"""Batch mates: compose an epoch from codes, with the settings of a run, and look up who meets whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lookalike.negatives.hard import hard_negatives_of
from lookalike.negatives.spaces import HAMMING
from lookalike.samplers.memory import Memory, Remembered
from lookalike.training.settings import WITHOUT_MINING
from lookalike.training.strategies import make_sampler

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.explore.neighbours import Neighbours
    from lookalike.training.settings import Settings
    from lookalike.training.strategies import Sampled
    from lookalike.utils.arrays import Array


class GivenCodes(Memory):
    """A memory of codes that are all known, for a composition outside of training."""

    has_codes = True

    def __init__(self, neighbours: Neighbours) -> None:
        self._query, self._reference = neighbours.query, neighbours.reference

    def rows(self, k: int) -> Remembered:  # noqa: ARG002 - as `Memory` has it
        """Return all codes."""
        return Remembered(torch.arange(len(self._query)), self._query, self._reference)

    def search(self, rows: range, *found: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """Find the hard negatives of some of the rows."""
        return hard_negatives_of(rows, HAMMING, *found, **options)

    def pairing_codes(self) -> Tensor | None:
        """Return the codes, by which labelled samples find far positives."""
        return self._query if self._reference is None else None


class Mates:
    """The batches of one epoch.

    Args:
        ids: What the batches list, one after another, int32.
        offsets: Where each batch begins, int64 `[batches + 1]`.
        n: Number of samples.
    """

    def __init__(self, ids: Array, offsets: Array, n: int) -> None:
        self.ids, self.offsets = ids, offsets
        self._place = np.full(n, -1, np.int64)
        self._place[ids[::-1]] = np.arange(len(ids))[::-1]  # the first place, if a sample has several

    def of(self, i: int) -> tuple[int, Array]:
        """Return the number of a sample's batch and the other samples in it; -1 and none if it is in no batch."""
        if self._place[i] < 0:
            return -1, np.empty(0, np.int64)
        batch = int(np.searchsorted(self.offsets, self._place[i], side="right")) - 1
        members = np.unique(self.ids[self.offsets[batch] : self.offsets[batch + 1]]).astype(np.int64)
        return batch, members[members != i]


def compose_mates(part: Sampled, settings: Settings, neighbours: Neighbours) -> Mates:
    """Compose the epoch that would come next if the run went on with these codes.

    Args:
        part: The training part.
        settings: The run's; random samplers compose a random epoch, all others compose from the codes.
        neighbours: The codes.

    Raises:
        ValueError: The labels allow no batch of that size.
    """
    sampler = make_sampler(part, settings, neighbours.exclude)
    memory = Memory() if settings.sampler in WITHOUT_MINING else GivenCodes(neighbours)
    composed = sampler.composition.compose(
        sampler.pairing,
        memory,
        [settings.seed, settings.epochs],
        num_batches=len(sampler),
        pairs_per_batch=settings.pairs_per_batch,
    )
    return Mates(composed.ids.numpy(), composed.offsets.numpy(), len(neighbours))
