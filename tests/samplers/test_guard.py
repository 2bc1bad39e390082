import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from lookalike import LSHBatchSampler
from lookalike.negatives.spaces import HAMMING
from lookalike.samplers.guard import merged_labels, positive_distances, suspected


def test_distance_of_the_nearest_positive():
    codes = torch.tensor([[0b0000], [0b0001], [0b0111], [0b1111], [0b0000]], dtype=torch.uint8)
    labels = torch.tensor([0, 0, 0, 1, 2])
    assert positive_distances(HAMMING, codes, codes, labels).tolist() == [1, 1, 2, -1, -1]
    assert positive_distances(HAMMING, codes, codes.flip(0), None).tolist() == [0, 3, 0, 3, 0]


def test_neighbours_nearer_than_the_positive_are_suspected():
    distances = torch.tensor([[10, 20, 30, -1], [10, 20, 30, 40]])
    positives = torch.tensor([20, -1])
    assert suspected(HAMMING, distances, positives, 16, 1.0).tolist() == [[True, False, False, False], [False] * 4]
    assert suspected(HAMMING, distances, positives, 16, 0.8).tolist()[0] == [True, True, True, False]


def test_classes_are_merged_where_both_sides_agree():
    labels = np.array([0, 0, 1, 1, 2, 2, 3, 3], np.int32)
    neighbours = np.array([[2], [3], [0], [1], [6], [0], [0], [0]])
    suspicious = np.array([[True], [True], [True], [False], [True], [False], [False], [False]])
    merged, number, _ = merged_labels(labels, neighbours, suspicious, most=10)
    assert merged.tolist() == [0, 0, 0, 0, 2, 2, 3, 3]  # three of four agree on 0 and 1, one of four on 2 and 3
    assert number == 1
    assert merged_labels(labels, neighbours, suspicious, most=3)[1:] == (0, 1)  # four samples would need four batches
    assert merged_labels(labels, neighbours, suspicious, most=10, fewest=4)[1:] == (0, 1)
    assert merged_labels(labels, neighbours, suspicious, most=10, fewest=3)[1:] == (1, 0)
    pairs = np.array([0, 1, 1, 1])  # merging a label that no batch holds costs no label, and no batch
    assert merged_labels(labels, neighbours, suspicious, most=1, fewest=3, pairs=pairs)[1:] == (1, 0)


def twins(paired):
    """Sixty classes, of which every two neighbours in number are really one."""
    torch.manual_seed(0)
    centres = normalize(torch.randn(30, 16), dim=1)
    truth = torch.arange(30).repeat_interleave(8)
    labels = torch.arange(60).repeat_interleave(4)
    x = normalize(centres[truth] + 0.05 * torch.randn(240, 16), dim=1)
    if paired:
        return x[::4], x[1::4], None, truth[::4]
    return x, x, labels, truth


@pytest.mark.parametrize("paired", [False, True])
def test_false_negatives_do_not_meet_under_guard(paired):
    x, y, labels, truth = twins(paired)

    def meetings(guard):
        batch_size = 10 if paired else 20
        sampler = LSHBatchSampler(labels, batch_size, pairs=len(x) if paired else None, bits=256, guard=guard)
        met = 0
        for epoch in range(2):
            seen = []
            for ids in sampler:
                if paired:
                    sampler.observe(ids, query=x[ids], reference=y[ids])
                else:
                    sampler.observe(ids, x[ids])
                seen += ids
                classes = truth[ids if paired else ids[::2]]
                met += epoch * (len(classes) - len(classes.unique()))
            assert sorted(set(seen)) == list(range(len(x)))
            assert len(sampler) == (6 if paired else 12)
        return met

    assert meetings(None) > 10
    assert meetings(0.9) <= 2


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("batch_size", [8, 38, 56, 58, 60])
@pytest.mark.parametrize("drop_last", [False, True])
def test_guard_never_stops_training(paired, batch_size, drop_last, caplog):
    """Where all labels look like one, batches are still filled, and the length of an epoch stays what it was."""
    labels = None if paired else np.concatenate([np.arange(30).repeat(4), np.arange(30, 40)])  # ten without a positive
    n = 60 if paired else 130
    size = batch_size if paired else min(batch_size, 60)
    sampler = LSHBatchSampler(labels, size, pairs=n if paired else None, bits=64, guard=0.5, drop_last=drop_last)
    x = normalize(torch.ones(n, 8) + 0.01 * torch.randn(n, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    with caplog.at_level("WARNING", "lookalike"):
        for _ in range(3):
            length, batches = len(sampler), 0
            for ids in sampler:
                pairs = ids if paired else labels[ids[::2]].tolist()
                assert len(set(pairs)) == len(pairs)
                if paired:
                    sampler.observe(ids, query=x[ids], reference=x[ids])
                else:
                    sampler.observe(ids, x[ids])
                batches += 1
            assert batches == length
    warnings = [message for message in caplog.messages if message.startswith("guard: ")]
    assert len(warnings) == 1
    assert "likely the same but may still meet in a batch" in warnings[0]


def test_guard_must_be_a_share():
    with pytest.raises(ValueError, match="guard is a fraction of the positive's cosine"):
        LSHBatchSampler([0, 0, 1, 1], 4, guard=0)
