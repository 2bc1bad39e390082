"""Pairs with a text in common are kept apart."""

import logging

import numpy as np
import pytest
import torch

from lookalike.integrations.sentence_transformers.dealing import DealtBatches
from lookalike.integrations.sentence_transformers.equal_texts import EqualTextsApart, pair_sampler
from lookalike.samplers import LSHBatchSampler

datasets = pytest.importorskip("datasets")


def observed(sampler, epochs):
    """All batches of some epochs, observed with embeddings that stay the same."""
    x = torch.randn(sampler.num_samples, 8, generator=torch.Generator().manual_seed(0))
    for _ in range(epochs):
        for ids in sampler:
            sampler.observe(ids, query=x[ids], reference=x[ids])
            yield ids


def test_negatives_do_not_meet_themselves():
    members = np.stack([np.arange(60), 100 + np.arange(60)], axis=1)
    negatives = np.stack([100 + (np.arange(60) + 1) % 60, 900 + np.arange(60)], axis=1)  # another's positive; nobody's
    labels = np.arange(60) // 2
    sampler = LSHBatchSampler(labels, 10, pairs=60, bits=64, rearrange=EqualTextsApart(negatives, members))
    batches = list(observed(sampler, 3))
    assert sorted(number for batch in batches for number in batch) == sorted(list(range(60)) * 3)
    for batch in batches:
        assert not {(i + 1) % 60 for i in batch} & set(batch)
        assert len({i // 2 for i in batch}) == len(batch)


def test_what_cannot_be_kept_apart_is_said_once(caplog):
    members = np.stack([np.arange(8), 100 + np.arange(8)], axis=1)
    negatives = np.stack([100 + (np.arange(8) + step) % 8 for step in range(1, 8)], axis=1)  # everybody's positives
    sampler = LSHBatchSampler(None, 4, pairs=8, bits=64, rearrange=EqualTextsApart(negatives, members))
    with caplog.at_level(logging.WARNING, "lookalike"):
        assert len(list(observed(sampler, 2))) == 4
    assert caplog.text.count("8 pairs share a batch with a pair that has a text in common with them") == 1


def test_chains_longer_than_an_epoch_leave_nothing_out():
    datasets = pytest.importorskip("datasets")
    anchors, positives = [f"a{i // 2}" for i in range(96)], [f"p{(i + 1) // 2}" for i in range(96)]  # one chain
    data = datasets.Dataset.from_dict({"anchor": anchors, "positive": positives})
    batches = list(observed(pair_sampler(data, ["anchor", "positive"], None, 12, bits=64), 3))
    assert sorted(number for batch in batches for number in batch) == sorted(list(range(96)) * 3)
    for batch in batches:
        assert len({anchors[i] for i in batch}) == len({positives[i] for i in batch}) == len(batch)


def test_columns_that_are_not_texts_are_left_to_labels():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"anchor": [[1.0], [1.0], [2.0]], "positive": ["a", "a", "b"]})
    assert pair_sampler(data, ["anchor", "positive"], None, 2).pairing.labels is None
    assert pair_sampler(data, ["anchor", "positive"], [4, 5, 5], 2).pairing.labels.tolist() == [0, 1, 1]


def test_a_dealt_batch_is_this_ranks_share_whichever_repetition_is_taken():
    share = LSHBatchSampler(None, 12, pairs=50, bits=64, drop_last=True)
    dealt = DealtBatches(share, 3)
    assert (len(dealt), dealt.batch_size) == (12, 12)
    repeated = list(dealt)
    dealt.set_epoch(0)
    batches = list(share)
    assert [repeated[rank::3] for rank in range(3)] == [batches] * 3
    dealt.set_epoch(1)
    assert list(dealt) != repeated


@pytest.mark.parametrize("labels", [None, [i // 2 for i in range(40)]])
def test_rows_that_a_person_marked_as_the_same_never_meet(labels):
    dataset = datasets.Dataset.from_dict({"q": [f"q{i}" for i in range(40)], "a": [f"a{i % 38}" for i in range(40)]})
    sampler = pair_sampler(dataset, ["q", "a"], labels, 6, bits=64, same=[[3, 9], [9, 30], [0, 5]])
    for ids in observed(sampler, 3):
        assert len({3, 9, 30} & set(ids)) < 2  # directly, or through another mark
        assert len({0, 5, 38} & set(ids)) < 2  # row 38 has the answer of row 0
