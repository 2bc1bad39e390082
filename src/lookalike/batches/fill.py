"""The numba kernels that fill batches from the neighbour graph.

Filling is greedy and never needs repair: when R batches are left, every label with R pairs left gives one to this
batch (its *deadline*), so no label can have more pairs left than there are batches to put them in.
"""

from typing import Any, NamedTuple

import numpy as np

from lookalike.utils.jit import kernel
from lookalike.utils.splitmix import STEP, splitmix64

LEVELS = 64  # of the priority queue

GROWTH, SAMPLE4GEO = 0, 1
FREE, LEFT_OUT = -1, -2


class Graph(NamedTuple):
    """Undirected neighbour graph; an edge that both ends list counts twice."""

    offsets: Any  # int32 [n + 1]
    edges: Any  # uint16 [m], or int32 where there are more pairs than that can number


class Classes(NamedTuple):
    """Which pairs have which label."""

    labels: Any  # int32 [n]
    offsets: Any  # int32 [num_labels + 1]
    members: Any  # int32 [n], grouped by label, shuffled within


class State(NamedTuple):
    """Working memory of `fill`."""

    nodes: Any  # int32 [n, 4]: what is read of a pair together; columns below
    touched: Any  # int32 [n]: pairs with a gain
    heads: Any  # int32 [LEVELS]: the last entry of each queue level
    entries: Any  # int32 [capacity, 2]: a queued pair, and the entry before it; a pair that moves up leaves it behind
    queued: Any  # int64 [1]: entries in use
    left: Any  # int32 [num_labels]: pairs still to place
    stamp: Any  # int32 [num_labels]: last batch that got the label
    by_left: Any  # int32 [max_left + 1]: first label with that many pairs left
    label_before: Any  # int32 [num_labels]
    label_after: Any  # int32 [num_labels]
    random: Any  # uint64 [1]


HOME = 0  # the batch of a pair, FREE or LEFT_OUT
LEVEL = 1  # its level in the queue; -1: not queued
GAIN = 2  # its edges into the current chunk
SCALE = 3  # levels per edge, in units of 1 / 65536: a multiplication is cheaper than dividing by the number of edges


@kernel
def gather(neighbours: Any, pairs: Any, place: Any, start: int, listed: Any, ends: Any, counts: Any) -> None:
    """List which of `pairs` each of them lists, by position, and count edges: those it lists and those that list it."""
    end = 0
    for i in range(len(pairs)):
        for slot in range(neighbours.shape[1]):
            neighbour = neighbours[pairs[i], slot]
            j = place[neighbour] - start
            inside = (neighbour >= 0) & (j >= 0) & (j < len(pairs)) & (j != i)
            listed[end] = (
                j if inside else 0
            )  # without a branch, which nobody could predict; the next one writes over it
            end += inside
        ends[i] = end
    begin = 0
    for i in range(len(pairs)):
        counts[i] += ends[i] - begin
        for at in range(begin, ends[i]):
            counts[listed[at]] += 1
        begin = ends[i]


@kernel
def connect(listed: Any, ends: Any, filled: Any, edges: Any, first: int, last: int) -> None:
    """Write the edges of pairs first..last-1; `filled` starts as a copy of the offsets."""
    begin = 0
    for i in range(len(ends)):
        own = first <= i < last
        for at in range(begin, ends[i]):
            j = listed[at]
            if own:
                edges[filled[i]] = j
                filled[i] += 1
            if first <= j < last:
                edges[filled[j]] = i
                filled[j] += 1
        begin = ends[i]


_mix = kernel(splitmix64)


@kernel
def _random_below(state: State, n: int) -> int:
    """Draw a number below n."""
    state.random[0] += STEP
    return int(_mix(state.random[0]) % np.uint64(n))


@kernel
def _queue(state: State, i: int, level: int) -> None:
    """Queue a pair at a level. Its entry at a lower one stays behind and is skipped: moving it would cost more."""
    entry = state.queued[0]
    state.entries[entry, 0], state.entries[entry, 1] = i, state.heads[level]
    state.heads[level], state.nodes[i, LEVEL] = entry, level
    state.queued[0] = entry + 1


@kernel
def _file_label(state: State, label: int) -> None:
    """List a label under the number of its pairs left."""
    first = state.by_left[state.left[label]]
    state.label_before[label], state.label_after[label] = -1, first
    if first >= 0:
        state.label_before[first] = label
    state.by_left[state.left[label]] = label


@kernel
def _unfile_label(state: State, label: int) -> None:
    before, after = state.label_before[label], state.label_after[label]
    if before >= 0:
        state.label_after[before] = after
    else:
        state.by_left[state.left[label]] = after
    if after >= 0:
        state.label_before[after] = before


@kernel
def _place(graph: Graph, classes: Classes, state: State, i: int, batch: int, touched: int, grow: bool) -> int:
    """Put a pair into the batch; if growing, raise the priority of its free neighbours. Returns the new `touched`."""
    label = classes.labels[i]
    state.nodes[i, LEVEL] = -1
    state.nodes[i, HOME], state.stamp[label] = batch, batch
    _unfile_label(state, label)
    state.left[label] -= 1
    _file_label(state, label)
    if grow:
        for e in range(graph.offsets[i], graph.offsets[i + 1]):
            j = graph.edges[e]
            if state.nodes[j, HOME] != FREE:
                continue
            if state.nodes[j, GAIN] == 0:
                state.touched[touched] = j
                touched += 1
            state.nodes[j, GAIN] += 1
            level = min(LEVELS - 1, (state.nodes[j, GAIN] * state.nodes[j, SCALE]) >> 16)
            if level != state.nodes[j, LEVEL]:
                _queue(state, j, level)
    return touched


@kernel
def _forget(state: State, touched: int) -> None:
    """Empty the queue: a new chunk begins."""
    for t in range(touched):
        i = state.touched[t]
        state.nodes[i, LEVEL], state.nodes[i, GAIN] = -1, 0
    state.heads[:] = -1
    state.queued[0] = 0


@kernel
def _most_connected(classes: Classes, state: State, batch: int) -> int:
    """Return the queued pair with the largest fraction of its edges in the chunk, its label not in the batch, or -1."""
    for level in range(LEVELS - 1, -1, -1):
        while state.heads[level] >= 0:
            i, before = state.entries[state.heads[level]]
            state.heads[level] = before
            if state.nodes[i, LEVEL] != level:  # left behind
                continue
            state.nodes[i, LEVEL] = -1
            if state.stamp[classes.labels[i]] != batch:
                return int(i)
    return -1


@kernel
def _from_class(classes: Classes, state: State, label: int) -> int:
    """Return the free pair of a label that has most edges in the chunk, or the first one."""
    best, most = -1, -1
    for m in range(classes.offsets[label], classes.offsets[label + 1]):
        i = classes.members[m]
        if state.nodes[i, HOME] == FREE and state.nodes[i, GAIN] > most:
            best, most = i, state.nodes[i, GAIN]
    return best


@kernel
def _next_free(classes: Classes, state: State, order: Any, start: int, batch: int) -> int:
    """Return the position in `order` of the next free pair whose label is not in the batch."""
    position = start
    while position < len(order):
        i = order[position]
        if state.nodes[i, HOME] == FREE and state.stamp[classes.labels[i]] != batch:
            return position
        position += 1
    return -1


@kernel
def _first_free(state: State, order: Any, start: int) -> int:
    """Return the position in `order` of the next free pair of any label, or the end."""
    position = start
    while position < len(order) and state.nodes[order[position], HOME] != FREE:
        position += 1
    return position


@kernel
def fill(
    method: int,
    graph: Graph,
    neighbours: Any,  # int32 [n, width]: for SAMPLE4GEO, nearest first
    select: int,  # for SAMPLE4GEO: how many neighbours an anchor brings
    classes: Classes,
    state: State,
    order: Any,  # int32 [n]: the pairs, shuffled, as they seed growth
    rest: Any,  # int32 [n]: the same ones, as they are drawn at random
    sizes: Any,  # int64 [num_batches], in the order they are filled: never less than total left / batches left
    chunk: int,  # pairs that grow from one seed
    hardness: float,  # fraction of a batch that comes from the graph
    batches: Any,  # int32 [num_batches, largest] out
    drawn: Any,  # bool [n] out: pairs that were drawn at random on purpose
) -> None:
    """Assign every pair that is not left out to a batch."""
    num_batches, front, rest_front = len(sizes), 0, 0
    for label in range(len(state.left)):
        _file_label(state, label)
    for batch in range(num_batches):
        size, filled, touched, in_chunk = sizes[batch], 0, 0, 0
        from_graph = int(np.round(hardness * size))
        deadline = num_batches - batch
        due = 0  # labels that must be in this batch and are not yet
        if deadline < len(state.by_left):
            label = state.by_left[deadline]
            while label >= 0:
                due += 1
                label = state.label_after[label]
        front, rest_front = _first_free(state, order, front), _first_free(state, rest, rest_front)
        while filled < size:
            i = -1
            growing = filled < from_graph
            if filled + due >= size:  # labels that are due take the remaining places
                label = state.by_left[deadline]
                while state.stamp[label] == batch:
                    label = state.label_after[label]
                i = _from_class(classes, state, label)
            elif method == GROWTH and growing and 0 < in_chunk < chunk:
                i = _most_connected(classes, state, batch)
            if i < 0:
                if growing:
                    i = order[_next_free(classes, state, order, front, batch)]
                    _forget(state, touched)
                    touched, in_chunk = 0, 0
                else:
                    i = rest[_next_free(classes, state, rest, rest_front, batch)]
                drawn[i] = not growing
            if state.left[classes.labels[i]] == deadline:
                due -= 1
            touched = _place(graph, classes, state, i, batch, touched, growing and method == GROWTH)
            batches[batch, filled] = i
            filled += 1
            in_chunk += 1
            if method == SAMPLE4GEO and growing:
                filled, due = _bring_neighbours(
                    graph,
                    neighbours,
                    select,
                    classes,
                    state,
                    i,
                    batch,
                    filled,
                    from_graph,
                    size,
                    due,
                    deadline,
                    batches,
                )
        _forget(state, touched)


@kernel
def _bring_neighbours(
    graph: Graph,
    neighbours: Any,
    select: int,
    classes: Classes,
    state: State,
    anchor: int,
    batch: int,
    filled: int,
    from_graph: int,
    size: int,
    due: int,
    deadline: int,
    batches: Any,
) -> tuple[int, int]:
    """Bring neighbours as Sample4Geo does: half of `select` the nearest, half drawn from the rest of the list."""
    width = neighbours.shape[1]
    for taken in range(select):
        slot = taken
        if taken >= select // 2:  # a Fisher-Yates step: the drawn neighbour moves to the front
            slot = taken + _random_below(state, width - taken)
            neighbours[anchor, taken], neighbours[anchor, slot] = neighbours[anchor, slot], neighbours[anchor, taken]
        i = neighbours[anchor, taken]
        if filled >= from_graph or filled + due >= size:
            break
        if i < 0 or state.nodes[i, HOME] != FREE or state.stamp[classes.labels[i]] == batch:
            continue
        if state.left[classes.labels[i]] == deadline:
            due -= 1
        _place(graph, classes, state, i, batch, 0, False)
        batches[batch, filled] = i
        filled += 1
    return filled, due
