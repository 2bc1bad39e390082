"""Divide pairs into parts that are composed on their own, so that most neighbours stay together."""

from typing import NamedTuple

import numpy as np

from lookalike.batches.clusters import find_clusters
from lookalike.batches.divide import EDGES, FREE, LEVELS, SCALE, TAKEN, Division, divide, look_around
from lookalike.batches.fill import Classes
from lookalike.batches.plan import Plan
from lookalike.batches.threads import in_slices
from lookalike.utils.arrays import Array

PART_PAIRS = 12_288  # pairs of a part, within a factor of the square root of two: its graph fits into a core's cache
WHOLE_PAIRS = 1 << 16  # up to here pairs stay together: that takes a tenth of a second


class Partition(NamedTuple):
    """Which pairs are composed together, and into which batches."""

    pairs: Array  # int32 [total]: part after part, in each first its own pairs and then those drawn at random
    place: Array  # int32 [n]: where a pair is in `pairs`; -1: left out
    starts: Array  # int64 [parts + 1]: where the pairs of a part begin
    own: Array  # int64 [parts]: how many of them are its own
    first_batch: Array  # int64 [parts + 1]: which batches of the plan it has


def number_of_parts(n: int) -> int:
    """Return how many parts n pairs are divided into: a power of two, which any usual number of threads divides.

    Examples:
        >>> [number_of_parts(n) for n in (1, 65_536, 100_000, 532_736, 8_800_000)]
        [1, 1, 8, 32, 512]
    """
    return 1 if n <= WHOLE_PAIRS else int(2 ** max(0, round(np.log2(n / PART_PAIRS))))


def partition(
    near: Array,  # int32 [n, k]
    classes: Classes | None,  # None: every pair has its own label
    left_out: Array,  # bool [n]
    order: Array,  # int32 [n]: the pairs, shuffled
    plan: Plan,
    random_slots: Array,  # int64 [num_batches]: places of each batch for pairs that are drawn from the whole data set
    seed: int,
) -> Partition:
    """Divide the pairs that are not left out into parts, and the batches of the plan among them."""
    n, first_batch = len(near), _first_batches(plan, number_of_parts(len(near)))
    starts = np.concatenate([[0], np.cumsum(plan.sizes)])[first_batch]
    shares = np.add.reduceat(random_slots, first_batch[:-1])
    status = np.where(left_out, TAKEN, FREE).astype(np.int8)
    pairs, own = np.empty(starts[-1], np.int32), np.empty(len(shares), np.int64)
    division = _division(near, classes, status, np.diff(first_batch), np.diff(starts), seed, pairs)
    divide(division, order, np.diff(first_batch), starts, shares, own)
    place = np.full(n, -1, np.int32)
    place[pairs] = np.arange(len(pairs), dtype=np.int32)
    return Partition(pairs, place, starts, own, first_batch)


def _first_batches(plan: Plan, num_parts: int) -> Array:
    """Return where the batches of each part begin, [parts + 1]; a short one, filled first, is a part itself."""
    short, num_batches = int(plan.ends_short), len(plan.sizes)
    num_parts = max(1, min(num_parts, num_batches - short))
    edges = np.linspace(short, num_batches, num_parts + 1).astype(np.int64)
    return np.append(0, edges) if short else edges


def _division(
    near: Array, classes: Classes | None, status: Array, batches: Array, sizes: Array, seed: int, pairs: Array
) -> Division:
    cluster, begin, members = find_clusters(near, seed)
    towards = np.empty((len(near), EDGES), np.int32)
    in_slices(len(near), lambda first, last: look_around(near, cluster, members, first, last, towards))
    cluster_sizes = np.diff(begin)
    clusters = np.full((len(cluster_sizes), 4), -1, np.int32)
    clusters[:, 0] = 0
    clusters[:, SCALE] = (LEVELS << 16) // (cluster_sizes * EDGES)
    if classes is None:
        labels = left = of_label = of_label_begin = np.empty(0, np.int32)
    else:
        labels, of_label, of_label_begin = classes.labels, classes.members, classes.offsets[:-1].copy()
        left = np.bincount(labels[status != TAKEN], minlength=len(of_label_begin)).astype(np.int32)
    return Division(
        cluster=cluster,
        begin=begin[:-1].copy(),
        end=begin[1:],
        members=members,
        towards=towards,
        clusters=clusters,
        touched=np.empty(len(clusters), np.int32),
        heads=np.full(LEVELS, -1, np.int32),
        entries=np.empty((int(sizes.max()) * EDGES, 2), np.int32),
        status=status,
        labels=labels,
        left=left,
        given=np.full((len(left), 2), -1, np.int32),
        large=np.flatnonzero(left > batches[-1]).astype(np.int32),
        of_label=of_label,
        of_label_begin=of_label_begin,
        counts=np.zeros(6, np.int64),
        pairs=pairs,
    )
