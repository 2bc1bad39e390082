"""Compose the batches of one part of the pairs: grow them, then swap pairs between them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lookalike.batches import swaps
from lookalike.batches.fill import (
    FREE,
    GAIN,
    GROWTH,
    HOME,
    LEFT_OUT,
    LEVELS,
    SCALE,
    Classes,
    Graph,
    State,
    connect,
    fill,
    gather,
)
from lookalike.utils.arrays import Array

SWAPS = 2  # passes; each takes as long as the one before and brings fewer neighbours together

InSlices = Callable[[int, Callable[[int, int], Any]], None]


class How(NamedTuple):
    """How batches are filled, the same in all parts."""

    method: int  # GROWTH or SAMPLE4GEO
    chunk: int  # pairs that grow from one seed
    hardness: float  # fraction of a batch that comes from the graph
    select: int  # for SAMPLE4GEO: how many neighbours an anchor brings

    def random_slots(self, sizes: Array) -> Array:
        """Return how many places of batches of these sizes are for pairs drawn at random, as `fill` counts them."""
        slots: Array = sizes - np.round(self.hardness * sizes).astype(np.int64)
        return slots


def fill_batches(
    how: How,
    graph: Graph,
    near: Array,  # int32 [n, k]: for SAMPLE4GEO
    classes: Classes,
    left_out: Array | None,  # bool [n]
    order: Array,  # int32 [n]: the pairs, shuffled, in which order they seed growth
    rest: Array,  # int32 [n]: in which order they are drawn at random
    sizes: Array,
    random: int,
    in_slices: InSlices,
) -> Array:
    """Return the pairs of the batches, one after another, int32."""
    state = _state(graph, classes, left_out, sizes, random)
    batches = np.empty((len(sizes), max(sizes, default=0)), np.int32)
    drawn = np.zeros(len(order), np.bool_)
    fill(
        how.method,
        graph,
        near,
        how.select,
        classes,
        state,
        order,
        rest,
        sizes,
        how.chunk,
        how.hardness,
        batches,
        drawn,
    )
    if how.method == GROWTH and len(graph.edges):
        home = state.nodes[:, HOME].copy()
        unique_labels = len(state.left) == len(order)
        del state
        _swap(graph, classes, home, sizes, batches, drawn, unique_labels, in_slices)
    if len(sizes) and sizes[0] == sizes[-1]:
        return batches.reshape(-1)
    return batches[np.arange(batches.shape[1]) < sizes[:, None]]


def local_graph(near: Array, pairs: Array, place: Array, start: int, num_pairs: int, in_slices: InSlices) -> Graph:
    """Connect some pairs with each other.

    Args:
        near: The lists of all pairs, int32 [n, k].
        pairs: Those to connect, int32 [own]; in the graph they are numbered from 0 on.
        place: Where `pairs` holds each of all pairs, plus `start`, int32 [n].
        start: What to subtract from it.
        num_pairs: Pairs of the graph: these, and others after them, without edges.
        in_slices: Runs `task(first, last)` for slices of the pairs.
    """
    number = np.uint16 if num_pairs <= 1 << 16 else np.int32
    offsets, ends = np.zeros(num_pairs + 1, np.int32), np.empty(len(pairs), np.int32)
    listed = np.empty(len(pairs) * near.shape[1] + 1, number)  # mostly untouched where parts cut many edges
    gather(near, pairs, place, start, listed, ends, offsets[1:])
    np.cumsum(offsets, out=offsets)
    edges, filled = np.empty(offsets[-1], number), offsets[:-1].copy()
    in_slices(len(pairs), lambda first, last: connect(listed, ends, filled, edges, first, last))
    return Graph(offsets, edges)


def _state(graph: Graph, classes: Classes, left_out: Array | None, sizes: Array, random: int) -> State:
    n, num_labels = len(classes.labels), len(classes.offsets) - 1
    nodes = np.full((n, 4), -1, np.int32)
    nodes[:, HOME], nodes[:, GAIN] = FREE, 0
    labels = classes.labels
    if left_out is not None:
        nodes[left_out, HOME] = LEFT_OUT
        labels = labels[~left_out]
    left = np.bincount(labels, minlength=num_labels).astype(np.int32)

    def none(size: int) -> Array:
        return np.full(size, -1, np.int32)

    edges = np.diff(graph.offsets)
    nodes[:, SCALE] = (LEVELS << 16) // np.maximum(1, edges)
    largest = min(n, int(max(sizes, default=0)))
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
        random=np.array([random], np.uint64),
    )


def _swap(
    graph: Graph,
    classes: Classes,
    home: Array,
    sizes: Array,
    batches: Array,
    drawn: Array,
    unique_labels: bool,
    in_slices: InSlices,
) -> None:
    """Propose swaps in parallel and carry them out one after another: any number of threads gives the same result."""
    weakest = np.empty((len(sizes), swaps.CANDIDATES), np.int32)
    targets = np.empty(len(drawn), np.int32)

    def propose(first: int, last: int) -> None:
        inside, counter = np.empty(batches.shape[1], np.int32), np.zeros(len(sizes), np.int32)
        swaps.propose(graph, home, sizes, batches, drawn, first, last, weakest, targets, inside, counter)

    for _ in range(SWAPS):
        in_slices(len(sizes), propose)
        if not swaps.swap(graph, classes, home, sizes, batches, weakest, targets, unique_labels):
            break
