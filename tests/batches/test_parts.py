"""Pairs that are composed in several parts."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from lookalike import SignHasher, hard_negatives
from lookalike.batches import _near, compose_batches, partition, plan_batches
from lookalike.batches.clusters import find_clusters
from lookalike.data.synthetic import clustered_embeddings
from tests.batches.test_compose import hits

KINDS = ["singletons", "as many labels as a batch holds", "in every batch", "one giant", "heavy tail", "some", "few"]


@pytest.fixture(scope="module", autouse=True)
def small_parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "PART_PAIRS", 40)
        patch.setattr(partition, "WHOLE_PAIRS", 50)
        yield


@pytest.fixture(scope="module")
def graph():
    x, labels = clustered_embeddings(3000, dim=64, seed=0)
    return hard_negatives(SignHasher(64, 256).encode(x), labels, 32), labels


def labels_of(kind, n, pairs_per_batch, rng):
    if kind == "singletons":
        return np.arange(n)
    if kind == "as many labels as a batch holds":
        return np.arange(n) % pairs_per_batch
    if kind == "in every batch":  # three labels with a pair for each batch
        batches = -(-n // pairs_per_batch)
        return np.concatenate([np.repeat([0, 1, 2], batches), 3 + np.arange(n)])[:n]
    if kind == "one giant":
        return np.where(rng.random(n) < 0.7, 0, np.arange(n) + 1)
    if kind == "heavy tail":
        return np.minimum(rng.zipf(1.4, n), n // 3)
    return rng.integers(0, n // 6 if kind == "some" else pairs_per_batch + 2, n)


@given(
    kind=st.sampled_from(KINDS),
    n=st.sampled_from([130, 300, 517]),
    pairs_per_batch=st.sampled_from([1, 2, 5, 16]),
    hardness=st.sampled_from([0.3, 0.5, 1.0]),
    drop_last=st.booleans(),
    smallest=st.sampled_from([1, 4]),
    lists=st.sampled_from(["random", "near by", "a hub", "none"]),
    seed=st.integers(0, 10**6),
)
@example("in every batch", 517, 16, 0.5, False, 1, "near by", 0)
@example("as many labels as a batch holds", 517, 5, 1.0, False, 1, "random", 0)
def test_every_pair_once_and_no_label_twice(kind, n, pairs_per_batch, hardness, drop_last, smallest, lists, seed):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(labels_of(kind, n, pairs_per_batch, rng))
    neighbours = {
        "random": rng.integers(-1, n, (n, 8)),
        "near by": (np.arange(n)[:, None] + [1, 2, -1, -2, 7]) % n,
        "a hub": np.tile([5, 6], (n, 1)),
        "none": np.full((n, 3), -1),
    }[lists]
    counts = np.unique(labels, return_counts=True)[1]
    if len(counts) < pairs_per_batch:
        return
    options = {"drop_last": drop_last, "smallest": smallest}
    plan = plan_batches(counts, pairs_per_batch, **options)
    batches = compose_batches(neighbours, pairs_per_batch, labels=labels, hardness=hardness, seed=seed, **options)
    assert sorted(map(len, batches)) == sorted(plan.sizes)
    if plan.ends_short:
        assert len(batches[-1]) == plan.sizes[0]
    for batch in batches:
        assert len(np.unique(labels[batch.numpy()])) == len(batch)
    assert sorted(torch.cat([*batches, batches.left_out]).tolist()) == list(range(n))


def test_the_number_of_parts_depends_on_the_number_of_pairs_alone(monkeypatch):
    monkeypatch.setattr(partition, "PART_PAIRS", 100)
    assert [partition.number_of_parts(n) for n in (1, 99, 141, 142, 800, 1600)] == [1, 1, 1, 2, 8, 16]


@pytest.mark.parametrize("hardness", [1.0, 0.5])
@pytest.mark.parametrize("with_labels", [False, True])
def test_any_number_of_threads_and_any_order_of_parts_composes_the_same(graph, threads, with_labels, hardness):
    neighbours, labels = graph
    options = {"labels": labels if with_labels else None, "hardness": hardness}
    checksums = []

    def backwards(num_parts, job, checksum):
        checksums.append(checksum)
        assert num_parts > 50
        return [job(part) for part in reversed(range(num_parts))][::-1]

    found = [compose_batches(neighbours, 16, **options, run_parts=backwards).ids]
    for number in (1, 2, 3):
        threads(number)
        found.append(compose_batches(neighbours, 16, **options).ids)
    for each in found[1:]:
        assert torch.equal(found[0], each)
    compose_batches(neighbours, 16, **options, run_parts=backwards)
    compose_batches(neighbours, 16, **options, seed=1, run_parts=backwards)
    assert checksums[0] == checksums[1] != checksums[2]


def test_a_job_returns_the_batches_of_its_part(graph):
    neighbours, _ = graph
    returned = []

    def keep(num_parts, job, _):
        returned.extend(job(part) for part in range(num_parts))
        return returned

    batches = compose_batches(neighbours, 16, run_parts=keep)
    assert all(part.dtype == np.int32 for part in returned)
    together = {tuple(batch) for part in returned for batch in np.split(part, range(16, len(part), 16))}
    assert together == {tuple(batch.tolist()) for batch in batches}


def test_parts_keep_most_neighbours_together(graph, monkeypatch):
    neighbours, labels = graph
    monkeypatch.setattr(partition, "PART_PAIRS", 400)
    parts = hits(compose_batches(neighbours, 16, labels=labels), neighbours)
    monkeypatch.setattr(partition, "PART_PAIRS", 10**6)
    assert parts > 0.85 * hits(compose_batches(neighbours, 16, labels=labels), neighbours)


def test_the_random_half_of_a_batch_comes_from_everywhere(monkeypatch):
    """Two rings without an edge between them, each as large as a part: hard batches hold pairs of one of them only."""
    monkeypatch.setattr(partition, "PART_PAIRS", 512)
    ring = (np.arange(512)[:, None] + [1, -1, 2, -2, 3, -3]) % 512
    lists = np.concatenate([ring, ring + 512])
    for hardness, least in ((1.0, 0), (0.5, 2)):
        second = np.array([int((batch >= 512).sum()) for batch in compose_batches(lists, 32, hardness=hardness)])
        mixed = np.minimum(second, 32 - second)
        assert (mixed.mean() < 2) if hardness == 1 else (mixed.mean() > 5 and mixed.min() >= least)


def test_lists_are_copied_only_where_that_is_needed(graph):
    lists = graph[0].indices.int()
    assert np.shares_memory(_near(lists, 32, copy=False), lists.numpy())
    assert not np.shares_memory(_near(lists, 32, copy=True), lists.numpy())
    assert torch.equal(compose_batches(lists, 16).ids, compose_batches(graph[0], 16).ids)


def test_clusters_are_groups_of_neighbours(threads):
    """Cliques of six, apart from each other: no cluster has pairs of two of them, and votes make each clique one."""
    members = np.arange(600).reshape(-1, 6)
    lists = np.array([np.delete(members[i // 6], i % 6) for i in range(600)], np.int32)
    found = []
    for number in (1, 3):
        threads(number)
        cluster, begin, listed = find_clusters(lists, seed=3)
        found.append(cluster.copy())
        for first, last in pairwise(begin):
            assert len(set(listed[first:last] // 6)) == 1
            assert len(set(cluster[listed[first:last]])) == 1
    assert np.array_equal(*found)
    assert len(begin) - 1 < 150
