"""Choosing the length of codes of several bits: predictions from a small reservoir against the truth of the whole."""

import numpy as np
import pytest
import torch

from lookalike import ScalarHasher, scalar_topk
from lookalike.analysis import overlap
from lookalike.analysis.bits import lengths_up_to, plan_bits, plan_scalar
from lookalike.data.synthetic import clustered_embeddings
from lookalike.hashing.moments import Moments
from lookalike.search.cosine import cosine_topk

N, DIM, K = 10_000, 64, 128


@pytest.fixture(scope="module")
def clusters():
    """Embeddings with labels, and their statistics."""
    x, labels = clustered_embeddings(N, DIM, seed=11)
    moments = Moments(DIM)
    moments.add(x)
    return x, labels, moments


def drawn(clusters, rows, seed=0):
    x, labels, _ = clusters
    ids = torch.from_numpy(np.random.default_rng(seed).choice(len(x), rows, replace=False))
    return x[ids], labels[ids]


def true_overlaps(clusters, lengths, seed=0):
    """Overlap@128 of 300 anchors with everything else, at every length."""
    x, labels, moments = clusters
    anchors = torch.from_numpy(np.random.default_rng(7).choice(N, 300, replace=False))
    names = {"query_labels": labels[anchors], "reference_labels": labels}
    true = cosine_topk(x[anchors], x, K, **names).indices
    found = []
    for bits in lengths:
        hasher = ScalarHasher(DIM, bits, seed=seed)
        hasher.moments = moments
        codes = hasher.encode(x)
        found.append(float(overlap(scalar_topk(codes[anchors], codes, K, **names).indices, true).mean()))
    return np.array(found)


def test_two_thousand_rows_predict_the_overlap(clusters):
    lengths = lengths_up_to(256)
    truth = true_overlaps(clusters, lengths)
    rows, labels = drawn(clusters, 2000)
    plan = plan_scalar(rows, rows, clusters[2], labels, n=N, k=K, target=0.6, max_bits=256)
    off = np.abs(np.array(plan.overlap) - truth)
    assert plan.lengths == lengths
    assert off.max() < 0.02, off
    assert (off < np.array(plan.error) + 0.01).all()
    by_themselves = plan_scalar(rows, rows, None, labels, n=N, k=K, target=0.6, max_bits=256)
    assert np.abs(np.array(by_themselves.overlap) - truth).max() < 0.04  # components fit the rows too well


def test_all_rows_measure_instead_of_predicting(clusters):
    rows, labels = drawn(clusters, 1000)
    plan = plan_scalar(rows, rows, None, labels, n=1000, k=K, target=0.5, max_bits=128, seed=3)
    hasher = ScalarHasher(DIM, 128, seed=3)
    hasher.update(rows)
    codes, names = hasher.encode(rows), {"query_labels": labels, "reference_labels": labels}
    truth = overlap(scalar_topk(codes, codes, K, **names).indices, cosine_topk(rows, rows, K, **names).indices)
    assert plan.predicted(128)[0] == pytest.approx(float(truth.mean()), abs=1e-9)


def test_the_kind_of_codes_is_an_option(clusters):
    rows, labels = drawn(clusters, 600)
    plan = plan_bits(3 * rows, N, code="scalar", k=K, target=0.4, labels=labels, max_bits=128, seed=2)
    assert plan == plan_scalar(rows, rows, None, labels, n=N, k=K, target=0.4, max_bits=128, seed=2)
    assert plan.code == "scalar"
    assert plan_bits(rows, N, labels=labels, max_bits=128).code == "signs"
    with pytest.raises(ValueError, match="code must be one of 'signs', 'scalar', got 'auto'"):
        plan_bits(rows, N, code="auto")
    with pytest.raises(ValueError, match='code="scalar" needs at least 32 bits, got 24'):
        plan_bits(rows, N, code="scalar", max_bits=24)


def test_two_towers_share_one_scheme(clusters):
    rows, labels = drawn(clusters, 600)
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(0)) * 0.05
    other = rows + noise
    plan = plan_scalar(rows, other, None, labels, n=600, k=20, target=0.5, max_bits=128)
    hasher = ScalarHasher(DIM, 128)
    for side in (rows, other):
        hasher.update(side)
    names = {"query_labels": labels, "reference_labels": labels}
    found = scalar_topk(hasher.encode(rows), hasher.encode(other), 20, **names).indices
    truth = overlap(found, cosine_topk(rows, other, 20, **names).indices).mean()
    assert plan.predicted(128)[0] == pytest.approx(float(truth), abs=1e-9)


def test_the_shortest_length_that_clears_the_target_by_its_error(clusters):
    rows, labels = drawn(clusters, 800)

    def choice(target, current=None):
        plan = plan_scalar(rows, rows, clusters[2], labels, n=N, k=K, target=target, current=current, max_bits=256)
        return plan, plan.bits

    plan, bits = choice(0.4)
    share, error = plan.predicted(bits)
    assert plan.meets_target
    assert share - error >= 0.4
    assert all(plan.predicted(b)[0] - plan.predicted(b)[1] < 0.4 for b in plan.lengths if b < bits)
    share, error = plan.predicted(128)
    barely, surely, missed = share - error / 2, share - 1.1 * error, share + 0.001
    assert choice(barely)[1] > 128
    assert choice(barely, 128)[1] == 128
    assert choice(missed, 128)[1] > 128
    assert choice(surely, 256)[1] == 128
    plan, bits = choice(0.999)
    assert (bits, plan.meets_target) == (256, False)
    assert "no length up to 256 reaches it" in plan.reason


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"target": 1.5}, "target must be above 0 and at most 1, got 1.5."),
        ({"rows": 20}, "20 rows are too few to predict from; give at least 64"),
        ({"max_bits": 100}, "bits must be a multiple of 8"),
        ({"max_bits": 16}, "codes of several bits have at least 32 bits, got 16"),
        ({"value": torch.nan}, "row 0 holds NaN or infinity"),
    ],
)
def test_mistakes(change, sentence):
    x = torch.randn(change.get("rows", 100), 8, generator=torch.Generator().manual_seed(0))
    x[0, 0] = change.get("value", 1.0)
    options = {"n": 1000, "k": 10, "target": change.get("target", 0.5), "max_bits": change.get("max_bits", 64)}
    with pytest.raises(ValueError, match=sentence):
        plan_scalar(x, x, None, torch.arange(len(x)), **options)
