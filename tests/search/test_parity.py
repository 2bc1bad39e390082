"""Every backend returns the arrays of the plain one, on all rows."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookalike import hamming_topk
from lookalike.search import BACKENDS, answer, cpu, matmul
from lookalike.search.choice import LONGEST
from lookalike.search.request import checked_request

FAST = [name for name in BACKENDS if name not in ("plain", "cuda")]  # that one has its own file


def assert_same(found, expected):
    for name, a, b in zip(expected._fields, found, expected, strict=True):
        assert a.dtype == b.dtype
        rows = (a != b).any(1).nonzero().flatten().tolist()
        assert not rows, f"{name} differ in {len(rows)} rows, first {rows[0]}: {a[rows[0]]} instead of {b[rows[0]]}"


def csr(lists):
    offsets = np.cumsum([0, *map(len, lists)])
    return offsets, np.array([i for ids in lists for i in ids], dtype=np.int64)


@st.composite
def searches(draw):
    """Small searches with everything that has ever gone wrong: ties, duplicates, one label, k > n, single rows."""
    bits = draw(st.sampled_from([8, 16, 24, 40, 64, 120, 128, 136, 256, 512, 1024, 2040, 2048]))
    n = draw(st.sampled_from([1, 2, 3, 15, 16, 17, 63, 65, 200, 511, 513, 600]))
    q = draw(st.sampled_from([0, 1, 2, 7, 8, 9, 65, n]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    distinct = draw(st.sampled_from([1, 2, 5, 10**6]))  # few distinct codes: duplicates and ties
    pool = rng.integers(0, 256, (min(distinct, n), bits // 8), dtype=np.uint8)
    if draw(st.booleans()):
        pool &= rng.integers(0, 256, pool.shape, dtype=np.uint8) & 1  # few distinct distances
    reference = pool[rng.integers(0, len(pool), n)]
    self_join = q == n and draw(st.booleans())
    queries = (
        reference.copy() if self_join else pool[rng.integers(0, len(pool), q)] ^ rng.integers(0, 2, (q, 1), np.uint8)
    )
    options = {}
    classes = draw(st.sampled_from([None, 1, 2, 20]))
    if classes is not None:
        options["reference_labels"] = rng.integers(-3, classes - 3, n)
        same = self_join and draw(st.booleans())
        options["query_labels"] = options["reference_labels"] if same else rng.integers(-3, classes - 3, q)
    longest = draw(st.sampled_from([None, 0, 1, 5, n]))
    if longest is not None:
        options["exclude"] = csr([rng.integers(0, n, rng.integers(0, longest + 1)) for _ in range(q)])
    if draw(st.booleans()):
        options["limits"] = rng.integers(-2, draw(st.sampled_from([1, bits // 2, bits + 3])), q)
    k = draw(st.sampled_from([1, 2, 5, 16, n, n + 3]))
    return queries, reference, k, options


@pytest.mark.parametrize("backend", FAST)
@given(search=searches())
def test_parity_on_awkward_input(backend, search):
    queries, reference, k, options = search
    expected = hamming_topk(queries, reference, k, backend="plain", **options)
    assert_same(hamming_topk(queries, reference, k, backend=backend, **options), expected)


def clustered_codes(n, bits, clusters, seed):
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2, (clusters, bits))
    flips = rng.random((n, bits)) < rng.uniform(0.05, 0.45, (n, 1))
    members = np.sort(rng.integers(0, clusters, n))  # sorted by cluster, as data sets often are
    return torch.from_numpy(np.packbits(centres[members] ^ flips, axis=1, bitorder="little")), members


@pytest.mark.parametrize("bits", [32, 128, 512])
@pytest.mark.parametrize("kind", ["self-join", "two tables"])
def test_sampled_limits_are_exact_on_all_rows(bits, kind, threads, monkeypatch):
    """Large enough for limits by sampling, cut lists and repaired queries to occur; with any number of threads."""
    n, k = (5_000 if kind == "self-join" else 18_000), 20
    if kind == "self-join":
        monkeypatch.setattr(cpu, "SAMPLE", 400)  # every 12th row; of the larger table every 11th as it is
    repair, repaired = cpu._repair, []
    monkeypatch.setattr(cpu, "_repair", lambda *args: repaired.append((~args[2].proven).sum()) or repair(*args))
    reference, members = clustered_codes(n, bits, 300, seed=bits)
    queries = reference if kind == "self-join" else reference[1::9].clone()
    labels = torch.from_numpy(members // 3)
    query_labels = labels if kind == "self-join" else labels[1::9]
    exclude = csr([[i] for i in range(len(queries))])
    options = {"query_labels": query_labels, "reference_labels": labels, "exclude": exclude}
    expected = hamming_topk(queries, reference, k, backend="matmul", **options)
    for number in (1, 2, 3):
        threads(number)
        assert_same(hamming_topk(queries, reference, k, backend="cpu", **options), expected)
    assert 0 < repaired[-1] < len(queries) / 2  # limits shut most rows out, and a neighbour here and there


def earlier_limits(reference, queries, k):
    """What a search of the first half of a reference knows, for some of its queries: the k-th distance less one."""
    distances = hamming_topk(queries, reference[: len(reference) // 2], k, backend="matmul").distances[:, -1] - 1
    distances[::3] = reference.shape[1] * 8
    distances[1::30] = -1
    return distances


@pytest.mark.parametrize("kind", ["self-join", "two tables"])
def test_limits_are_kept_on_all_rows(kind, threads, monkeypatch):
    """Tight, loose and shut limits beside each other; sampled ones that are too tight beneath them."""
    reference, members = clustered_codes(6_000, 128, 300, seed=5)
    queries = reference if kind == "self-join" else reference[1::5].clone()
    labels = torch.from_numpy(members // 3)
    query_labels = labels if kind == "self-join" else labels[1::5]
    options = {
        "query_labels": query_labels,
        "reference_labels": labels,
        "limits": earlier_limits(reference, queries, 9),
    }
    expected = hamming_topk(queries, reference, 9, backend="matmul", **options)
    assert (expected.indices == -1).any()
    sampled, asked = cpu._sampled_limits, []
    for tightened in (0, 3):

        def too_tight(request, *rest, by=tightened):
            asked.append(request)
            found = sampled(request, *rest)
            return found._replace(distances=found.distances - by)

        monkeypatch.setattr(cpu, "_sampled_limits", too_tight)
        for number in (1, 3):
            threads(number)
            assert_same(hamming_topk(queries, reference, 9, backend="cpu", **options), expected)
    assert asked
    assert all(len(queries) / 4 < request.num_queries < len(queries) / 2 for request in asked)  # loose ones only


def test_queries_short_of_neighbours_within_their_limit_are_not_searched_again(monkeypatch):
    codes, _ = clustered_codes(3000, 64, 20, seed=1)
    repair, repaired = cpu._repair, []
    monkeypatch.setattr(cpu, "_repair", lambda *args: repaired.append((~args[2].proven).sum()) or repair(*args))
    limits = torch.randint(-1, 20, (3000,), generator=torch.manual_seed(0))
    found = hamming_topk(codes, codes, 50, backend="cpu", limits=limits)
    assert (found.indices == -1).any(1).sum() > 1000
    assert repaired == [0]
    assert_same(found, hamming_topk(codes, codes, 50, backend="matmul", limits=limits))


def test_limits_are_repaired(monkeypatch):
    """With limits that shut everything out, all of the answer comes from the repair."""
    codes, _ = clustered_codes(3000, 64, 20, seed=1)
    monkeypatch.setattr(cpu, "_sampled_limits", lambda request, *_: cpu.Limits.same(request.num_queries, 0))
    assert_same(hamming_topk(codes, codes, 9, backend="cpu"), hamming_topk(codes, codes, 9, backend="matmul"))


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_ties_across_the_ids_of_limits(labels, threads):
    """Few distinct codes, so that limits fall among ties: rows at that distance count up to an id, and no further."""
    rng = np.random.default_rng(labels)
    pool = rng.integers(0, 256, (12, 4), dtype=np.uint8)
    codes = torch.from_numpy(pool[rng.integers(0, len(pool), 9_000)])
    options = {"query_labels": torch.from_numpy(rng.integers(0, labels, len(codes))) if labels > 1 else None}
    for queries, named in ((codes, options), (codes[::3].clone(), {})):
        expected = hamming_topk(queries, codes, 30, backend="plain", **named)
        for number in (1, 2, 3):
            threads(number)
            assert_same(hamming_topk(queries, codes, 30, backend="cpu", **named), expected)


def test_wide_keys(monkeypatch):
    """What only very large tables meet: keys of 64 bits, in memory of their own."""
    codes, members = clustered_codes(5_000, 64, 50, seed=2)
    labels = torch.from_numpy(members)
    options = {"query_labels": labels, "reference_labels": labels}
    expected = hamming_topk(codes, codes, 15, backend="matmul", **options)
    monkeypatch.setattr(cpu, "_key_type", lambda *_: np.dtype(np.uint64))
    assert_same(hamming_topk(codes, codes, 15, backend="cpu", **options), expected)
    some = {**options, "query_labels": labels[:999]}
    assert_same(
        hamming_topk(codes[:999], codes, 15, backend="cpu", **some), type(expected)(*(part[:999] for part in expected))
    )


@pytest.mark.parametrize("backend", FAST)
def test_all_codes_equal(backend):
    codes = torch.zeros(2500, 16, dtype=torch.uint8)
    found = hamming_topk(codes, codes, 40, backend=backend)
    assert (found.distances == 0).all()
    assert (found.indices == torch.arange(40)).all()


def test_guessing_a_limit_of_long_codes_takes_little_memory():
    codes = torch.randint(0, 256, (2100, LONGEST // 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    request = checked_request(codes, codes, 5)
    tracemalloc.start()
    limit = cpu._typical_limit(request, 1, 0.05)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert LONGEST * 0.45 < limit < LONGEST * 0.55
    assert peak < 8 * codes.nbytes  # not one copy of them per query


def test_repeated_searches_agree():
    codes, _ = clustered_codes(9000, 128, 100, seed=3)
    first = hamming_topk(codes, codes, 30, backend="cpu")
    for _ in range(5):
        assert_same(hamming_topk(codes, codes, 30, backend="cpu"), first)


def test_self_join_is_scanned_once(monkeypatch):
    """Equal tables are recognised even if they are different tensors."""
    codes, _ = clustered_codes(1000, 64, 10, seed=4)
    scan, scans = cpu._scan_mirrored, []
    monkeypatch.setattr(cpu, "_scan_mirrored", lambda *args: scans.append(args) or scan(*args))
    hamming_topk(codes, codes.clone(), 5, backend="cpu")
    hamming_topk(codes, codes.flip(0), 5, backend="cpu")
    assert len(scans) == 1


def test_request_take_keeps_exclude_lists_and_limits():
    codes = torch.arange(8, dtype=torch.uint8).reshape(4, 2)
    request = checked_request(codes, codes, 1, exclude=csr([[3, 1], [], [2], [0, 1, 2]]), limits=[-5, 3, 9, 99])
    assert request.limits.tolist() == [-1, 3, 9, 16]
    taken = request.take(torch.tensor([3, 0]))
    assert taken.exclude[0].tolist() == [0, 3, 5]
    assert taken.exclude[1].tolist() == [0, 1, 2, 1, 3]
    assert taken.limits.tolist() == [16, -1]


@pytest.mark.parametrize("backend", ["plain", *FAST])
@pytest.mark.parametrize("n", [0, 1, 700])
def test_narrow_answers_are_the_same(backend, n):
    codes = torch.randint(0, 256, (n, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    for queries in (codes, codes[:300]):
        request = checked_request(queries, codes, 9, narrow=True)
        narrow, wide = answer(request, backend), hamming_topk(queries, codes, 9, backend=backend)
        assert narrow.indices.dtype == torch.int32
        assert torch.equal(narrow.indices.long(), wide.indices)
        assert torch.equal(narrow.distances, wide.distances)


def test_matrix_products_of_codes_whose_keys_need_64_bits():
    codes = torch.randint(0, 256, (12, 1 << 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert_same(*(hamming_topk(codes[:5], codes, 4, backend=name) for name in ("matmul", "plain")))


def test_matrix_products_across_tiles(monkeypatch):
    """Labels and exclude lists fall where tiles of queries and references meet."""
    monkeypatch.setattr(matmul, "QUERY_TILE", 64)
    monkeypatch.setattr(matmul, "CPU_QUERIES", 24)
    monkeypatch.setattr(matmul, "CPU_REFERENCE_TILE", 32)
    rng = np.random.default_rng(5)
    codes = torch.from_numpy(rng.integers(0, 256, (7, 3), dtype=np.uint8)[rng.integers(0, 7, 300)])
    exclude = csr([rng.integers(0, 300, 40) for _ in codes])
    for k in (3, 31, 32, 200, 400):
        options = {"query_labels": rng.integers(0, 3, 300), "exclude": exclude}
        assert_same(*(hamming_topk(codes, codes, k, backend=name, **options) for name in ("matmul", "plain")))
