"""Choosing the number of bits: predictions from a small reservoir against the truth of the whole."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from lookalike import SignHasher, hamming_topk
from lookalike.analysis import overlap
from lookalike.analysis.bits import bits_for_order, lengths_up_to, plan_bits, plan_from_codes
from lookalike.data.embeddings import load_embeddings
from lookalike.data.synthetic import clustered_embeddings
from lookalike.search.cosine import cosine_topk

DATA = Path(os.environ.get("LOOKALIKE_DATA", Path(__file__).parents[3] / "shared" / "data"))
ROWS, K = 2000, 128


def true_overlaps(x, labels, lengths):
    """Overlap@128 of 500 anchors with everything else, at every length."""
    anchors = torch.from_numpy(np.random.default_rng(7).choice(len(x), 500, replace=False))
    names = {"query_labels": labels[anchors], "reference_labels": labels}
    true = cosine_topk(x[anchors], x, K, **names).indices
    hasher = SignHasher(x.shape[1], max(lengths))
    hasher.update_mean(x)
    codes = hasher.encode(x)
    found = (hamming_topk(codes[anchors, : b // 8], codes[:, : b // 8], K, **names).indices for b in lengths)
    return [float(overlap(each, true).mean()) for each in found]


def assert_predicts(x, labels, reservoirs=2):
    """Within 3 points at every length, and within the error that is claimed (and that of the truth, 500 anchors)."""
    truth = np.array(true_overlaps(x, labels, lengths_up_to(1024)))
    for seed in range(reservoirs):
        rows = torch.from_numpy(np.random.default_rng(seed).choice(len(x), ROWS, replace=False))
        plan = plan_bits(x[rows], n=len(x), k=K, labels=labels[rows])
        off = np.abs(np.array(plan.overlap) - truth)
        assert off.max() < 0.03, off
        assert (off < np.array(plan.error) + 0.01).all()
        assert plan.rows == ROWS


@pytest.mark.parametrize(("n", "dim", "offset"), [(40_000, 64, 0.5), (10_000, 256, 2.0)])
def test_two_thousand_rows_predict_the_overlap_of_clustered_embeddings(n, dim, offset):
    assert_predicts(*clustered_embeddings(n, dim, offset=offset, seed=11))


@pytest.mark.parametrize("name", ["passages", "queries"])
def test_two_thousand_rows_predict_the_overlap_of_real_embeddings(name):
    path = DATA / "medquad_minilm_emb.npz"
    if not path.exists():
        pytest.skip("medquad_minilm_emb.npz is not here; LOOKALIKE_DATA says where to look for it")
    x = torch.from_numpy(load_embeddings(f"{path}:{name}"))
    assert_predicts(torch.nn.functional.normalize(x, dim=1), torch.arange(len(x)))


def test_all_rows_measure_instead_of_predicting():
    x, labels = clustered_embeddings(1500, 32, seed=2)
    plan = plan_bits(x, labels=labels, max_bits=256)
    names = {"query_labels": labels, "reference_labels": labels}
    hasher = SignHasher(32, 256)
    hasher.update_mean(x)
    found = hamming_topk(hasher.encode(x), hasher.encode(x), K, **names).indices
    truth = overlap(found, cosine_topk(x, x, K, **names).indices).mean()
    assert plan.predicted(256)[0] == pytest.approx(float(truth), abs=0.005)  # ties are broken in another order


def test_ranks_too_small_to_measure_widen_the_error():
    x, labels = clustered_embeddings(40_000, 64, seed=3)
    truth = np.array(true_overlaps(x, labels, lengths_up_to(512)))
    plan = plan_bits(x[:400], n=40_000, labels=labels[:400], max_bits=512)  # of the true 128 nearest 1.3 are in there
    wider = plan_bits(x[:4000], n=40_000, labels=labels[:4000], max_bits=512)
    assert min(plan.error) > 2 * max(wider.error)
    assert (np.abs(np.array(plan.overlap) - truth) < np.array(plan.error) + 0.01).all()


def test_harder_targets_take_more_bits_and_impossible_ones_the_longest():
    x, labels = clustered_embeddings(800, 64, seed=4)
    plans = [plan_bits(x, n=6000, labels=labels, target=target) for target in (0.2, 0.4, 0.6, 0.99)]
    assert [plan.bits for plan in plans] == sorted(plan.bits for plan in plans)
    assert plans[0].bits < plans[2].bits
    for plan in plans[:3]:
        share, error = plan.predicted(plan.bits)
        assert plan.meets_target
        assert share - error >= plan.target
        shorter = [b for b in plan.lengths if b < plan.bits]
        assert all(plan.predicted(b)[0] - plan.predicted(b)[1] < plan.target for b in shorter)
    assert (plans[3].bits, plans[3].meets_target) == (1024, False)
    assert "no length up to 1024 reaches it" in plans[3].reason


def test_hysteresis_keeps_a_length_that_still_does():
    x, labels = clustered_embeddings(700, 64, seed=5)
    hasher = SignHasher(64, 512)
    hasher.update_mean(x)
    codes = hasher.encode(x)

    def choice(target, current):
        return plan_from_codes(x, x, codes, codes, labels, n=4000, k=K, target=target, current=current).bits

    share, error = plan_bits(x, n=4000, labels=labels, max_bits=512).predicted(192)
    barely, surely, missed = share - error / 2, share - 1.1 * error, share + 0.001
    assert choice(barely, None) > 192  # not by its error
    assert choice(barely, 192) == 192  # but good enough to stay
    assert choice(missed, 192) > 192
    assert choice(surely, 512) == 192


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda x: plan_bits(x, n=50), ValueError, "n must be at least 100, the number of rows"),
        (lambda x: plan_bits(x[:20], n=500), ValueError, "20 rows are too few to predict from; give at least 64"),
        (lambda x: plan_bits(x[:1]), ValueError, "1 rows are too few to predict from; give at least 64"),
        (lambda x: plan_bits(x, target=1.5), ValueError, "target must be above 0 and at most 1, got 1.5."),
        (lambda x: plan_bits(x, labels=[1, 2]), ValueError, "labels must have one label per code, 100, got 2"),
        (lambda x: plan_bits(x.long()), TypeError, "embeddings must be floats"),
        (lambda x: plan_bits(x * torch.nan), ValueError, "embeddings must be finite"),
        (lambda x: plan_bits(x, max_bits=100), ValueError, "bits must be a multiple of 8"),
    ],
)
def test_mistakes(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(torch.randn(100, 8, generator=torch.Generator().manual_seed(0)))


def test_theory_asks_for_more_than_the_paper_thought():
    answers = bits_for_order(0.3, 1.1, n=40_000)
    assert answers["paper"] < answers["typical"] < answers["exact"] < answers["chernoff"]
