import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookalike import SignHasher, hard_negatives
from lookalike.batches import COMPOSITIONS, compose_batches, plan_batches
from lookalike.data.synthetic import clustered_embeddings
from tests.processes import run_function


def label_structure(kind, n, rng):
    if kind == "all singletons":
        return np.arange(n)
    if kind == "two classes":
        return np.arange(n) % 2
    if kind == "one huge class":
        return np.where(rng.random(n) < 0.6, 0, np.arange(n) + 1)
    if kind == "heavy tail":
        return np.minimum(rng.zipf(1.5, n), n // 2)
    return rng.integers(0, max(2, n // 4), n)


@given(
    kind=st.sampled_from(["all singletons", "two classes", "one huge class", "heavy tail", "some"]),
    n=st.sampled_from([2, 3, 17, 64, 300]),
    pairs_per_batch=st.sampled_from([1, 2, 5, 16]),
    hardness=st.sampled_from([0.0, 0.3, 1.0]),
    neighbourhood=st.sampled_from([1, 3, "auto", None]),
    method=st.sampled_from(COMPOSITIONS),
    drop_last=st.booleans(),
    k=st.sampled_from([0, 1, 8]),
    seed=st.integers(0, 10**6),
)
def test_every_pair_once_and_no_label_twice(
    kind, n, pairs_per_batch, hardness, neighbourhood, method, drop_last, k, seed
):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(label_structure(kind, n, rng))
    neighbours = rng.integers(-1, n, (n, k))
    options = {
        "labels": labels,
        "hardness": hardness,
        "neighbourhood": neighbourhood,
        "method": method,
        "drop_last": drop_last,
    }
    num_labels = len(np.unique(labels))
    if num_labels < pairs_per_batch:
        with pytest.raises(ValueError, match=f"{num_labels} labels fill batches of at most {num_labels} pairs"):
            compose_batches(neighbours, pairs_per_batch, seed=seed, **options)
        return
    batches = compose_batches(neighbours, pairs_per_batch, seed=seed, **options)
    counts = np.unique(labels, return_counts=True)[1]
    plan = plan_batches(counts, pairs_per_batch, drop_last=drop_last)
    assert len(batches) == len(plan.sizes)
    assert sorted(map(len, batches)) == sorted(plan.sizes)
    if plan.ends_short:
        assert len(batches[-1]) == plan.sizes[0]
    for batch in batches:
        assert batch.dtype == torch.int64
        assert len(np.unique(labels[batch.numpy()])) == len(batch)
    placed = torch.cat([*batches, batches.left_out]).tolist()
    assert sorted(placed) == list(range(n))
    left_out = np.bincount(np.unique(labels, return_inverse=True)[1][batches.left_out.numpy()], minlength=num_labels)
    if not drop_last:
        assert np.array_equal(counts - left_out, plan.quotas)
    again = compose_batches(neighbours, pairs_per_batch, seed=seed, **options)
    assert torch.equal(batches.ids, again.ids)


@pytest.fixture(scope="module")
def graph():
    x, labels = clustered_embeddings(6000, dim=64, seed=0)
    return hard_negatives(SignHasher(64, 256).encode(x), labels, 128), labels


def hits(batches, neighbours):
    """How many of a pair's nearest are in its batch, on average."""
    home = torch.full((len(neighbours.indices),), -1)
    for number, batch in enumerate(batches):
        home[batch] = number
    placed = home >= 0
    return float((home[neighbours.indices[placed]] == home[placed, None]).sum(1).float().mean())


def test_growth_is_harder_than_sample4geo_and_that_than_random(graph):
    neighbours, labels = graph
    found = {
        name: hits(compose_batches(neighbours, 64, labels=labels, **options), neighbours)
        for name, options in {
            "random": {"hardness": 0.0},
            "sample4geo": {"method": "sample4geo"},
            "growth": {"neighbourhood": None},
            "neighbourhoods of eight": {"neighbourhood": 8},
            "half": {"hardness": 0.5, "neighbourhood": None},
        }.items()
    }
    assert found["random"] < 2.5
    assert found["sample4geo"] > 3 * found["random"]
    assert found["growth"] > 1.5 * found["sample4geo"]
    assert found["random"] < found["neighbourhoods of eight"] < found["growth"]
    assert found["random"] < found["half"] < found["growth"]


def test_a_batch_no_larger_than_a_neighbourhood_is_one(graph):
    neighbours, labels = graph
    whole, larger, smaller = (
        compose_batches(neighbours, 24, labels=labels, neighbourhood=pairs).ids for pairs in (None, 25, 12)
    )
    assert torch.equal(whole, larger)
    assert not torch.equal(whole, smaller)


def test_auto_is_one_neighbourhood_up_to_64_pairs_and_several_above(graph):
    neighbours, labels = graph
    for pairs, same in ((64, None), (65, 32)):
        auto, other = (
            compose_batches(neighbours, pairs, labels=labels, neighbourhood=each).ids for each in ("auto", same)
        )
        assert torch.equal(auto, other)


def test_a_large_batch_holds_several_neighbourhoods():
    """Cliques of four, which fill a neighbourhood each: a batch of twelve pairs is three of them."""
    members = np.arange(96).reshape(-1, 4)
    lists = np.array([np.delete(members[i // 4], i % 4) for i in range(96)])
    for batch in compose_batches(lists, 12, neighbourhood=4):
        assert len(set((batch // 4).tolist())) == 3


def test_seeds_give_other_batches(graph):
    neighbours, labels = graph
    first, second = (compose_batches(neighbours, 64, labels=labels, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.ids, second.ids)


def test_the_caller_keeps_its_neighbours(graph):
    neighbours, labels = graph
    lists = neighbours.indices.int()
    before = lists.clone()
    compose_batches(lists, 64, labels=labels, method="sample4geo")
    assert torch.equal(lists, before)


def test_any_number_of_threads_composes_the_same(graph, threads):
    neighbours, labels = graph
    found = []
    for number in (1, 2, 3):
        threads(number)
        found.append(compose_batches(neighbours, 64, labels=labels).ids)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def print_batches(threads):
    torch.set_num_threads(threads)
    neighbours = np.random.default_rng(0).integers(0, 500, (500, 9))
    print(compose_batches(neighbours, 16, labels=np.arange(500) // 3, seed=7).ids.tolist())


def test_another_process_composes_the_same():
    runs = {run_function(print_batches, threads).stdout for threads in (1, 2)}
    assert len(runs) == 1
    assert len(json.loads(runs.pop())) == 500


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"neighbours": torch.zeros(4, 2)}, TypeError, r"integers of the shape \[n, k\], got torch.float32 \[4, 2\]"),
        ({"neighbours": torch.tensor([[4], [0], [0], [0]])}, ValueError, "neighbours must be between -1 and 3"),
        ({"neighbours": torch.zeros(0, 3, dtype=torch.int64)}, ValueError, "there are no pairs"),
        ({"pairs_per_batch": 0}, ValueError, "pairs_per_batch must be at least 1"),
        ({"pairs_per_batch": 5}, ValueError, "4 labels fill batches of at most 4 pairs, but 5 were asked for"),
        ({"hardness": 1.5}, ValueError, "hardness must be at least 0 and at most 1, got 1.5."),
        ({"neighbourhood": 0}, ValueError, "neighbourhood must be at least 1"),
        ({"neighbourhood": "whole"}, ValueError, "a number of pairs, \"auto\" or None, got 'whole'"),
        ({"method": "metis"}, ValueError, "method must be one of 'growth', 'sample4geo', got 'metis'."),
        ({"labels": [1, 2]}, ValueError, "labels must have one label per code, 4, got 2."),
    ],
)
def test_bad_input_gets_a_sentence(change, error, sentence):
    arguments = {"neighbours": torch.tensor([[1], [0], [3], [2]]), "pairs_per_batch": 2} | change
    with pytest.raises(error, match=sentence):
        compose_batches(**arguments)


def test_batches_are_a_sequence():
    batches = compose_batches(torch.full((10, 1), -1), 4)
    assert len(batches) == 3
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert torch.equal(batches[-1], batches[2])
    assert len(batches[1:]) == 2
    with pytest.raises(IndexError, match="there are 3 batches, got index 3"):
        batches[3]
