"""Readiness equals a count by brute force, and tells a model that knows the task from one that does not."""

import numpy as np
import pytest
import torch

from lookalike.analysis.readiness import RANKS, measure_readiness
from lookalike.hashing import SignHasher


def by_brute_force(codes, labels, reference=None):
    """Return the fractions, one anchor and one distance at a time."""
    others, beaten = codes if reference is None else reference, {k: [] for k in RANKS}
    for i, code in enumerate(codes):
        apart = np.bitwise_count(code ^ others).sum(1, dtype=int)
        mates = [j for j in range(len(codes)) if labels[j] == labels[i] and (reference is not None or j != i)]
        negatives = sorted(apart[labels != labels[i]])
        if mates:
            for k in RANKS:
                beaten[k].append(bool(negatives) and min(apart[mates]) < negatives[min(k, len(negatives)) - 1])
    return {k: np.mean(each) for k, each in beaten.items()}


@pytest.mark.parametrize("two_towers", [False, True])
@pytest.mark.parametrize("num_labels", [1, 7, 60, 200])
def test_it_counts_what_brute_force_counts(two_towers, num_labels):
    rng = np.random.default_rng(num_labels)
    labels = rng.integers(0, num_labels, 200) * 1000 - 5
    codes, reference = rng.integers(0, 256, (2, 200, 4), dtype=np.uint8)
    reference = reference if two_towers else None
    assert measure_readiness(codes, labels, reference=reference).beats == pytest.approx(
        by_brute_force(codes, labels, reference)
    )


def test_nothing_is_ready_without_positives_or_where_all_codes_are_one():
    assert measure_readiness(np.zeros((9, 8), np.uint8), np.arange(9)).anchors == 0
    assert not measure_readiness(np.zeros((9, 8), np.uint8), np.arange(9)).is_ready
    for n in (6, 400):
        collapsed = measure_readiness(np.zeros((n, 8), np.uint8), np.arange(n) // 2)
        assert set(collapsed.beats.values()) == {0.0}


def test_ranks_in_a_sample_stand_for_ranks_in_the_whole():
    """The 32nd of 4,000 is the 8th of 1,000."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(2000, 32, generator=generator).repeat_interleave(2, 0)
    x = torch.nn.functional.normalize(centres + 1.2 * torch.randn(4000, 32, generator=generator), dim=1)
    codes, labels = SignHasher(32, 128).encode(x), torch.arange(4000) // 2
    whole = measure_readiness(codes, labels).beats
    chosen = torch.randperm(2000, generator=generator)[:500]
    rows = torch.stack([2 * chosen, 2 * chosen + 1], 1).flatten()
    part = measure_readiness(codes[rows], labels[rows], population=4000).beats
    assert part[32] == pytest.approx(whole[32], abs=0.06)
    assert measure_readiness(codes[rows], labels[rows]).beats[32] > whole[32] + 0.1


def test_many_samples_are_looked_at_by_a_random_choice():
    rng = np.random.default_rng(0)
    codes, labels = rng.integers(0, 256, (5000, 4), dtype=np.uint8), np.arange(5000) // 2
    first, again, other = (measure_readiness(codes, labels, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.anchors == other.anchors == 2048
