"""Neighbours -> the batches of an epoch: pairs that are hard negatives of each other, together."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from lookalike.batches import swaps
from lookalike.batches.fill import (
    FREE,
    GAIN,
    HOME,
    LEFT_OUT,
    LEVELS,
    SCALE,
    Classes,
    Graph,
    State,
    connect,
    degrees,
    fill,
)
from lookalike.batches.plan import Plan, plan_batches
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
SWAPS = 2  # passes; each takes as long as the one before and brings fewer neighbours together


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
    compact = _compact(labels, len(lists))
    plan = plan_batches(
        np.bincount(compact), pairs_per_batch, drop_last=drop_last, smallest=smallest, multiple=multiple
    )
    near = _near(lists, lists_width(method, neighbour_range) if hardness > 0 else 0)
    rng = np.random.default_rng(seed)
    return _composed(near, compact, plan, neighbourhood, hardness, method, neighbour_select, rng)


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
    compact = _compact(labels, int(sizes.sum()))
    ends_short = bool(len(sizes) > 1 and sizes[-1] < sizes[:-1].min())
    # As in `plan_batches`: a short one first, the others from the largest on. They can be filled: they have been.
    in_order = -np.sort(-sizes[: len(sizes) - ends_short])
    plan = Plan(np.append(sizes[-1:], in_order) if ends_short else in_order, ends_short, np.bincount(compact), 0)
    near = np.empty((len(compact), 0), np.int32)
    return _composed(near, compact, plan, None, 0.0, "growth", 0, np.random.default_rng(seed))


def _compact(labels: Any, n: int) -> Array:
    """Number the labels from 0 on, int32; by default every pair has its own."""
    groups = torch.arange(n) if labels is None else checked_labels("labels", labels, n).cpu()
    numbered: Array = np.unique(groups.numpy(), return_inverse=True)[1].astype(np.int32)
    return numbered


def _near(lists: Tensor, width: int) -> Array:
    """Return the lists that composition looks at, int32, as a copy: "sample4geo" draws from it in place."""
    near: Array = lists[:, :width].cpu().to(torch.int32, copy=True).contiguous().numpy()
    return near


def _composed(
    near: Array,
    labels: Array,
    plan: Plan,
    neighbourhood: Neighbourhood,
    hardness: float,
    method: str,
    select: int,
    rng: np.random.Generator,
) -> Batches:
    n, num_batches, counts = len(labels), len(plan.sizes), np.bincount(labels)
    chunk = neighbourhood_size(neighbourhood, int(max(plan.sizes, default=1)))
    order = rng.permutation(n).astype(np.int32)
    members = order[np.argsort(labels[order], kind="stable")]
    classes = Classes(labels, np.concatenate([[0], np.cumsum(counts)]), members)
    graph = _graph(near if method == "growth" else near[:, :0])
    state = _state(graph, classes, plan, rng)
    batches = np.empty((num_batches, max(plan.sizes, default=0)), np.int32)
    drawn = np.zeros(n, np.bool_)
    code, select = COMPOSITIONS.index(method), min(select, near.shape[1])
    fill(code, graph, near, select, classes, state, order, plan.sizes, chunk, hardness, batches, drawn)
    if method == "growth":
        home = state.nodes[:, HOME].copy()
        _swap(graph, classes, home, plan.sizes, batches, drawn, unique_labels=len(counts) == n)
    sequence = rng.permutation(num_batches - plan.ends_short) + plan.ends_short
    if plan.ends_short:
        sequence = np.append(sequence, 0)
    used = np.arange(batches.shape[1]) < plan.sizes[sequence, None]
    offsets = np.concatenate([[0], np.cumsum(plan.sizes[sequence])])
    left_out = np.flatnonzero(state.nodes[:, HOME] == LEFT_OUT)
    return Batches(*map(torch.from_numpy, (batches[sequence][used], offsets, left_out)))


def _swap(
    graph: Graph,
    classes: Classes,
    home: Array,
    sizes: Array,
    batches: Array,
    drawn: Array,
    *,
    unique_labels: bool,
) -> None:
    """Propose swaps in parallel and carry them out one after another: any number of threads gives the same result."""
    weakest = np.empty((len(sizes), swaps.CANDIDATES), np.int32)
    targets = np.empty(len(drawn), np.int32)

    def propose(first: int, last: int) -> None:
        inside, counter = np.empty(batches.shape[1], np.int32), np.zeros(len(sizes), np.int32)
        swaps.propose(graph, home, sizes, batches, drawn, first, last, weakest, targets, inside, counter)

    for _ in range(SWAPS):
        _in_parallel(len(sizes), propose)
        if not swaps.swap(graph, classes, home, sizes, batches, weakest, targets, unique_labels):
            break


def _state(graph: Graph, classes: Classes, plan: Plan, rng: np.random.Generator) -> State:
    n, num_labels = len(classes.labels), len(plan.quotas)
    batch = np.full(n, FREE, np.int32)
    # Members are shuffled within their label, so those beyond the quota are a random choice.
    rank = np.empty(n, np.int64)
    rank[classes.members] = np.arange(n) - np.repeat(classes.offsets[:-1], np.diff(classes.offsets))
    batch[rank >= plan.quotas[classes.labels]] = LEFT_OUT
    if plan.num_dropped:
        batch[rng.choice(np.flatnonzero(batch == FREE), plan.num_dropped, replace=False)] = LEFT_OUT
    left = np.bincount(classes.labels[batch == FREE], minlength=num_labels).astype(np.int32)

    def none(size: int) -> Array:
        return np.full(size, -1, np.int32)

    edges = np.diff(graph.offsets)
    nodes = np.full((n, 4), -1, np.int32)
    nodes[:, HOME], nodes[:, GAIN] = batch, 0
    nodes[:, SCALE] = (LEVELS << 16) // np.maximum(1, edges)
    largest = min(n, int(max(plan.sizes, default=0)))
    capacity = int(
        np.partition(edges, n - largest)[n - largest :].sum()
    )  # each edge of a batch queues one pair at most
    return State(
        nodes=nodes,
        touched=none(n),
        heads=none(LEVELS),
        entries=np.empty((capacity, 2), np.int32),
        queued=np.zeros(1, np.int64),
        left=left,
        stamp=none(num_labels),
        by_left=none(int(left.max(initial=0)) + 1),
        label_before=none(num_labels),
        label_after=none(num_labels),
        random=rng.integers(0, 2**63, 1).astype(np.uint64),
    )


def _graph(near: Array) -> Graph:
    offsets = np.zeros(len(near) + 1, np.int64)
    degrees(near, offsets[1:])
    np.cumsum(offsets, out=offsets)
    edges, filled = np.empty(offsets[-1], np.int32), offsets.copy()
    _in_parallel(len(near), lambda first, last: connect(near, filled, edges, first, last))
    return Graph(offsets, edges)


def _in_parallel(n: int, task: Callable[[int, int], None]) -> None:
    """Call `task(first, last)` for as many parts of 0..n as there are threads."""
    threads = max(1, torch.get_num_threads())
    edges = np.linspace(0, n, threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(threads, "lookalike-batches") as pool:
        list(pool.map(task, edges[:-1], edges[1:]))


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
    if lists.numel() and not -1 <= int(lists.min()) <= int(lists.max()) < len(lists):
        raise ValueError(f"neighbours must be between -1 and {len(lists) - 1}, the ids of the listed pairs.")
