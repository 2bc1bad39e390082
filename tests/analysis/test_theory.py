"""The theory of sign codes: known values, brute force, and codes drawn at random."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from lookalike.analysis.theory import (
    certain_probability,
    collision_probability,
    cosine_standard_error,
    hamming_variance,
    joint_separation,
    normal_order_probability,
    order_failure,
    order_probability,
    paper_probability,
    separation,
    smallest_bits,
    steps,
    typical_between,
    widest_between,
    worst_case_probability,
)
from lookalike.hashing import implied_cosine

TRIPLES = [(0.3, 0.33, 0.63), (0.3, 0.33, 0.2), (0.1, 0.5, 0.45), (0.4, 0.4, 0.3), (0.7, 0.8, 0.5), (0.2, 0.1, 0.25)]


def by_convolution(near, far, between, bits):
    """The distribution of Z on -bits..bits, one step after another."""
    step = steps(near, far, between)
    mass = np.ones(1)
    for _ in range(bits):
        mass = np.convolve(mass, [step.right, step.none, step.wrong])
    return mass


def by_mixture(near, far, between, bits):
    """P(Z > 0) by the other route: M ~ Bin(bits, q) hyperplanes between x and y, of which Bin(M, r) are wrong."""
    wrong = steps(near, far, between).wrong / between

    def binomial(n, p):
        k = np.arange(n + 1)
        logs = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in k]
        return np.exp(np.array(logs) + k * math.log(p) + (n - k) * math.log1p(-p))

    return sum(w * binomial(m, wrong)[m // 2 + 1 :].sum() for m, w in enumerate(binomial(bits, between)))


@pytest.mark.parametrize("triple", TRIPLES)
@pytest.mark.parametrize("bits", [1, 2, 7, 64, 301])
def test_exact_is_the_convolution(triple, bits):
    mass = by_convolution(*triple, bits)
    assert order_probability(*triple, bits) == pytest.approx(mass[: bits + 1].sum(), abs=1e-12)
    assert order_probability(*triple, bits, strict=True) == pytest.approx(mass[:bits].sum(), abs=1e-12)
    assert order_failure(*triple, bits) == pytest.approx(mass[bits + 1 :].sum(), rel=1e-9, abs=1e-15)


def test_tiny_failures_keep_their_digits():
    for triple, bits in [((0.3, 0.4, 0.5), 1500), ((0.1, 0.3, 0.35), 600)]:
        expected = by_mixture(*triple, bits)
        assert expected < 1e-6
        assert order_failure(*triple, bits) == pytest.approx(expected, rel=1e-9)


def test_check_values():
    assert [round(paper_probability(0.3, 1.1, b), 3) for b in (128, 1024)] == [0.975, 1.0]
    assert [round(worst_case_probability(0.3, 1.1, b), 3) for b in (128, 1024)] == [0.666, 0.887]
    assert [round(order_probability(0.3, 0.33, 0.63, b), 3) for b in (128, 1024)] == [0.686, 0.891]
    assert [round(order_probability(0.3, 0.33, 0.63, b, strict=True), 3) for b in (128, 1024)] == [0.645, 0.883]
    needed = {method: smallest_bits(0.3, 1.1, 40_000, 10, method=method) for method in ("paper", "normal", "exact")}
    assert needed == {"paper": 695, "normal": 14_566, "exact": 14_606}
    assert smallest_bits(0.3, 1.1, 40_000, 10, method="chernoff") == 18_043
    assert smallest_bits(0.3, 1.1, 40_000, 10, between=typical_between(0.3, 0.33)) == 9_352
    ratios = [float(hamming_variance(rho, 384, dim=384) / hamming_variance(rho, 384)) for rho in (0, 0.5, 0.9)]
    assert np.round(ratios, 3).tolist() == [0.595, 0.658, 0.843]
    errors = [float(cosine_standard_error(0.45, bits, dim=384)) for bits in (128, 256, 512, 1024)]
    assert np.round(errors, 3).tolist() == [0.111, 0.073, 0.05, 0.034]


def test_the_papers_expression_is_the_best_case_and_no_bound():
    for bits in (64, 256, 1024):
        far = 0.33
        assert order_probability(0.3, far, far - 0.3, bits) == 1.0  # y behind x: Z <= 0 for certain
        for between in np.linspace(0.1, widest_between(0.3, far), 8):
            exact = order_probability(0.3, far, float(between), bits)
            assert certain_probability(0.3, far, bits) <= exact < paper_probability(0.3, 1.1, bits)


@pytest.mark.parametrize(("near", "far"), [(0.05, 0.1), (0.3, 0.33), (0.4, 0.55), (0.6, 0.7)])
def test_the_guarantee_holds_for_every_angle_between_and_both_kinds_of_ties(near, far):
    for between in np.linspace(far - near, widest_between(near, far), 9):
        for bits in (1, 2, 16, 255, 2048):
            exact = order_probability(near, far, float(between), bits, strict=True)
            own = certain_probability(near, far, bits, between=float(between))
            assert certain_probability(near, far, bits) <= own + 1e-12
            assert own <= exact + 1e-12


def test_the_normal_approximation_is_close_and_the_widest_angle_the_worst():
    for near, far in [(0.3, 0.33), (0.2, 0.3)]:
        widest = widest_between(near, far)
        shares = [normal_order_probability(near, far, float(q), 512) for q in np.linspace(far - near, widest, 12)]
        assert all(later < earlier for earlier, later in pairwise(shares))
        assert shares[-1] == pytest.approx(worst_case_probability(near, far / near, 512))
        halfway = (
            order_probability(near, far, widest, 512) + order_probability(near, far, widest, 512, strict=True)
        ) / 2
        assert shares[-1] == pytest.approx(halfway, abs=2e-3)  # ties half won, half lost


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("eps", "a"), [(0.3, 1.5), (0.25, 1.2), (0.49, 1.04)])
def test_the_smallest_number_of_bits_is_the_smallest(eps, a, strict):
    bits = smallest_bits(eps, a, 1000, 10, strict=strict)
    failures = [order_failure(eps, a * eps, widest_between(eps, a * eps), b, strict=strict) for b in (bits - 1, bits)]
    assert failures[1] <= 1e-4
    if a * eps + eps < 0.9:  # otherwise even and odd lengths differ, and it is the first from which on all will do
        assert failures[0] > 1e-4
    assert smallest_bits(eps, a, 1000, 10, method="chernoff") >= bits


def directions(near, far, between, dim):
    """Anchor, x and y with these angles, in some three dimensions of `dim`."""
    cosines = np.cos(np.pi * np.array([[0, near, far], [near, 0, between], [far, between, 0]]))
    values, vectors = np.linalg.eigh(cosines)
    rows = np.zeros((3, dim))
    rows[:, :3] = vectors * np.sqrt(np.maximum(values, 0))
    return rows


def drawn_bits(rows, bits, repeats, orthonormal, rng):
    """Codes of three directions under `repeats` random matrices, bool [repeats, 3, bits]."""
    columns = rng.standard_normal((repeats, rows.shape[1] if orthonormal else bits, 3))
    if orthonormal:  # the directions have three dimensions, so they see three columns of each rotation
        columns, triangles = np.linalg.qr(columns)
        columns = columns * np.sign(np.diagonal(triangles, axis1=1, axis2=2))[:, None]
    return np.swapaxes(columns[:, :bits] @ rows[:, :3].T, 1, 2) >= 0


@pytest.mark.parametrize("orthonormal", [False, True])
@pytest.mark.parametrize(("near", "far", "between"), [(0.3, 0.33, 0.6), (0.25, 0.4, 0.3)])
def test_codes_drawn_at_random_behave_as_computed(near, far, between, orthonormal):
    """Within 4 standard errors of 20,000 draws; orders of orthonormal rows are kept at least as surely."""
    rng, bits, dim, repeats = np.random.default_rng(0), 64, 128 if orthonormal else 3, 20_000
    codes = drawn_bits(directions(near, far, between, dim), bits, repeats, orthonormal, rng)
    anchor, x, y = codes[:, 0], codes[:, 1], codes[:, 2]
    tolerance = 4 / math.sqrt(repeats)
    to_x, to_y = (anchor != x).sum(1), (anchor != y).sum(1)
    per_bit = tolerance / math.sqrt(bits) / 2
    assert abs((anchor == x).mean() - collision_probability(math.cos(math.pi * near))) < per_bit
    both = ((anchor != x) & (anchor != y)).mean()
    assert abs(both - joint_separation(near, far, between)) < per_bit
    for strict in (False, True):
        kept = (to_x < to_y if strict else to_x <= to_y).mean()
        exact = order_probability(near, far, between, bits, strict=strict)
        assert kept > exact - tolerance / 2
        if not orthonormal:
            assert kept < exact + tolerance / 2
    cosine = math.cos(math.pi * near)
    dimension = dim if orthonormal else None
    variance = float(hamming_variance(cosine, bits, dim=dimension))
    assert to_x.var() == pytest.approx(variance, rel=0.05)  # sampling 4%, and the formula is of first order
    estimates = implied_cosine(torch.from_numpy(to_x), bits).numpy()
    assert estimates.std() == pytest.approx(float(cosine_standard_error(cosine, bits, dim=dimension)), rel=0.07)


def test_stacked_rotations_have_the_variance_of_their_blocks():
    one, two, half = (float(hamming_variance(0.2, bits, dim=100)) for bits in (100, 200, 50))
    assert two == pytest.approx(2 * one)
    assert float(hamming_variance(0.2, 250, dim=100)) == pytest.approx(2 * one + half)
    assert float(hamming_variance(1.0, 100, dim=100)) == 0.0


def test_limits():
    assert separation([-2, 2]).tolist() == [1.0, 0.0]  # rounding of cosines is forgiven
    assert order_probability(0.2, 0.5, 0.3, 64) == 1.0
    assert order_probability(0.2, 0.5, 0.3, 64, strict=True) == pytest.approx(1 - 0.7**64)
    assert order_probability(0.0, 1.0, 1.0, 8, strict=True) == 1.0
    assert order_probability(0.5, 0.2, 0.3, 64) == pytest.approx(0.7**64)
    assert certain_probability(0.5, 0.2, 64) == 0.0
    assert certain_probability(0.0, 1.0, 8) == 1.0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: order_probability(0.3, 0.4, 0.8, 64), r"no three directions .* between must be in \[0.1, 0.7\]"),
        (lambda: order_probability(0.3, 1.4, 1.2, 64), "no three directions"),
        (lambda: order_probability(0.3, 0.4, 0.5, 0), "bits must be at least 1"),
        (lambda: smallest_bits(0.3, 1.0, 100), "a above 1 with"),
        (lambda: smallest_bits(0.3, 1.1, 100, method="best"), "method must be one of 'exact', 'normal', 'chernoff'"),
        (lambda: smallest_bits(0.3, 1.1, 1, 1.5), "f must be above 2 / n"),
    ],
)
def test_mistakes(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
