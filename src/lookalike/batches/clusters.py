"""Put neighbours into small clusters, of which parts are made; any number of threads finds the same ones."""

from typing import Any

import numpy as np

from lookalike.batches.threads import in_slices
from lookalike.utils.arrays import Array
from lookalike.utils.jit import kernel
from lookalike.utils.splitmix import STEP, splitmix64

UPHILL = 2  # nearest neighbours among which a pair looks for a higher one: clusters begin with three pairs on average
VOTES = 2  # rounds in which pairs join the cluster of most of their neighbours

_mix = kernel(splitmix64)


@kernel
def point_uphill(near: Any, key: Any, first: int, last: int, uphill: Any) -> None:
    """Point pairs first..last-1 at the highest of themselves and their nearest; heights are random, from `key`."""
    for i in range(first, last):
        highest, height = i, _mix(key + np.uint64(i) * STEP)
        for slot in range(min(UPHILL, near.shape[1])):
            j = near[i, slot]
            if j >= 0:
                other = _mix(key + np.uint64(j) * STEP)
                if other > height:
                    highest, height = j, other
        uphill[i] = highest


@kernel
def climb(uphill: Any, first: int, last: int, peaks: Any) -> None:
    """Follow the pointers of pairs first..last-1 up to where they end."""
    for i in range(first, last):
        peak = uphill[i]
        while uphill[peak] != peak:
            peak = uphill[peak]
        peaks[i] = peak


@kernel
def vote(near: Any, cluster: Any, first: int, last: int, ballots: Any, voted: Any) -> None:
    """Find for pairs first..last-1 the cluster that most of their neighbours are in; their own vote counts as well.

    Of several clusters with as many votes, it is the own one, or that of the nearest neighbour. All ballots are
    compared with each other: counting by cluster would take fewer steps, but each to another place in memory.
    """
    for i in range(first, last):
        ballots[0] = cluster[i]
        for slot in range(near.shape[1]):
            j = near[i, slot]
            ballots[slot + 1] = cluster[j] if j >= 0 else -1
        most = 0
        for b in range(len(ballots)):
            votes = 0
            for other in range(len(ballots)):
                votes += ballots[b] == ballots[other]
            if votes > most and ballots[b] >= 0:
                most, voted[i] = votes, ballots[b]


@kernel
def count_groups(groups: Any, counts: Any) -> None:
    """Add the number of pairs in each group to `counts`."""
    for i in range(len(groups)):
        counts[groups[i]] += 1


@kernel
def group(groups: Any, order: Any, ends: Any, members: Any) -> None:
    """List pairs by group, in the order of `order` within each; `ends` starts as where the lists begin."""
    for at in range(len(order)):
        i = order[at]
        members[ends[groups[i]]] = i
        ends[groups[i]] += 1


def find_clusters(near: Array, seed: int) -> tuple[Array, Array, Array]:
    """Return the cluster of each pair, int32 [n], where the members of each begin, and the members.

    Every pair points uphill, on random heights, to a near neighbour, and those that end on the same peak are a cluster;
    then each joins the cluster that most of its neighbours are in.
    """
    n, key = len(near), np.uint64(seed)
    cluster, other = np.empty(n, np.int32), np.empty(n, np.int32)
    in_slices(n, lambda first, last: point_uphill(near, key, first, last, other))
    in_slices(n, lambda first, last: climb(other, first, last, cluster))
    for _ in range(VOTES):
        _vote(near, cluster, other)
        cluster, other = other, cluster
    return cluster, *by_group(cluster, _renumber(cluster))


def _vote(near: Array, cluster: Array, voted: Array) -> None:
    width = near.shape[1] + 1
    in_slices(len(near), lambda first, last: vote(near, cluster, first, last, np.empty(width, np.int32), voted))


def _renumber(cluster: Array) -> int:
    """Number clusters from 0 on, in place, and return how many there are."""
    numbers = np.zeros(len(cluster), np.int32)
    numbers[cluster] = 1
    np.cumsum(numbers, out=numbers)
    num_clusters = int(numbers[-1])
    numbers -= 1
    np.take(numbers, cluster, out=cluster)
    return num_clusters


def by_group(groups: Array, num_groups: int, order: Array | None = None) -> tuple[Array, Array]:
    """Return where the members of each group begin, int32 [groups + 1], and the members, in a given order or by id."""
    begin, members = np.zeros(num_groups + 1, np.int32), np.empty(len(groups), np.int32)
    count_groups(groups, begin[1:])
    np.cumsum(begin, out=begin)
    order = np.arange(len(groups), dtype=np.int32) if order is None else order
    group(groups, order, begin[:-1].copy(), members)
    return begin, members
