"""Compose the batches of an epoch, part by part."""

import zlib
from collections.abc import Callable

import numpy as np

from lookalike.batches.clusters import by_group
from lookalike.batches.fill import GROWTH, Classes, Graph
from lookalike.batches.part import How, fill_batches, local_graph
from lookalike.batches.partition import Partition, number_of_parts, partition
from lookalike.batches.plan import Plan
from lookalike.batches.threads import RunParts, in_one_slice, in_slices
from lookalike.utils.arrays import Array


def compose_epoch(
    near: Array, labels: Array | None, plan: Plan, how: How, rng: np.random.Generator, run_parts: RunParts
) -> tuple[Array, Array, Array]:
    """Compose batches; return their pairs one after another, where each begins, and the pairs that are left out.

    Args:
        near: The neighbours of each pair, int32 [n, k]; "sample4geo" changes it.
        labels: Numbered from 0 on, int32 [n]; None: every pair has its own.
        plan: The sizes of the batches.
        how: How to fill them.
        rng: Decides everything random.
        run_parts: Runs the jobs that compose the parts.
    """
    n = len(near)
    order = rng.permutation(n).astype(np.int32)
    classes = None if labels is None else classes_of(labels, order)
    left_out = _left_out(n, classes, plan, rng)
    random = int(rng.integers(0, 2**63))
    if how.method == GROWTH and near.shape[1] and number_of_parts(n) > 1:
        parts = partition(near, classes, left_out, order, plan, how.random_slots(plan.sizes), random)
        job, checksum = _part_job(near, labels, parts, plan, how, random), zlib.crc32(parts.pairs.data)
        num_parts = len(parts.own)
    else:
        job, checksum = _only_job(near, classes, left_out, order, plan, how, random), zlib.crc32(order.data)
        num_parts = 1
    del classes, order
    ids = np.concatenate(run_parts(num_parts, job, checksum))
    sequence = rng.permutation(len(plan.sizes) - plan.ends_short) + plan.ends_short
    if plan.ends_short:
        sequence = np.append(sequence, 0)
    return *_in_sequence(ids, plan.sizes, sequence), np.flatnonzero(left_out)


def classes_of(labels: Array | None, order: Array) -> Classes:
    """Group pairs by label, in the order of `order` within each."""
    if labels is None:
        own = np.arange(len(order) + 1, dtype=np.int32)
        return Classes(own[:-1], own, own[:-1])
    return Classes(labels, *by_group(labels, int(labels.max()) + 1, order))


def _left_out(n: int, classes: Classes | None, plan: Plan, rng: np.random.Generator) -> Array:
    """Choose the pairs that are in no batch, bool [n]."""
    left_out = np.zeros(n, np.bool_)
    if classes is not None:
        # Members are shuffled within their label, so those beyond the quota are a random choice.
        counts = np.diff(classes.offsets)
        for label in np.flatnonzero(counts > plan.quotas):
            left_out[classes.members[classes.offsets[label] + plan.quotas[label] : classes.offsets[label + 1]]] = True
    if plan.num_dropped:
        left_out[rng.choice(np.flatnonzero(~left_out), plan.num_dropped, replace=False)] = True
    return left_out


def _only_job(
    near: Array, classes: Classes | None, left_out: Array, order: Array, plan: Plan, how: How, random: int
) -> Callable[[int], Array]:
    """Return the job of composing all pairs as one part, with threads inside it."""

    def job(_: int) -> Array:
        n = len(near)
        if how.method == GROWTH and near.shape[1]:
            everyone = np.arange(n, dtype=np.int32)
            graph = local_graph(near, everyone, everyone, 0, n, in_slices)
        else:
            graph = Graph(np.zeros(n + 1, np.int32), np.empty(0, np.uint16))
        own = classes_of(None, order) if classes is None else classes
        return fill_batches(how, graph, near, own, left_out, order, order, plan.sizes, random, in_slices)

    return job


def _part_job(
    near: Array, labels: Array | None, parts: Partition, plan: Plan, how: How, random: int
) -> Callable[[int], Array]:
    """Return the job of composing one part."""
    none = np.empty((0, 0), np.int32)

    def job(part: int) -> Array:
        rng = np.random.default_rng([random, part])
        start, own = int(parts.starts[part]), int(parts.own[part])
        pairs = parts.pairs[start : parts.starts[part + 1]]
        sizes = plan.sizes[parts.first_batch[part] : parts.first_batch[part + 1]]
        grown = rng.permutation(own).astype(np.int32)
        drawn = (rng.permutation(len(pairs) - own) + own).astype(np.int32)
        order, rest = np.concatenate([grown, drawn]), np.concatenate([drawn, grown])
        local = None if labels is None else np.unique(labels[pairs], return_inverse=True)[1].astype(np.int32)
        graph = local_graph(near, pairs[:own], parts.place, start, len(pairs), in_one_slice)
        filled = fill_batches(
            how, graph, none, classes_of(local, order), None, order, rest, sizes, random, in_one_slice
        )
        return pairs[filled]

    return job


def _in_sequence(ids: Array, sizes: Array, sequence: Array) -> tuple[Array, Array]:
    """Put batches into a new sequence; return their pairs and where each begins."""
    starts, sizes = (np.cumsum(sizes) - sizes)[sequence], sizes[sequence]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    moved = np.repeat(starts - offsets[:-1], sizes)
    moved += np.arange(len(ids))
    return ids[moved], offsets
