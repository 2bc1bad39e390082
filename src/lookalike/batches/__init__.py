"""Neighbours -> the batches of an epoch: pairs that are hard negatives of each other, together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from lookalike.batches.epoch import compose_epoch
from lookalike.batches.fill import GROWTH
from lookalike.batches.part import How
from lookalike.batches.plan import Plan, plan_batches
from lookalike.batches.threads import RunParts, in_threads
from lookalike.search.request import Neighbours
from lookalike.utils.arrays import Array
from lookalike.utils.checks import Range, check_choice, checked_positive
from lookalike.utils.tensors import checked_labels

__all__ = ["Batches", "compose_batches", "plan_batches", "shuffle_batches"]

COMPOSITIONS = ("growth", "sample4geo")
Neighbourhood = int | Literal["auto"] | None
GRAPH_NEIGHBOURS = 32  # nearest ones that make edges; time and memory grow with it
NEIGHBOURHOOD, ONE_UP_TO = 32, 64  # pairs; "auto" for large and for small batches, by trained quality: docs/batches.md
NEIGHBOUR_SELECT, NEIGHBOUR_RANGE = 64, 128  # of "sample4geo", as published


@dataclass(frozen=True)
class Batches(Sequence[Tensor]):
    """The batches of one epoch: a sequence of int64 tensors of pair ids."""

    ids: Tensor  # int32 or int64 [total]: the batches one after another
    offsets: Tensor  # int64 [num_batches + 1]
    left_out: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))  # pairs that are in no batch

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} batches, got index {index}.")
        index %= len(self)
        return self.ids[int(self.offsets[index]) : int(self.offsets[index + 1])].long()

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))


def compose_batches(
    neighbours: Any,
    pairs_per_batch: int,
    *,
    labels: Any = None,
    hardness: float = 1.0,
    neighbourhood: Neighbourhood = "auto",
    method: str = "growth",
    seed: int = 0,
    drop_last: bool = False,
    neighbour_select: int = NEIGHBOUR_SELECT,
    neighbour_range: int = NEIGHBOUR_RANGE,
    smallest: int = 1,
    multiple: int = 1,
    run_parts: RunParts = in_threads,
) -> Batches:
    """Put every pair into one batch, together with its hard negatives, and no label twice into a batch.

    With "growth" a batch grows from random seeds, always by the pair with the largest fraction of its neighbours in it
    already; then pairs swap places wherever that brings more neighbours together. "sample4geo" is the published
    shuffle, for comparison: take a random anchor, half of its nearest `neighbour_select` and half drawn from the rest
    of its `neighbour_range` nearest, and so on; unlike the original it drops nothing.

    The result depends on the arguments alone, not on the machine or the number of threads.

    Args:
        neighbours: For each pair the pairs that are its hard negatives, nearest first, -1 for none: `Neighbours` or
            integers `[n, k]`. Rows of -1 only, as before the first epoch, give random batches.
        pairs_per_batch: Pairs per batch.
        labels: Integers `[n]`; by default no two pairs share one.
        hardness: Fraction of a batch to take from the neighbour graph; the rest is drawn at random.
        neighbourhood: Pairs that "growth" collects around one random seed. A larger batch holds several such
            neighbourhoods, a smaller one is a single neighbourhood. "auto" makes a batch of up to 64 pairs a single one
            and fills larger batches with neighbourhoods of 32; None makes every batch a single one, which is hardest.
        method: "growth" or "sample4geo".
        seed: Decides the order, the seeds of growth and the random part.
        drop_last: Leave out pairs at random so that all batches are full.
        neighbour_select: Nearest neighbours of an anchor that "sample4geo" prefers.
        neighbour_range: Neighbours of an anchor that "sample4geo" draws from.
        smallest: The fewest pairs the last batch may have; if it would have fewer, all batches share the shortage.
        multiple: Above one, make the number of batches a multiple of it and all of them full, and leave out the rest.
        run_parts: Runs the jobs of which "growth" makes one per part of the neighbour graph; see `RunParts`. By default
            they run in threads.

    Returns:
        `Batches`: full ones and a last shorter one. A label with more pairs than there are batches does not fit whole;
        `left_out` holds a random choice of its surplus pairs.

    Raises:
        ValueError: There are fewer labels than a batch must hold, or an argument is out of range.

    Examples:
        >>> import torch
        >>> neighbours = torch.tensor([[1], [0], [3], [2]])
        >>> [sorted(batch.tolist()) for batch in sorted(compose_batches(neighbours, 2), key=min)]
        [[0, 1], [2, 3]]
    """
    lists = neighbours.indices if isinstance(neighbours, Neighbours) else torch.as_tensor(neighbours)
    _check_lists(lists)
    check_options(hardness, neighbourhood, method)
    pairs_per_batch = checked_positive("pairs_per_batch", pairs_per_batch)
    compact, counts = _compact(labels, len(lists))
    plan = plan_batches(counts, pairs_per_batch, drop_last=drop_last, smallest=smallest, multiple=multiple)
    near = _near(lists, lists_width(method, neighbour_range) if hardness > 0 else 0, copy=method == "sample4geo")
    chunk = neighbourhood_size(neighbourhood, int(plan.sizes.max()))
    how = How(COMPOSITIONS.index(method), chunk, hardness, min(neighbour_select, near.shape[1]))
    return _batches(*compose_epoch(near, compact, plan, how, np.random.default_rng(seed), run_parts))


def shuffle_batches(sizes: Any, *, labels: Any = None, seed: int = 0) -> Batches:
    """Put pairs into random batches of given sizes, with no label twice in a batch.

    Args:
        sizes: Pairs of each batch, integers; a last one that is shorter than all others stays the last.
        labels: Integers, one per pair. It must be possible to fill batches of these sizes without repeating a label in
            any of them. By default, no two pairs share a label.
        seed: Decides the order.

    Examples:
        >>> [len(batch) for batch in shuffle_batches([2, 2, 1])]
        [2, 2, 1]
    """
    sizes = np.asarray(sizes, np.int64)
    compact, counts = _compact(labels, int(sizes.sum()))
    ends_short = bool(len(sizes) > 1 and sizes[-1] < sizes[:-1].min())
    # As in `plan_batches`: a short one first, the others from the largest on. They can be filled: they have been.
    in_order = -np.sort(-sizes[: len(sizes) - ends_short])
    plan = Plan(np.append(sizes[-1:], in_order) if ends_short else in_order, ends_short, counts, 0)
    near, how = np.empty((len(counts) if compact is None else len(compact), 0), np.int32), How(GROWTH, 1, 0.0, 0)
    return _batches(*compose_epoch(near, compact, plan, how, np.random.default_rng(seed), in_threads))


def _batches(ids: Array, offsets: Array, left_out: Array) -> Batches:
    return Batches(*map(torch.from_numpy, (ids, offsets, left_out)))


def _compact(labels: Any, n: int) -> tuple[Array | None, Array]:
    """Number the labels from 0 on, int32, and count their pairs; None: every pair has its own."""
    if labels is None:
        return None, np.ones(n, np.int64)
    given = checked_labels("labels", labels, n).cpu().numpy()
    low, high = int(given.min()), int(given.max())
    if high - low < 4 * n:  # as below, without sorting
        present = np.bincount(given - low)
        numbers = np.cumsum(present > 0, dtype=np.int32) - np.int32(1)
        return numbers[given - low], present[present > 0]
    numbered = np.unique(given, return_inverse=True)[1].astype(np.int32)
    return numbered, np.bincount(numbered)


def _near(lists: Tensor, width: int, *, copy: bool) -> Array:
    """Return the lists that composition looks at, int32; "sample4geo" draws from them in place and needs a copy."""
    near: Array = lists[:, :width].cpu().to(torch.int32, copy=copy).contiguous().numpy()
    return near


def lists_width(method: str, neighbour_range: int = NEIGHBOUR_RANGE) -> int:
    """Return how many neighbours of each pair a method looks at."""
    return GRAPH_NEIGHBOURS if method == "growth" else neighbour_range


def neighbourhood_size(neighbourhood: Neighbourhood, pairs_per_batch: int) -> int:
    """Return how many pairs a neighbourhood has in batches of this size.

    Examples:
        >>> [neighbourhood_size("auto", size) for size in (16, 64, 65, 512)], neighbourhood_size(None, 512)
        ([16, 64, 32, 32], 512)
    """
    if neighbourhood == "auto":
        neighbourhood = None if pairs_per_batch <= ONE_UP_TO else NEIGHBOURHOOD
    return pairs_per_batch if neighbourhood is None else min(neighbourhood, pairs_per_batch)


def check_options(hardness: float, neighbourhood: Neighbourhood, method: str) -> None:
    """Check the options of composition."""
    Range(0, 1, with_high=True).check("hardness", hardness)
    if isinstance(neighbourhood, str) and neighbourhood != "auto":
        raise ValueError(f'neighbourhood must be a number of pairs, "auto" or None, got {neighbourhood!r}.')
    if neighbourhood is not None and neighbourhood != "auto":
        checked_positive("neighbourhood", neighbourhood)
    check_choice("method", method, COMPOSITIONS)


def _check_lists(lists: Tensor) -> None:
    if lists.ndim != 2 or lists.is_floating_point():
        raise TypeError(f"neighbours must be integers of the shape [n, k], got {lists.dtype} {list(lists.shape)}.")
    if len(lists) == 0:
        raise ValueError("there are no pairs to compose batches from.")
    if lists.numel() == 0:
        return
    low, high = lists.aminmax()
    if int(low) < -1 or int(high) >= len(lists):
        raise ValueError(f"neighbours must be between -1 and {len(lists) - 1}, the ids of the listed pairs.")
