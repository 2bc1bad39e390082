"""Compose an epoch: memory -> hard negatives -> pairs -> batches."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from lookalike.batches import check_options, compose_batches, lists_width, shuffle_batches
from lookalike.negatives import Filters
from lookalike.samplers.pairing import Pairs
from lookalike.utils.checks import checked_positive
from lookalike.utils.lists import Lists, checked_lists, lists_among, lists_checksum

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from lookalike.batches import Neighbourhood
    from lookalike.samplers.guard import Guard
    from lookalike.samplers.memory import Memory
    from lookalike.samplers.pairing import Pairing
    from lookalike.utils.arrays import Array

    Rearrange = Callable[[Array, Array, Array | None, np.random.Generator], None]


logger = logging.getLogger("lookalike")


class Composed(NamedTuple):
    """The batches of an epoch, for all ranks together."""

    ids: Tensor  # int32: what the batches list, one after another
    offsets: Tensor  # int64 [batches + 1]
    num_left_out: Tensor  # int64 []: pairs that are in no batch


@dataclass
class Composition:
    """How to compose an epoch; the fields are the arguments of `EpochBatchSampler`.

    `hardness`, `filters`, `guard` and `rearrange` may be set between epochs, to the same values on all ranks.
    """

    k: int
    hardness: float
    neighbourhood: Neighbourhood
    method: str
    filters: Filters
    guard: Guard | None
    rearrange: Rearrange | None

    def __post_init__(self) -> None:
        checked_positive("k", self.k)
        check_options(self.hardness, self.neighbourhood, self.method)
        self._checked: tuple[Filters, Lists | None] | None = None  # filters, and what they exclude

    @property
    def num_negatives(self) -> int:
        """Hard negatives per sample to look for: what the method can use and the rank window has room for."""
        window = self.k if self.filters.range_max is None else self.filters.range_max - self.filters.range_min
        return min(self.k, window, lists_width(self.method))

    def exclude(self, n: int) -> Lists | None:
        """Return the ids to exclude as negatives, for each of n samples, if there are any.

        Raises:
            ValueError: They do not fit the number of samples.
        """
        if self._checked is None or self._checked[0] is not self.filters:
            lists, cpu = self.filters.exclude, torch.device("cpu")
            self._checked = self.filters, None if lists is None else checked_lists("exclude", lists, n, n, cpu)
        return self._checked[1]

    def identity(self) -> dict[str, Any]:
        """Return what must be the same on every rank, and in a state and the sampler that loads it."""
        return {"k": self.k, "neighbourhood": self.neighbourhood, "method": self.method}

    def adjustable(self, n: int) -> dict[str, Any]:
        """Return what may change from one epoch to the next, though not from rank to rank."""
        exclude = self.exclude(n)
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
            seeds: Decide everything random.
            num_batches: How many there will be.
            pairs_per_batch: Their size.
            plan: `drop_last`, `smallest` and `multiple`, as in `compose_batches`.
        """
        rng = np.random.default_rng(seeds)
        seed, labels = int(rng.integers(2**62)), pairing.labels
        near, exclude = None, self.exclude(pairing.num_samples)
        if self.hardness > 0:
            mined = mine(memory, pairing, self.num_negatives, self.filters, exclude)
            if mined is not None and self.guard is not None:
                if self.filters.on_scores or self.filters.range_min:  # the guard judges what filters may hide
                    nearest = mine(memory, pairing, self.num_negatives, Filters(), exclude)
                else:
                    nearest = mined
                known = memory.rows(self.num_negatives)
                labels = self.guard.merge(nearest or mined, known, pairing, num_batches, pairs_per_batch)
                del nearest, known
            near = None if mined is None else mined.indices
            del mined  # distances are not needed any more, and large
        pairs = pairing.draw(memory.pairing_codes(), rng)
        lists = torch.full((len(pairs.query), 0), -1) if near is None else pairing.neighbours(near, pairs)
        batches = compose_batches(
            lists,
            pairs_per_batch,
            labels=None if labels is None else labels[pairs.query],
            hardness=self.hardness,
            neighbourhood=self.neighbourhood,
            method=self.method,
            seed=seed,
            **plan,
        )
        ids = pairing.listed(batches.ids.numpy(), pairs)
        offsets = batches.offsets * pairing.ids_per_pair
        if self.rearrange is not None:
            self.rearrange(ids, offsets.numpy(), labels, np.random.default_rng([*seeds, 1]))
        return Composed(torch.from_numpy(ids), offsets, torch.tensor(len(batches.left_out)))

    def shuffle_rest(self, pairing: Pairing, composed: Composed, first: int, seeds: list[int]) -> Composed:
        """Shuffle the epoch from batch `first` on: the same pairs, in random batches of the same sizes."""
        start, width = int(composed.offsets[first]), pairing.ids_per_pair
        done, rest = composed.ids[:start], composed.ids[start:].numpy()
        pairs = Pairs(rest[::width], rest[width - 1 :: width])
        batches = shuffle_batches(
            composed.offsets[first:].diff().numpy() // width,
            labels=None if pairing.labels is None else pairing.labels[pairs.query],
            seed=int(np.random.default_rng(seeds).integers(2**62)),
        )
        ids, offsets = pairing.listed(batches.ids.numpy(), pairs), batches.offsets * width
        if self.rearrange is not None:
            self.rearrange(ids, offsets.numpy(), pairing.labels, np.random.default_rng([*seeds, 1]))
        return Composed(
            torch.cat([done, torch.from_numpy(ids)]),
            torch.cat([composed.offsets[:first], start + offsets]),
            composed.num_left_out,
        )


def warn_of_left_out(composed: Composed, drop_last: bool, multiple: int) -> None:
    """Warn of pairs that are in no batch, unless some must be."""
    if composed.num_left_out and not drop_last and multiple == 1:
        logger.warning(
            "%d pairs are left out of each epoch, different ones each time: their labels have more pairs than there "
            "are batches, and a batch holds each label once. Smaller batches leave out fewer.",
            int(composed.num_left_out),
        )


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
    options = {} if reference is None else {"reference": reference}  # with the labels of the queries
    values, indices = memory.search(query, labels[ids], k, filters=replace(filters, exclude=exclude), **options)
    values, indices = values.cpu(), indices.cpu()
    if everyone:
        return Mined(indices, values)
    all_indices, all_values = torch.full((n, k), -1), torch.full((n, k), -1, dtype=values.dtype)
    all_indices[ids] = torch.where(indices >= 0, ids[indices], -1)
    all_values[ids] = values
    return Mined(all_indices, all_values)
