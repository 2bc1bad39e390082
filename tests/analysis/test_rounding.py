import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from lookalike.analysis.rounding import cosine_error, order_probability
from lookalike.hashing import ScalarHasher
from lookalike.hashing.levels import normal_levels

DIM = 256
BITS = (128, 256, 512, 1024)


@pytest.fixture(scope="module", params=[0.0, 0.5], ids=["without a mean", "with a mean"])
def embeddings(request):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20_000, DIM, generator=generator) * torch.linspace(1, 0.05, DIM)
    offset = normalize(torch.randn(DIM, generator=generator), dim=0) * x.norm(dim=1).mean()
    return normalize(x + request.param * offset, dim=1)


def hashed(x, bits):
    hasher = ScalarHasher(DIM, bits)
    hasher.update(x)
    return hasher, hasher.encode(x), hasher.moments.spectrum().variances


# Levels and factors are integers, which adds a little to the error of long codes.
@pytest.mark.parametrize("bits", BITS)
def test_estimates_of_unrelated_rows_err_as_predicted(embeddings, bits):
    hasher, codes, variances = hashed(embeddings, bits)
    others = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(1))
    true = (embeddings * embeddings[others]).sum(1).double()
    estimates = codes.scheme.cosines(codes.scheme.compare(codes.packed, codes.packed[others]))
    assert float((estimates - true).std()) == pytest.approx(cosine_error(variances, bits), rel=0.1)
    from_floats = (embeddings * hasher.decode(codes)[others]).sum(1)
    assert float((from_floats - true).std()) == pytest.approx(cosine_error(variances, bits, float_query=True), rel=0.1)


@pytest.mark.parametrize("bits", BITS)
def test_orders_hold_as_often_as_predicted(embeddings, bits):
    hasher, codes, variances = hashed(embeddings, bits)
    generator = torch.Generator().manual_seed(2)
    near, far = (torch.randperm(len(embeddings), generator=generator) for _ in range(2))
    cosines = [(embeddings * embeddings[each]).sum(1) for each in (near, far)]
    gap = 0.05
    triples = ((cosines[0] - cosines[1] - gap).abs() < 0.003).nonzero().flatten()
    estimates = [codes.scheme.compare(codes.packed[triples], codes.packed[each[triples]]) for each in (near, far)]
    held = float((estimates[0] <= estimates[1]).double().mean())
    error = math.sqrt(held * (1 - held) / len(triples))
    assert held == pytest.approx(order_probability(gap, variances, bits), abs=4 * error + 0.02)
    stand_for = hasher.decode(codes)
    nearer, farther = ((embeddings[triples] * stand_for[each[triples]]).sum(1) for each in (near, far))
    held = float((nearer >= farther).double().mean())
    assert held == pytest.approx(order_probability(gap, variances, bits, float_query=True), abs=4 * error + 0.02)


def test_each_bit_for_a_dimension_nearly_halves_the_error():
    variances = np.full(DIM, 1 / DIM)
    errors = [cosine_error(variances, 16 + width * DIM, float_query=True) for width in range(1, 7)]
    for width, (before, after) in enumerate(itertools.pairwise(errors), 1):
        expected = math.sqrt(normal_levels(width + 1).error / normal_levels(width).error)
        assert after / before == pytest.approx(expected)
        assert 0.5 < after / before < 0.6
    assert cosine_error(variances, 10_000) == cosine_error(variances, 16 + 6 * DIM)  # all that the dimensions take


def test_no_allocation_of_as_many_bits_errs_less():
    generator = np.random.default_rng(0)
    variances = np.sort(generator.lognormal(sigma=1.5, size=6))[::-1]
    bits, errors = 9, np.array([1.0, *(normal_levels(width).error for width in range(1, 7))])
    widths = [each for each in np.ndindex(*[bits + 1] * 4) if sum(each) <= bits and max(each) <= 6]
    every = min(
        float(variances**2 @ errors[[*each, rest, 0]]) for each in widths if 0 <= (rest := bits - sum(each)) <= 6
    )
    assert cosine_error(variances, 16 + bits, float_query=True) ** 2 <= every * (1 + 1e-12)


@pytest.mark.parametrize(
    ("variances", "bits", "sentence"),
    [
        ([1.0, 0.0], 64, "variances must be positive numbers"),
        ([1.0, math.nan], 64, "variances must be positive numbers"),
        ([[1.0]], 64, "variances must be positive numbers"),
        ([1.0], 16, "more than 16 bits, got 16"),
    ],
)
def test_mistakes(variances, bits, sentence):
    with pytest.raises(ValueError, match=sentence):
        cosine_error(variances, bits)
