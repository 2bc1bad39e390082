"""Codes of several bits: what bytes mean, how two of them compare, and what a hasher does with awkward embeddings."""

import contextlib
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from lookalike import ScalarCodes, ScalarHasher, SignHasher, scalar_topk
from lookalike.hashing.levels import WIDEST, normal_levels, share_out
from lookalike.hashing.moments import Moments
from lookalike.hashing.scheme import FACTORS_SHIFT, FARTHEST, HEADER, ONE, PRODUCTS

DIM = 24


def embeddings(n=400, dim=DIM, seed=0):
    """Rows whose variance falls off and that are not centred, so that bits are shared out unevenly."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=generator) * torch.linspace(2, 0.1, dim) + 0.3


def fitted(x, bits=64, **options):
    hasher = ScalarHasher(x.shape[1], bits, **options)
    hasher.update(x)
    return hasher


def read_bit_by_bit(row, scheme):
    """Read a code as `Scheme` describes it: its values, its factor and its offset."""
    bits = [byte >> i & 1 for byte in row[HEADER:] for i in range(8)]
    values, levels = [], scheme.levels.tolist()
    for width, count in scheme.groups:
        for _ in range(count):
            number = sum(bit << i for i, bit in enumerate(bits[:width]))
            values.append(levels[number])
            bits = bits[width:]
        levels = levels[1 << width :]
    return values, int(scheme.factors[row[0]]), int(scheme.offsets[row[1]])


@pytest.mark.parametrize(("dim", "bits"), [(24, 32), (24, 64), (24, 168), (3, 64), (1, 32), (200, 136)])
def test_bytes_are_read_and_compared_as_described(dim, bits):
    scheme = fitted(embeddings(dim=dim), bits).scheme
    rows = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (30, bits // 8), dtype=np.uint8))
    integers, read = scheme.unpack(rows), [read_bit_by_bit(row, scheme) for row in rows.tolist()]
    assert integers.values.tolist() == [values for values, _, _ in read]
    assert integers.factors.tolist() == [factor for _, factor, _ in read]
    assert integers.offsets.tolist() == [offset for _, _, offset in read]
    found = scheme.compare(rows[:, None], rows[None])
    for (i, (v, f, a)), (j, (w, g, b)) in itertools.product(enumerate(read), repeat=2):
        product = sum(x * y for x, y in zip(v, w, strict=True)) * (f * g >> FACTORS_SHIFT)
        assert abs(product) < 1 << 31  # in a search these are 32 bits
        assert found[i, j] == min(max(ONE - (product >> scheme.shift) - a - b, 0), FARTHEST)


@pytest.mark.parametrize("spread", [1.0, 30.0, 1e3])
@pytest.mark.parametrize("bits", [32, 256, 4096])
def test_products_fit_however_uneven_the_components_are(bits, spread):
    x = embeddings(dim=300)
    x[:, 0] *= spread
    scheme = fitted(x, bits).scheme
    largest = sum(count * int(levels.abs().max()) ** 2 for (_, count), (_, _, levels, _) in both(scheme))
    assert largest <= PRODUCTS
    assert int(scheme.factors.max()) ** 2 >> FACTORS_SHIFT <= ((1 << 31) - 1) // PRODUCTS
    assert 16 + sum(width * count for width, count in scheme.groups) <= bits


def both(scheme):
    return zip(scheme.groups, scheme.fields(), strict=True)


def test_bits_go_where_they_help_most():
    variances = np.array([1.0, 0.8, 0.3, 0.05])
    for bits in range(1, 13):
        best = min(
            sum(v**2 * (normal_levels(w).error if w else 1.0) for v, w in zip(variances, widths, strict=True))
            for widths in itertools.product(range(WIDEST + 1), repeat=4)
            if sum(widths) == bits
        )
        widths = share_out(variances, bits)
        assert widths.sum() == bits
        lost = sum(v**2 * (normal_levels(w).error if w else 1.0) for v, w in zip(variances, widths, strict=True))
        assert math.isclose(lost, best, rel_tol=1e-9)
    assert share_out(variances, 999).tolist() == [WIDEST] * 4


def test_levels_are_the_means_of_what_is_rounded_to_them():
    draws = np.random.default_rng(0).standard_normal(1_000_000)
    for width in range(1, 5):
        levels = normal_levels(width)
        rounded = levels.values[np.searchsorted(levels.thresholds, draws)]
        assert abs(((draws - rounded) ** 2).mean() - levels.error) < 0.002
        nearest = levels.values[np.abs(draws[:1000, None] - levels.values).argmin(1)]
        assert (nearest == rounded[:1000]).all()


@pytest.mark.parametrize("common", [10, 100, 300])  # cosines of .99 to .99999
def test_embeddings_that_lie_close_together_are_told_apart(common):
    """As those of untrained models do. Otherwise, all distances would be equal, and the nearest the first rows."""
    centres = torch.randn(80, DIM, generator=torch.Generator().manual_seed(1))
    x = normalize(centres[torch.arange(800) % 80] + 0.3 * torch.randn(800, DIM), dim=1)
    close = normalize(x.double() + common * normalize(centres[:1].double(), dim=1), dim=1)
    cosines = close @ close.T
    true = cosines.fill_diagonal_(-1).topk(9).indices

    def found(rows):
        codes = fitted(rows, 136).encode(rows)
        near = scalar_topk(codes, codes, 9, query_labels=torch.arange(800)).indices
        return float((near[:, :, None] == true[:, None]).any(2).double().mean()), codes

    (apart, _), (together, codes) = found(x.double()), found(close.float())
    assert together > apart - 0.05
    estimated = codes.scheme.cosines(codes.scheme.compare(codes.packed[:, None], codes.packed[None]))
    off_diagonal = ~torch.eye(800, dtype=torch.bool)
    spread = 1 - cosines[off_diagonal]
    assert (estimated - cosines)[off_diagonal].abs().mean() < 0.1 * spread.mean()


@pytest.mark.parametrize("common", [1, 3, 30])  # cosines of .5, .9 and .999
def test_embeddings_that_spread_out_since_the_fit_are_told_apart(common):
    """As those of a model do in an epoch, while codes have the statistics of the epoch before."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(80, DIM, generator=generator)
    x = normalize(centres[torch.arange(800) % 80] + 0.3 * torch.randn(800, DIM, generator=generator), dim=1)
    codes = fitted(x + common * normalize(torch.ones(1, DIM)), 136).encode(x)
    found = scalar_topk(codes, codes, 9, query_labels=torch.arange(800))
    assert (found.distances > 0).float().mean() > 0.95
    assert (found.indices % 80 == torch.arange(800)[:, None] % 80).float().mean() > 0.7


def test_cosines_are_estimated_and_decoded():
    x = embeddings()
    hasher = fitted(x, 136)
    codes, unit = hasher.encode(x), normalize(x, dim=1)
    true = unit @ unit.T
    estimated = codes.scheme.cosines(codes.scheme.compare(codes.packed[:, None], codes.packed[None]))
    decoded = unit @ hasher.decode(codes).T
    assert (estimated - true).abs().mean() < 0.03
    assert (decoded - true).abs().mean() < (estimated - true).abs().mean()


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
    x = embeddings(distinct, dim)[torch.arange(n) % distinct].to(dtype)
    hasher = fitted(x, bits)
    together = hasher.encode(x)
    apart = torch.cat([hasher.encode(part).packed for part in torch.split(x, at_a_time)])
    assert torch.equal(apart, together.packed)
    decoded = torch.cat([hasher.decode(together[i : i + at_a_time]) for i in range(0, n, at_a_time)])
    assert torch.equal(decoded, hasher.decode(together))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_scale_dtype_and_layout_of_embeddings_do_not_matter(dtype):
    x = embeddings().to(dtype)
    hasher = fitted(x)
    expected = hasher.encode(x).packed
    assert torch.equal(hasher.encode((x * 64).requires_grad_()).packed, expected)
    assert torch.equal(hasher.encode(x.T.contiguous().T).packed, expected)
    assert torch.equal(hasher.encode(x.float()).packed, expected) or dtype == torch.float64


def test_lengths_of_rows_are_added_up_alike_in_any_layout():
    """In the directions that the data do not extend in, the last digit of a length decides."""
    x = torch.full((20_000, 60), 0.7)
    x[:, :10] = torch.randn(20_000, 10, generator=torch.Generator().manual_seed(0))
    x = x.half()
    hasher = fitted(x, 256)
    expected = hasher.encode(x).packed
    assert torch.equal(hasher.encode(x.T.contiguous().T).packed, expected)
    assert torch.equal(hasher.encode(x.repeat_interleave(2, dim=1)[:, ::2]).packed, expected)


def test_autocast_changes_nothing():
    x = embeddings()
    expected = fitted(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hasher = fitted(x)
        codes = hasher.encode(x)
        assert torch.equal(hasher.decode(codes), expected.decode(expected.encode(x)))
    assert codes.scheme.identity == expected.scheme.identity
    assert torch.equal(codes.packed, expected.encode(x).packed)


@pytest.mark.parametrize("dim", [1, 8])
@pytest.mark.parametrize("kind", ["one row", "equal", "zeros", "one zero", "two rows"])
def test_embeddings_without_much_to_tell(kind, dim):
    x = torch.randn(40, dim, generator=torch.Generator().manual_seed(0))
    x = {
        "one row": x[:1],
        "two rows": x[:2],
        "equal": torch.ones(40, dim),
        "zeros": torch.zeros(40, dim),
        "one zero": torch.cat([x, torch.zeros(1, dim)]),
    }[kind]
    hasher = fitted(x)
    codes = hasher.encode(x)
    assert torch.isfinite(hasher.decode(codes)).all()
    nearest = scalar_topk(codes, codes, 1).indices.flatten()
    cosines = (normalize(x, dim=1) * normalize(x[nearest], dim=1)).sum(1)
    assert bool((cosines[x.any(1)] > 0.99).all())


class Moves(TorchDispatchMode):
    """Remembers what is copied from one device to another."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        tensors = [each for each in (found, *args) if isinstance(each, torch.Tensor) and each.ndim]
        if len({tensor.device for tensor in tensors}) > 1:
            self.seen.append(function)
        return found


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
def test_the_default_dtype_does_not_matter(default):
    x = embeddings()
    expected = fitted(x).encode(x)
    torch.set_default_dtype(default)
    try:
        found = fitted(x).encode(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.scheme.identity == expected.scheme.identity
    assert torch.equal(found.packed, expected.packed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_device_is_not_waited_for(monkeypatch, dtype):
    """Tensors without values stand for those of a GPU: they can neither be read nor mixed with others."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # knows no such device
    hasher, x = fitted(embeddings()), torch.empty(5000, DIM, dtype=dtype, device="meta")
    expected = hasher.encode(embeddings())
    packed, finite = hasher.encode_flagged(x)
    assert (packed.dtype, packed.shape[1], finite.dtype) == (torch.uint8, expected.packed.shape[1], torch.bool)
    moments = Moments(DIM, "meta")
    moments.add(x, finite)
    codes = ScalarCodes(packed, hasher.scheme)
    assert hasher.decode(codes).shape == x.shape
    with Moves() as moves:  # a copy from memory that is not page-locked waits, too
        hasher.encode_flagged(x)
        hasher.decode(codes)
        moments.add(x, finite)
    assert moves.seen == []
    assert codes.scheme.compare(packed[:7, None], packed).shape == (7, 5000)
    assert codes.scheme.signs(packed).device == packed.device == moments.covariance().device


@pytest.mark.parametrize(
    ("dim", "bits", "sentence"), [(8, 24, "at least 32 bits, got 24"), (8, 60, "multiple of 8, got 60"), (0, 64, "dim")]
)
def test_codes_that_cannot_be(dim, bits, sentence):
    with pytest.raises(ValueError, match=sentence):
        ScalarHasher(dim, bits)


@pytest.mark.parametrize("kind", [ScalarHasher, SignHasher])
def test_seeds(kind):
    mistakes = (-1, ValueError, "seed must be at least 0"), (None, TypeError, "seed must be an integer, got None")
    for seed, error, sentence in mistakes:
        with pytest.raises(error, match=sentence):
            kind(8, 64, seed=seed)
    assert type(kind(8, 64, seed=np.int64(3)).seed) is int  # a state holds it, and is loaded without pickled objects


def test_what_cannot_be_hashed():
    hasher = ScalarHasher(4, 32)
    with pytest.raises(ValueError, match=r"pass embeddings to update\(\) before encode\(\)"):
        hasher.encode(torch.randn(3, 4))
    x = torch.randn(10, 4)
    x[7, 3] = float("inf")
    with pytest.raises(ValueError, match="row 7 holds NaN or infinity"):
        hasher.update(x)
    assert hasher.moments.count == 0
    hasher.update(x[:7])
    with pytest.raises(ValueError, match="row 7 holds NaN or infinity"):
        hasher.encode(x)
    _, finite = hasher.encode_flagged(x)
    assert finite.tolist() == [True] * 7 + [False] + [True] * 2
    assert len(hasher.encode(x[:0])) == 0


def test_a_new_fit_voids_old_codes():
    x = embeddings()
    hasher = fitted(x)
    codes = hasher.encode(x)
    hasher.update(x * torch.linspace(1, 2, DIM))
    assert hasher.encode(x).scheme.identity == codes.scheme.identity  # not before a fit
    hasher.fit()
    with pytest.raises(ValueError, match="made with other statistics"):
        hasher.decode(codes)
    with pytest.raises(TypeError, match="must be ScalarCodes, which encode makes, got Tensor"):
        hasher.decode(codes.packed)


def test_statistics_add_up():
    x = embeddings()
    whole, parts = Moments(DIM), Moments(DIM)
    whole.add(x)
    parts.add(x[:100])
    parts.add(torch.cat([x[100:], torch.full((1, DIM), math.nan)]), torch.ones(301).index_fill(0, torch.tensor(300), 0))
    assert parts.count == whole.count == 400
    torch.testing.assert_close(parts.sums, whole.sums, rtol=1e-6, atol=1e-5)
    unit = normalize(x.double(), dim=1)
    torch.testing.assert_close(whole.covariance(), torch.cov(unit.T, correction=0), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_of_rows_that_lie_close_together(weighted):
    """The mean of these is ten thousand times as long as what is left without it."""
    unit = normalize(embeddings(5000).double() * 1e-5 + torch.linspace(-1, 1, DIM), dim=1).float()
    weights = (torch.arange(5000) % 3 > 0).float() if weighted else None
    moments = Moments(DIM)
    moments.add(unit if weights is None else unit.where(weights[:, None] > 0, torch.nan), weights)
    exact = torch.cov(normalize(unit if weights is None else unit[weights > 0]).double().T, correction=0)
    assert (moments.covariance() - exact).norm() < 0.01 * exact.norm()


def test_a_state_brings_back_the_same_codes():
    x = embeddings()
    first, second = fitted(x, seed=3), ScalarHasher(DIM, 64)
    codes, state = first.encode(x), first.state_dict()
    first.update(x)
    second.load_state_dict(state)
    assert second.seed == 3
    assert second.moments.count == len(x)
    assert torch.equal(second.encode(x).packed, codes.packed)
    assert torch.equal(second.decode(codes), first.decode(codes))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ({"dim": 8}, "dim=8, not 24"),
        ({"bits": torch.ones(2)}, "a hasher with bits=tensor"),
        ({"seed": None}, "no seed"),
        ({"sums": torch.zeros(3, 3)}, "no statistics"),
        ({"scheme": {}}, "not the state of a scheme"),
        ({"encoder": None}, "not the state of a hasher"),
    ],
)
def test_a_damaged_state_is_refused(damage, sentence):
    hasher = fitted(embeddings())
    hasher.fit()
    with pytest.raises(ValueError, match=sentence):
        ScalarHasher(DIM, 64).load_state_dict({**hasher.state_dict(), **damage})


@pytest.mark.parametrize("name", ["bits", "groups", "levels", "factors", "offsets", "shift", "identity", "zoom"])
def test_a_damaged_scheme_is_refused(name):
    hasher = fitted(embeddings())
    hasher.fit()
    state = hasher.state_dict()
    for value in (None, torch.full((2, 3), 99), -1):
        with pytest.raises(ValueError, match="not the state of a scheme"):
            ScalarHasher(DIM, 64).load_state_dict({**state, "scheme": {**state["scheme"], name: value}})


def test_codes_know_their_length():
    codes = fitted(embeddings()).encode(embeddings(3))
    assert len(codes[torch.tensor([True, False, True])]) == 2
    with pytest.raises(ValueError, match="codes of this scheme have 64 bits, got 56 per row"):
        ScalarCodes(codes.packed[:, :7], codes.scheme)
