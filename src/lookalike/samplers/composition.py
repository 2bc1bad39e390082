"""Compose an epoch: memory -> hard negatives -> pairs -> batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from lookalike.batches import check_options, compose_batches, lists_width
from lookalike.utils.checks import checked_positive
from lookalike.utils.lists import Lists, checked_lists, lists_among, lists_checksum

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from lookalike.negatives import Filters
    from lookalike.samplers.guard import Guard
    from lookalike.samplers.memory import Memory
    from lookalike.samplers.pairing import Pairing
    from lookalike.utils.arrays import Array

    Rearrange = Callable[[Array, Array, Array | None, np.random.Generator], None]


class Composed(NamedTuple):
    """The batches of an epoch, for all ranks together."""

    ids: Tensor  # int32: what the batches list, one after another
    offsets: Tensor  # int64 [batches + 1]
    num_left_out: Tensor  # int64 []: pairs that are in no batch


@dataclass
class Composition:
    """How to compose an epoch; the fields are the arguments of `EpochBatchSampler`."""

    k: int
    hardness: float
    clusters: int
    method: str
    filters: Filters
    guard: Guard | None
    rearrange: Rearrange | None

    def __post_init__(self) -> None:
        checked_positive("k", self.k)
        check_options(self.hardness, self.clusters, self.method)
        self.filters.check_room(self.num_negatives)

    @property
    def num_negatives(self) -> int:
        """Hard negatives per sample to look for."""
        return min(self.k, lists_width(self.method))

    def checked_exclude(self, n: int) -> Lists | None:
        """Return the ids to exclude per sample, checked, if there are any."""
        lists = self.filters.exclude
        return None if lists is None else checked_lists("exclude", lists, n, n, torch.device("cpu"))

    def identity(self) -> dict[str, Any]:
        """Return what must be the same on every rank, and in a state and the sampler that loads it."""
        return {"k": self.k, "clusters": self.clusters, "method": self.method}

    def adjustable(self, exclude: Lists | None) -> dict[str, Any]:
        """Return what may change from one epoch to the next, though not from rank to rank."""
        filters = {name: value for name, value in vars(self.filters).items() if name != "exclude"}
        return {
            "hardness": float(self.hardness),
            **filters,
            "exclude (checksum)": None if exclude is None else lists_checksum(exclude),
            "guard": None if self.guard is None else self.guard.limit,
        }

    def compose(
        self,
        pairing: Pairing,
        memory: Memory,
        exclude: Lists | None,
        seeds: list[int],
        *,
        num_batches: int,
        pairs_per_batch: int,
        **plan: Any,
    ) -> Composed:
        """Compose the batches of an epoch.

        Args:
            pairing: The data set.
            memory: What is known of it.
            exclude: Ids to exclude as negatives, per sample.
            seeds: Decide everything random.
            num_batches: How many there will be.
            pairs_per_batch: Their size.
            plan: `drop_last`, `smallest` and `multiple`, as in `compose_batches`.
        """
        rng = np.random.default_rng(seeds)
        seed, labels = int(rng.integers(2**62)), pairing.labels
        mined = mine(memory, pairing, self.num_negatives, self.filters, exclude) if self.hardness > 0 else None
        if mined is not None and self.guard is not None:
            known = memory.rows(self.num_negatives)
            labels = self.guard.merge(mined, known, pairing, num_batches, pairs_per_batch)
        pairs = pairing.draw(memory.pairing_codes(), rng)
        lists = torch.full((len(pairs.query), 0), -1) if mined is None else pairing.neighbours(mined.indices, pairs)
        batches = compose_batches(
            lists,
            pairs_per_batch,
            labels=None if labels is None else labels[pairs.query],
            hardness=self.hardness,
            clusters=self.clusters,
            method=self.method,
            seed=seed,
            **plan,
        )
        ids = pairing.listed(batches.ids.numpy(), pairs)
        offsets = batches.offsets * pairing.ids_per_pair
        if self.rearrange is not None:
            self.rearrange(ids, offsets.numpy(), labels, np.random.default_rng([*seeds, 1]))
        return Composed(torch.from_numpy(ids), offsets, torch.tensor(len(batches.left_out)))


class Mined(NamedTuple):
    """The hard negatives of every sample, nearest first."""

    indices: Tensor  # int64 [n, k], -1 for none
    values: Tensor  # distances or similarities, [n, k]


def mine(memory: Memory, pairing: Pairing, k: int, filters: Filters, exclude: Lists | None) -> Mined | None:
    """Find the hard negatives of all samples; None if the memory is empty.

    Args:
        memory: What is known of them.
        pairing: Their labels.
        k: Negatives per sample.
        filters: Which neighbours count; its own `exclude` is ignored in favour of the next argument.
        exclude: Ids to exclude as negatives, per sample.
    """
    found = memory.rows(k)
    if found is None:
        return None
    ids, query, reference = found
    n, labels = pairing.num_samples, pairing.classes()
    everyone = len(ids) == n
    if exclude is not None and not everyone:
        exclude = lists_among(exclude, ids, ids)
    options = {} if reference is None else {"reference": reference, "reference_labels": labels[ids]}
    values, indices = memory.search(query, labels[ids], k, filters=replace(filters, exclude=exclude), **options)
    values, indices = values.cpu(), indices.cpu()
    if everyone:
        return Mined(indices, values)
    all_indices, all_values = torch.full((n, k), -1), torch.full((n, k), -1, dtype=values.dtype)
    all_indices[ids] = torch.where(indices >= 0, ids[indices], -1)
    all_values[ids] = values
    return Mined(all_indices, all_values)
