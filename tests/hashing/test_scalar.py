"""Codes of several bits: statistics, levels, and codes that do not depend on the rows beside them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from lookalike import ScalarHasher
from lookalike.hashing.levels import WIDEST, normal_levels
from lookalike.hashing.moments import Moments
from lookalike.hashing.scheme import estimated_cosine


def rows(n, dim, *, distinct=None, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(distinct or n, dim, generator=generator) * torch.linspace(1, 0.2, dim) + 0.1
    return (x if distinct is None else x[torch.arange(n) % distinct]).to(dtype)


def fitted(x, bits, **options):
    hasher = ScalarHasher(x.shape[1], bits, **options)
    hasher.update(x)
    return hasher


@given(
    n=st.integers(1, 40),
    dim=st.sampled_from([1, 2, 12, 33]),
    bits=st.sampled_from([32, 48, 256]),
    distinct=st.integers(1, 9),
    at_a_time=st.integers(1, 20),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_a_code_does_not_depend_on_the_rows_beside_it(n, dim, bits, distinct, at_a_time, dtype):
    """Few distinct rows span few directions; in the others all of them lie on a threshold."""
    x = rows(n, dim, distinct=distinct, dtype=dtype)
    hasher = fitted(x, bits)
    together = hasher.encode(x)
    apart = torch.cat([hasher.encode(part).packed for part in torch.split(x, at_a_time)])
    assert torch.equal(apart, together.packed)
    decoded = torch.cat([hasher.decode(together[i : i + at_a_time]) for i in range(0, n, at_a_time)])
    assert torch.equal(decoded, hasher.decode(together))


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_codes_estimate_cosines(bits):
    x = normalize(rows(3000, 64), dim=1)
    hasher = fitted(x, bits)
    codes = hasher.encode(x)
    others = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    true = (x * x[others]).sum(1).double()
    estimated = estimated_cosine(codes.scheme.compare(codes.packed, codes.packed[others]))
    assert abs(float((estimated - true).mean())) < 0.004
    decoded = (x * hasher.decode(codes)[others]).sum(1).double()
    assert float((decoded - true).std()) < float((estimated - true).std()) < 0.5 * 64 / bits


def test_scale_and_order_of_updates_do_not_matter():
    x = rows(500, 24)
    hasher, other = fitted(x, 96), ScalarHasher(24, 96)
    for part in reversed(torch.split(1000 * x, 64)):
        other.update(part)
    torch.testing.assert_close(other.moments.covariance(), hasher.moments.covariance(), rtol=1e-5, atol=1e-8)
    same = (other.encode(x).packed == hasher.encode(0.001 * x).packed).float().mean()
    assert same > 0.99  # but for what lies next to a threshold


def test_moments_are_mean_and_covariance():
    x = rows(700, 10)
    moments = Moments(10)
    for part in torch.split(x, 64):
        moments.add(part)
    directions = normalize(x, dim=1).double().numpy()
    np.testing.assert_allclose(moments.mean(), directions.mean(0), atol=1e-7)
    np.testing.assert_allclose(moments.covariance(), np.cov(directions.T, bias=True), atol=1e-7)


@pytest.mark.parametrize("width", range(1, WIDEST + 1))
def test_levels_are_the_means_of_what_is_rounded_to_them(width):
    levels = normal_levels(width)
    sample = np.random.default_rng(0).standard_normal(400_000)
    numbers = np.searchsorted(levels.thresholds, sample)
    means = np.bincount(numbers, sample) / np.bincount(numbers)
    errors = np.sqrt(1 / np.bincount(numbers))
    assert (np.abs(means - levels.values) < 5 * errors).all()
    assert np.mean((sample - levels.values[numbers]) ** 2) == pytest.approx(levels.error, rel=0.02)


@pytest.mark.parametrize(("n", "dim", "bits"), [(1, 4, 32), (2, 100, 64), (50, 1, 64), (50, 3, 1024)])
def test_few_rows_few_dimensions_and_more_bits_than_they_can_take(n, dim, bits):
    x = rows(n, dim)
    hasher = fitted(x, bits)
    codes = hasher.encode(x)
    assert codes.packed.shape == (n, bits // 8)
    assert sum(width * count for width, count in codes.scheme.groups) == min(bits - 16, WIDEST * dim)
    assert torch.isfinite(hasher.decode(codes)).all()


@pytest.mark.parametrize("x", [torch.zeros(20, 8), torch.ones(20, 8)], ids=["zeros", "all equal"])
def test_rows_without_directions_of_their_own(x):
    hasher = fitted(x, 64)
    codes = hasher.encode(x)
    assert (codes.packed == codes.packed[0]).all()
    assert torch.isfinite(hasher.decode(codes)).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_becomes_neither_statistics_nor_bits(bad):
    x = rows(30, 8)
    hasher = fitted(x, 64)
    before = hasher.moments.sums.clone()
    x[7, 3] = bad
    for use in (hasher.update, hasher.encode):
        with pytest.raises(ValueError, match="7"):
            use(x)
    assert torch.equal(hasher.moments.sums, before)
    _, finite = hasher.encode_flagged(x)
    assert finite.tolist() == [i != 7 for i in range(30)]


def test_a_state_encodes_the_same_after_further_updates():
    x = rows(300, 16)
    hasher = fitted(x[:200], 64, seed=3)
    codes = hasher.encode(x)
    hasher.update(x[200:])  # changes codes only at the next fit
    other = ScalarHasher(16, 64)
    other.load_state_dict(hasher.state_dict())
    assert torch.equal(other.encode(x).packed, codes.packed)
    other.check(codes)
    assert other.fit().identity == hasher.fit().identity != codes.scheme.identity


@pytest.mark.parametrize(
    ("use", "error", "sentence"),
    [
        (lambda: ScalarHasher(8, 24), ValueError, "at least 32 bits, got 24"),
        (lambda: ScalarHasher(8, 60), ValueError, "multiple of 8, got 60"),
        (lambda: ScalarHasher(0, 64), ValueError, "dim"),
        (lambda: ScalarHasher(8, 64).encode(rows(3, 8)), ValueError, "pass embeddings to update"),
        (lambda: ScalarHasher(8, 64).update(rows(3, 9)), ValueError, r"shape \[n, 8\], because dim=8, got \[3, 9\]"),
        (lambda: ScalarHasher(8, 64).update(torch.ones(3, 8, dtype=torch.int64)), TypeError, "floats"),
        (lambda: fitted(rows(9, 8), 64).decode(fitted(rows(9, 8), 64, seed=1).encode(rows(9, 8))), ValueError, "again"),
    ],
)
def test_mistakes(use, error, sentence):
    with pytest.raises(error, match=sentence):
        use()
