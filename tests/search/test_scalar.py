"""Codes of several bits: every backend returns the arrays of the plain one, on all rows."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookalike import ScalarCodes, ScalarHasher, hamming_topk, scalar_topk
from lookalike.hashing.scheme import FARTHEST
from lookalike.search import cpu
from tests.search.test_parity import FAST, assert_same, csr


def hashed(n, dim, bits, *, clusters=50, seed=0, common=0):
    """Codes of clustered embeddings whose variance falls off, so that bits are shared out unevenly."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.linspace(2, 0.1, dim)
    centres = torch.randn(clusters, dim, generator=generator) * scale
    members = torch.randint(clusters, (n,), generator=generator).sort().values
    x = centres[members] + 0.4 * torch.randn(n, dim, generator=generator) * scale
    x += common * torch.randn(dim, generator=generator)
    hasher = ScalarHasher(dim, bits, seed=seed)
    hasher.update(x)
    return hasher.encode(x), members


@st.composite
def searches(draw):
    """Small searches with ties, duplicates, one label, k > n and single rows; and bytes that no hasher would write."""
    bits, dim = draw(st.sampled_from([32, 40, 64, 128, 136, 512])), draw(st.sampled_from([3, 8, 33, 100]))
    n = draw(st.sampled_from([1, 2, 3, 15, 16, 17, 65, 300, 513]))
    q = draw(st.sampled_from([0, 1, 2, 9, 65, n]))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    codes, _ = hashed(40, dim, bits, clusters=5, seed=seed % 1000, common=draw(st.sampled_from([0, 0, 30, 1e4])))
    pool = codes.packed.numpy()
    if draw(st.booleans()):
        pool = rng.integers(0, 256, pool.shape, dtype=np.uint8)  # the farthest apart, and beyond
    pool = pool[: draw(st.sampled_from([1, 2, 5, 40]))]
    reference = ScalarCodes(torch.from_numpy(pool[rng.integers(0, len(pool), n)]), codes.scheme)
    self_join = q == n and draw(st.booleans())
    query = (
        reference[:] if self_join else ScalarCodes(torch.from_numpy(pool[rng.integers(0, len(pool), q)]), codes.scheme)
    )
    options = {}
    classes = draw(st.sampled_from([None, 1, 2, 20]))
    if classes is not None:
        options = {
            "reference_labels": rng.integers(-3, classes - 3, n),
            "query_labels": rng.integers(-3, classes - 3, q),
        }
    longest = draw(st.sampled_from([None, 0, 5, n]))
    if longest is not None:
        options["exclude"] = csr([rng.integers(0, n, rng.integers(0, longest + 1)) for _ in range(q)])
    if draw(st.booleans()):
        options["limits"] = rng.integers(-2, draw(st.sampled_from([1, 9_000, FARTHEST + 3])), q)
    return query, reference, draw(st.sampled_from([1, 2, 16, n, n + 3])), options


@pytest.mark.parametrize("backend", FAST)
@given(search=searches())
def test_parity_on_awkward_input(backend, search):
    query, reference, k, options = search
    expected = scalar_topk(query, reference, k, backend="plain", **options)
    assert_same(scalar_topk(query, reference, k, backend=backend, **options), expected)


@pytest.mark.parametrize(("bits", "dim"), [(32, 16), (128, 96), (512, 96), (1536, 384)])
@pytest.mark.parametrize("kind", ["self-join", "two tables"])
def test_sampled_limits_are_exact_on_all_rows(bits, dim, kind, threads):
    """Large enough for limits by sampling, cut lists and repaired queries to occur; with any number of threads."""
    codes, members = hashed(6_000, dim, bits, clusters=200)
    labels = members // 3
    query = codes if kind == "self-join" else codes[1::5]
    options = {"query_labels": labels if kind == "self-join" else labels[1::5], "reference_labels": labels}
    options["exclude"] = csr([[i] for i in range(len(query))])
    expected = scalar_topk(query, codes, 20, backend="matmul", **options)
    for number in (1, 3):
        threads(number)
        assert_same(scalar_topk(query, codes, 20, backend="cpu", **options), expected)


def test_limits_are_repaired(monkeypatch):
    """With limits that shut everything out, all of the answer comes from the repair."""
    codes, _ = hashed(3000, 24, 96)
    monkeypatch.setattr(cpu, "_sampled_limits", lambda request, *_: cpu.Limits.same(request.num_queries, 0))
    assert_same(scalar_topk(codes, codes, 9, backend="cpu"), scalar_topk(codes, codes, 9, backend="matmul"))


def test_wide_keys(monkeypatch):
    """Tables of more than 131,071 rows take keys of 64 bits."""
    codes, members = hashed(4_000, 24, 96)
    expected = scalar_topk(codes, codes, 15, query_labels=members, backend="matmul")
    monkeypatch.setattr(cpu, "_key_type", lambda *_: np.dtype(np.uint64))
    assert_same(scalar_topk(codes, codes, 15, query_labels=members, backend="cpu"), expected)


PORTABLE = """
import torch
from lookalike import scalar_topk
from lookalike.search.simd_scalar import has_byte_products
from tests.search.test_scalar import hashed
from tests.search.test_parity import assert_same

assert not has_byte_products()
for bits, dim in ((40, 9), (256, 96)):
    codes, members = hashed(700, dim, bits)
    expected = scalar_topk(codes, codes, 9, query_labels=members, backend="plain")
    assert_same(scalar_topk(codes, codes, 9, query_labels=members, backend="cpu"), expected)
"""


def test_cpus_without_byte_products(tmp_path):
    """What other CPUs run is compiled here for one that has nothing special."""
    settings = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PORTABLE]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=_environment(settings))
    assert ran.returncode == 0, ran.stderr


def _environment(more):
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def test_codes_of_other_statistics_are_refused():
    first, _ = hashed(100, 24, 96, seed=1)
    second, _ = hashed(100, 24, 96, seed=2)
    with pytest.raises(ValueError, match="made with different statistics and mean different things"):
        scalar_topk(first, second, 3)
    with pytest.raises(TypeError, match=r"codes must be ScalarCodes, which ScalarHasher\.encode makes, got Tensor"):
        scalar_topk(first.packed, second.packed, 3)
    with pytest.raises(TypeError, match="query must be packed codes of dtype uint8"):
        hamming_topk(first, first, 3)
