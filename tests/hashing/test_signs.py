import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookalike import SignHasher
from lookalike.hashing import implied_cosine
from lookalike.hashing.signs import _pack_by_products


def embeddings(n, dim, seed=0, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=generator) + offset


def unpacked(codes, bits):
    return np.unpackbits(codes.numpy(), axis=1, bitorder="little")[:, :bits].astype(bool)


def test_codes_are_the_signs_of_centred_projections():
    """Against the formula written out in float64."""
    x = embeddings(300, 40, offset=0.3).double()
    for center in (0.0, 0.5, 1.0):
        hasher = SignHasher(40, 64, center=center)
        hasher.update_mean(x)
        projections = x @ hasher.rows.double().T
        expected = projections - center * projections.mean(0) >= 0
        assert np.array_equal(unpacked(hasher.encode(x), 64), expected.numpy())


@pytest.mark.parametrize("bits", [8, 24, 48, 96, 200])
def test_rows_are_orthonormal_within_each_rotation(bits):
    dim = 48
    rows = SignHasher(dim, bits, seed=3).rows.double()
    for block in rows.split(dim):
        assert torch.allclose(block @ block.T, torch.eye(len(block)).double(), atol=1e-6)
    if bits > dim:
        across = rows[:dim] @ rows[dim : 2 * dim].T
        assert across.abs().max() < 0.9  # an independent rotation, not the same again


def test_the_rotation_is_haar():
    """Signs of R's diagonal are fixed: without that, the first entry of Q is always negative."""
    first = torch.stack([SignHasher(4, 8, seed=seed).rows[:4] for seed in range(400)])  # [400, 4, 4]
    standard_error = 0.5 / 400**0.5
    assert first.mean(0).abs().max() < 4.5 * standard_error
    traces = first.diagonal(dim1=1, dim2=2).sum(1)
    assert abs(float(traces.square().mean()) - 1) < 0.4  # E[trace^2] = 1 under Haar measure, variance 2


@given(bits=st.sampled_from([8, 16, 32, 40, 64]), orthonormal=st.booleans(), seed=st.integers(0, 5))
def test_codes_are_nested(bits, orthonormal, seed):
    x = embeddings(50, 20, offset=0.2)
    long, short = (SignHasher(20, b, seed=seed, orthonormal=orthonormal) for b in (128, bits))
    for hasher in (long, short):
        hasher.update_mean(x)
    assert torch.equal(long.rows[:bits], short.rows)
    assert torch.equal(long.encode(x)[:, : bits // 8], short.encode(x))


def test_seeds_decide():
    x = embeddings(50, 16)
    assert torch.equal(SignHasher(16, 64, seed=1).encode(x), SignHasher(16, 64, seed=1).encode(x))
    assert not torch.equal(SignHasher(16, 64, seed=1).encode(x), SignHasher(16, 64, seed=2).encode(x))
    gaussian = SignHasher(16, 64, seed=1, orthonormal=False).rows
    assert not torch.allclose(gaussian.norm(dim=1), torch.ones(64), atol=0.01)


def test_sign_of_zero_is_plus():
    assert (SignHasher(8, 16).encode(torch.zeros(3, 8)) == 255).all()
    assert (SignHasher(8, 16).encode(-torch.zeros(3, 8)) == 255).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_any_float_dtype_and_layout(dtype):
    x = embeddings(64, 32).to(dtype)
    hasher = SignHasher(32, 64)
    hasher.update_mean(x)
    assert hasher.mean.dtype == torch.float64
    expected = hasher.encode(x.double())
    assert (hasher.encode(x) == expected).float().mean() > 0.999
    strided = torch.stack([x, x], dim=2)[:, :, 0]
    assert torch.equal(hasher.encode(strided), hasher.encode(x))
    assert torch.equal(hasher.encode(x.requires_grad_()), hasher.encode(x.detach()))


def test_tiles_do_not_matter(monkeypatch):
    x, hasher = embeddings(100, 24), SignHasher(24, 40)
    expected = hasher.encode(x)
    monkeypatch.setattr("lookalike.hashing.signs.TILE_ELEMENTS", 7 * 40)
    assert torch.equal(hasher.encode(x), expected)


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_running_mean_is_the_mean_of_all(sizes):
    x = embeddings(sum(sizes), 12, offset=5.0)
    hasher = SignHasher(12, 24)
    for part in x.split(sizes):
        hasher.update_mean(part)
    assert int(hasher.count) == len(x)
    if len(x):
        expected = (x.double() @ hasher.rows.double().T).mean(0)
        assert torch.allclose(hasher.projected_mean, expected, atol=1e-6)


@pytest.mark.parametrize("count", [30, torch.tensor(30.0, dtype=torch.float64)])
def test_a_mean_from_outside_is_continued(count):
    x = embeddings(50, 12, offset=5.0)
    expected, hasher = SignHasher(12, 24), SignHasher(12, 24)
    expected.update_mean(x)
    hasher.update_mean(x[:7])
    hasher.set_mean(x[:30].mean(0, dtype=torch.float64), count)
    assert int(hasher.count) == 30
    hasher.update_mean(x[30:])
    assert torch.allclose(hasher.mean, expected.mean)
    assert (int(hasher.count), hasher.count.dtype, hasher.mean.dtype) == (50, torch.int64, torch.float64)
    with pytest.raises(ValueError, match=r"mean must have the shape \[12\], got \[1, 12\]."):
        hasher.set_mean(x[:1], 1)


def test_state_dict_carries_rotation_and_mean():
    x = embeddings(40, 16, offset=1.0)
    first = SignHasher(16, 32, seed=1)
    first.update_mean(x)
    second = SignHasher(16, 32, seed=2)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.encode(x), second.encode(x))
    assert int(second.count) == 40


def test_half_precision_models_keep_their_codes():
    """`model.half()` must not round the rotation, nor `autocast` the projections."""
    x, hasher = embeddings(200, 32), SignHasher(32, 64)
    expected = hasher.encode(x)
    assert torch.equal(torch.nn.Sequential(hasher).half()[0].encode(x), expected)
    assert hasher.rows.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(hasher.encode(x), expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("method", ["encode", "update_mean"])
def test_non_finite_values_name_their_row(value, method):
    x, hasher = embeddings(10, 8), SignHasher(8, 16)
    x[7, 3] = value
    with pytest.raises(ValueError, match=r"row 7 holds NaN or infinity \(1 of 10 rows do\)"):
        getattr(hasher, method)(x)
    assert int(hasher.count) == 0


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: SignHasher(8, 12), ValueError, "bits must be a multiple of 8, got 12; the next one is 16."),
        (lambda: SignHasher(8, 0), ValueError, "bits must be at least 1, got 0."),
        (lambda: SignHasher(8, -8), ValueError, "bits must be at least 1, got -8."),
        (lambda: SignHasher(0, 8), ValueError, "dim must be at least 1, got 0."),
        (lambda: SignHasher(8, 8.0), TypeError, "bits must be an integer, got float."),
        (lambda: SignHasher(8, 8, center=1.5), ValueError, "center must be at least 0 and at most 1, got 1.5."),
        (
            lambda: SignHasher(8, 8).encode(torch.zeros(3, 9)),
            ValueError,
            r"shape \[n, 8\], because dim=8, got \[3, 9\]",
        ),
        (lambda: SignHasher(8, 8).encode(torch.zeros(8)), ValueError, r"shape \[n, 8\], because dim=8, got \[8\]"),
        (lambda: SignHasher(8, 8).encode(torch.zeros(3, 8).int()), TypeError, "must be floats, got torch.int32."),
    ],
)
def test_bad_input_gets_a_sentence(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


def test_flags_instead_of_errors():
    x, hasher = embeddings(10, 8), SignHasher(8, 16)
    expected = hasher.encode(x)
    x[4, 0], x[6, 7] = float("nan"), float("inf")
    codes, finite = hasher.encode_flagged(x)
    assert (~finite).nonzero().flatten().tolist() == [4, 6]
    assert torch.equal(codes[finite], expected[finite])


def test_overflow_is_told_from_infinity():
    with pytest.raises(ValueError, match=r"finite but too large to be summed \(up to 3e\+38\); scale them down."):
        SignHasher(64, 64, orthonormal=False).encode(torch.full((2, 64), 3e38))


def test_empty_input():
    hasher = SignHasher(8, 16)
    hasher.update_mean(torch.zeros(0, 8))
    assert hasher.encode(torch.zeros(0, 8)).shape == (0, 2)


@pytest.mark.parametrize("bits", [8, 64, 1000])
def test_packing_on_a_device_is_numpys(bits):
    signs = torch.rand(300, bits, generator=torch.manual_seed(bits)) < 0.5
    signs[:2] = torch.tensor([[True], [False]])
    assert np.array_equal(_pack_by_products(signs), np.packbits(signs.numpy(), axis=1, bitorder="little"))


def test_implied_cosine():
    assert torch.allclose(implied_cosine(torch.tensor([0, 32, 64]), 64), torch.tensor([1.0, 0.0, -1.0]).double())
