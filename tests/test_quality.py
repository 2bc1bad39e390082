"""Measure what the method promises, with a margin: overlap with exact cosine search."""

from itertools import pairwise

import pytest
import torch

from lookalike import SignHasher, hamming_topk
from lookalike.analysis import overlap
from lookalike.data.synthetic import clustered_embeddings
from lookalike.search.cosine import cosine_topk

K = 128


@pytest.fixture(scope="module")
def data():
    x, labels = clustered_embeddings(6000, dim=128, offset=1.0, seed=0)
    anchors = torch.arange(0, 6000, 12)
    true = cosine_topk(x[anchors], x, K, query_labels=labels[anchors], reference_labels=labels)
    return x, labels, anchors, true.indices


def mean_overlap(data, bits, **options):
    """Averaged over five rotations, so that the comparison is of methods and not of seeds."""
    x, labels, anchors, true = data
    shares = []
    for seed in range(5):
        hasher = SignHasher(x.shape[1], bits, seed=seed, **options)
        hasher.update_mean(x)
        codes = hasher.encode(x)
        found = hamming_topk(codes[anchors], codes, K, query_labels=labels[anchors], reference_labels=labels)
        shares.append(float(overlap(found.indices, true).mean()))
    return sum(shares) / len(shares)


def test_overlap_rises_with_bits(data):
    shares = [mean_overlap(data, bits) for bits in (32, 64, 128, 256, 512)]
    assert all(later > earlier + 0.03 for earlier, later in pairwise(shares)), shares
    assert shares[0] > 3 * K / 6000  # random would find the share of the reference that it returns


def test_orthonormal_rows_beat_gaussian_ones(data):
    for bits in (64, 128):
        assert mean_overlap(data, bits) > mean_overlap(data, bits, orthonormal=False) + 0.02


def test_centring_helps_where_embeddings_share_an_offset(data):
    for bits in (64, 128):
        assert mean_overlap(data, bits) > mean_overlap(data, bits, center=0.0) + 0.02


def test_streaming_the_mean_costs_nothing(data):
    """Codes hashed with the mean so far, batch by batch, find as many neighbours as with the mean of all."""
    x, labels, anchors, true = data
    streaming = SignHasher(x.shape[1], 128)
    codes = []
    for batch in x.split(128):
        streaming.update_mean(batch)
        codes.append(streaming.encode(batch))
    codes = torch.cat(codes)
    found = hamming_topk(codes[anchors], codes, K, query_labels=labels[anchors], reference_labels=labels)
    whole = SignHasher(x.shape[1], 128)
    whole.update_mean(x)
    exact = whole.encode(x)
    expected = hamming_topk(exact[anchors], exact, K, query_labels=labels[anchors], reference_labels=labels)
    assert overlap(found.indices, true).mean() > overlap(expected.indices, true).mean() - 0.01
