"""Compose an epoch: memory -> hard negatives -> pairs -> batches."""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from lookalike.batches import check_options, compose_batches, lists_width, shuffle_batches
from lookalike.batches.threads import in_threads
from lookalike.negatives import Filters
from lookalike.samplers.pairing import Pairs
from lookalike.utils import ranks
from lookalike.utils.checks import checked_positive
from lookalike.utils.lists import Lists, checked_lists, lists_among, lists_checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from lookalike.batches import Neighbourhood
    from lookalike.samplers.guard import Guard
    from lookalike.samplers.memory import Memory
    from lookalike.samplers.pairing import Pairing
    from lookalike.utils.arrays import Array

    Rearrange = Callable[[Array, Array, Array | None, np.random.Generator], None]


logger = logging.getLogger("lookalike")

DEVICE_CHUNK = 1 << 20  # samples that a GPU searches before their neighbours move to the host


class Composed(NamedTuple):
    """The batches of an epoch, for all ranks together."""

    ids: Tensor  # int32: what the batches list, one after another
    offsets: Tensor  # int64 [batches + 1]
    num_left_out: Tensor  # int64 []: pairs that are in no batch

    def check_agreement(self) -> None:
        """Raise a ValueError on all ranks if they have composed different batches."""
        ranks.check_same(
            zlib.crc32(self.ids.numpy().data, zlib.crc32(self.offsets.numpy().data)),
            "the ranks have composed different batches from the same codes: if you pass `rearrange`, let it depend on "
            "its arguments alone; otherwise use the same versions of NumPy, numba and lookalike on all machines.",
        )


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
        """Compose the batches of an epoch; every rank does so, and gets the same ones.

        The search is shared. What floats decide comes from rank 0, since machines may round differently; the rest is
        integer arithmetic on the same data.

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
            k, filters, guard = self.num_negatives, self.filters, self.guard
            is_hiding = filters.on_scores or filters.range_min > 0  # what the guard must judge
            with_values = guard is not None and not is_hiding
            mined = mine(memory, pairing, k, filters, exclude, with_values=with_values)
            if mined is not None and guard is not None:
                nearest = mine(memory, pairing, k, Filters(), exclude) if is_hiding else mined
                nearest = (nearest or mined).on_host()
                labels = self._guarded(guard, nearest, memory, pairing, num_batches, pairs_per_batch)
                del nearest
            near = None if mined is None else mined.indices
            del mined  # distances are not needed any more, and large
        pairs = Pairs(*_from_first(lambda: pairing.draw(memory.pairing_codes(), rng)))  # while a GPU still searches
        lists = torch.full((len(pairs.query), 0), -1) if near is None else pairing.neighbours(near.cpu(), pairs)
        del near
        batches = compose_batches(
            lists,
            pairs_per_batch,
            labels=None if labels is None else labels[pairs.query],
            hardness=self.hardness,
            neighbourhood=self.neighbourhood,
            method=self.method,
            seed=seed,
            run_parts=partial(ranks.share_jobs, run=in_threads),
            **plan,
        )
        ids = pairing.listed(batches.ids.numpy(), pairs)
        offsets = batches.offsets * pairing.ids_per_pair
        if self.rearrange is not None:
            self.rearrange(ids, offsets.numpy(), labels, np.random.default_rng([*seeds, 1]))
        return Composed(torch.from_numpy(ids), offsets, torch.tensor(len(batches.left_out)))

    def _guarded(
        self, guard: Guard, nearest: Mined, memory: Memory, pairing: Pairing, num_batches: int, pairs_per_batch: int
    ) -> Array:
        """Return labels in which classes that the guard suspects are one."""

        def merged() -> list[Array]:
            known = memory.rows(self.num_negatives)
            return [guard.merge(nearest, known, pairing, num_batches, pairs_per_batch)]

        return _from_first(merged)[0]

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


def _from_first(make: Callable[[], Iterable[Array]]) -> list[Array]:
    """Return the arrays that rank 0 makes, on every rank."""
    return [part.numpy() for part in ranks.from_first(lambda: [torch.from_numpy(part) for part in make()])]


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

    indices: Tensor  # int32 [n, k], -1 for none
    values: Tensor | None  # distances or similarities, [n, k]

    def on_host(self) -> Mined:
        """Wait for a GPU that may still search, and copy what it found."""
        return Mined(self.indices.cpu(), None if self.values is None else self.values.cpu())


def mine(
    memory: Memory, pairing: Pairing, k: int, filters: Filters, exclude: Lists | None, *, with_values: bool = True
) -> Mined | None:
    """Find the hard negatives of all samples, shared by all ranks; None if the memory is empty.

    Every rank searches its slice of the samples among all of them, and all ranks receive the same lists. What one
    search finds for a single rank stays on its device, which nobody has waited for.

    Args:
        memory: What is known of them, the same on all ranks.
        pairing: Their labels.
        k: Negatives per sample.
        filters: Which neighbours count; its own `exclude` is ignored in favour of the next argument.
        exclude: Ids to exclude as negatives, per sample.
        with_values: Whether distances or similarities are needed.
    """
    found = memory.rows(k)
    if found is None:
        return None
    ids, query, reference = found.ids, found.query, found.reference
    n, m = pairing.num_samples, len(ids)
    labels = pairing.classes() if m == n else pairing.classes()[ids]
    if exclude is not None and m < n:
        exclude = lists_among(exclude, ids, ids)
    edges, rank = ranks.slices(m), ranks.world()[0]

    def search(first: int, last: int) -> Mined:
        options = {"filters": replace(filters, exclude=exclude), "reference": reference}
        values, indices = memory.search(range(first, last), query, labels, k, **options)
        return Mined(indices, values if with_values else None)

    chunk = DEVICE_CHUNK if query.is_cuda else m  # on a CPU, a search of all samples compares each two of them once
    if len(edges) == 2 and n == m <= chunk:
        return search(0, m)
    indices = torch.full((n, k), -1, dtype=torch.int32)
    values = torch.full((n, k), -1, dtype=torch.int32 if memory.has_codes else torch.float32) if with_values else None
    with ranks.failing_together():
        for first in range(edges[rank], edges[rank + 1], chunk):
            places = slice(first, min(first + chunk, edges[rank + 1]))
            some = search(places.start, places.stop).on_host()
            if m < n:
                _replace_numbers(some.indices, ids)
            rows = ids[places] if m < n else places
            indices[rows] = some.indices
            if values is not None and some.values is not None:
                values[rows] = some.values
    # Samples without rows lie between those of the slices; they go with the slice before them.
    starts = [0, *(n if edge == m else int(ids[edge]) for edge in edges[1:])]
    for whole in (indices, values):
        if whole is not None:
            ranks.gather_slices(whole, starts)
    return Mined(indices, values)


def _replace_numbers(indices: Tensor, ids: Tensor) -> None:
    """Turn positions among `ids` into ids, in place and a few at a time: positions to look up take twice the memory."""
    narrow = ids.to(indices.dtype)
    for part in torch.split(indices, 1 << 16):
        part.copy_(torch.where(part >= 0, narrow[part.long()], -1))
