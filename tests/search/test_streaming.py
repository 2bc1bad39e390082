"""Pages give the answer of one search: in any number, from memory and from files, on every backend."""

import os
import threading
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookalike import ScalarHasher, hamming_topk, scalar_topk
from lookalike.hashing.scheme import FARTHEST
from lookalike.search import answer, cuda, cuda_plan, load_kernel, merging, pages
from lookalike.search.pages import CodePages, Page
from lookalike.search.request import Neighbours
from lookalike.search.streaming import streamed_topk
from tests.search import emulator
from tests.search.test_parity import assert_same, clustered_codes, csr, searches


def in_pages(codes, edges, labels=None, first=0):
    """Cut a reference at the edges; equal edges give empty pages."""
    edges = [0, *sorted(edges), len(codes)]
    for start, stop in pairwise(edges):
        yield Page(first + start, codes[start:stop], None if labels is None else labels[start:stop])


def streamed(queries, reference, k, edges, *, reference_labels=None, **options):
    return streamed_topk(queries, in_pages(reference, edges, reference_labels), k, **options)


@pytest.mark.parametrize("backend", ["plain", "matmul", "cpu"])
@given(search=searches(), cuts=st.lists(st.floats(0, 1), max_size=5))
def test_pages_give_the_answer_of_one_search(backend, search, cuts):
    queries, reference, k, options = search
    expected = hamming_topk(queries, reference, k, backend="plain", **options)
    edges = [round(cut * len(reference)) for cut in cuts]
    assert_same(streamed(queries, reference, k, edges, backend=backend, **options), expected)


@pytest.mark.parametrize("kind", ["clusters", "all equal", "few distinct"])
def test_large_pages(kind):
    """With limits by sampling on the first page, sorted clusters that arrive late, and ties across pages."""
    codes, members = clustered_codes(16_000, 128, 60, seed=1)
    if kind != "clusters":
        codes = codes[torch.randint(1 if kind == "all equal" else 30, (16_000,), generator=torch.manual_seed(0))]
    labels = torch.from_numpy(members) // 2
    queries, own = codes[3::11].clone(), labels[3::11]
    options = {
        "query_labels": own,
        "reference_labels": labels,
        "exclude": csr([[i, 15_000 - i] for i in range(len(own))]),
    }
    expected = hamming_topk(queries, codes, 30, backend="plain", **options)
    assert_same(streamed(queries, codes, 30, [5000, 5000, 9000, 15_990], backend="cpu", **options), expected)


def test_later_pages_are_limited_by_the_earlier_ones(monkeypatch):
    codes, _ = clustered_codes(6_000, 128, 60, seed=1)
    asked = []

    def search(request, backend):
        asked.append(request)
        return answer(request, backend)

    monkeypatch.setattr("lookalike.search.streaming.answer", search)
    streamed(codes[:50], codes, 5, [2000, 4000])
    first = hamming_topk(codes[:50], codes[:2000], 5).distances[:, -1]
    both = hamming_topk(codes[:50], codes[:4000], 5).distances[:, -1]
    assert asked[0].limits is None
    assert torch.equal(asked[1].limits, first - 1)
    assert torch.equal(asked[2].limits, both - 1)


def test_emulated_kernels_search_pages(monkeypatch, tmp_path):
    if emulator.COMPILER is None:
        pytest.skip("needs g++")
    emulator.install(monkeypatch, tmp_path)
    monkeypatch.setattr(cuda_plan, "DIRECT", 600)
    monkeypatch.setattr("lookalike.search.streaming.answer", lambda request, _: cuda.SignSearch(request).run())
    codes, members = clustered_codes(3001, 128, 20, seed=1)
    labels = torch.from_numpy(members) // 2
    queries, options = codes[::50].clone(), {"query_labels": labels[::50], "reference_labels": labels}
    expected = hamming_topk(queries, codes, 12, backend="plain", **options)
    assert_same(streamed(queries, codes, 12, [1000, 1008, 2100], **options), expected)


def test_ids_may_begin_anywhere_and_leave_gaps():
    codes = torch.randint(256, (40, 8), dtype=torch.uint8, generator=torch.manual_seed(0))
    expected = hamming_topk(codes[:9], codes, 7)
    ids = torch.cat([torch.arange(5, 25), torch.arange(10**10, 10**10 + 20)])
    given = [Page(5, codes[:20]), Page(10**10, codes[20:].numpy())]
    found = streamed_topk(codes[:9].numpy(), given, 7)
    assert torch.equal(found.indices, ids[expected.indices])
    with pytest.raises(ValueError, match=r"ends with id 10000000019, which torch.int32 indices cannot hold\."):
        streamed_topk(codes[:9], given, 7, narrow=True)
    narrow = streamed_topk(codes[:9], [Page(0, codes)], 7, narrow=True)
    assert narrow.indices.dtype == torch.int32
    assert torch.equal(narrow.indices.long(), expected.indices)


@pytest.mark.parametrize("given", [[], [Page(0, np.empty((0, 8), np.uint8))]])
@pytest.mark.parametrize("q", [0, 3])
def test_nothing_to_search(given, q):
    found = streamed_topk(torch.zeros(q, 8, dtype=torch.uint8), given, 4)
    assert found.indices.shape == (q, 4)
    assert found.distances.dtype == torch.int32
    assert (found.indices == -1).all()


@st.composite
def lists_to_merge(draw):
    """Ascending lists of different lengths, with ties within and between them."""
    rows, k = draw(st.integers(0, 9)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    most = draw(st.sampled_from([1, 3, 100]))
    lists = []
    for ids in (rng.permuted(np.tile(np.arange(20), (rows, 1)), axis=1)[:, :k] for _ in range(2)):
        distances = rng.integers(0, most, ids.shape)
        keys = np.sort(distances * 100 + ids, axis=1)
        absent = np.arange(k) >= rng.integers(0, k + 1, (rows, 1))
        lists += [np.where(absent, -1, keys // 100).astype(np.int32), np.where(absent, -1, keys % 100)]
    dtype = draw(st.sampled_from([np.int64, np.int32]))
    parts = [torch.from_numpy(part.astype(dtype) if i % 2 else part) for i, part in enumerate(lists)]
    return Neighbours(*parts[:2]), Neighbours(*parts[2:])


@pytest.mark.parametrize("compiled", [True, False])
@given(lists=lists_to_merge())
def test_merging(compiled, lists):
    best, found = lists
    k = best.indices.shape[1]
    expected = []
    for row in zip(*(part.tolist() for part in (*best, *found)), strict=True):
        held = [(d, i) for d, i in zip(*row[:2], strict=True) if i >= 0]
        held += [(d, i + 1000) for d, i in zip(*row[2:], strict=True) if i >= 0]
        expected.append((sorted(held) + [(-1, -1)] * k)[:k])
    load_kernel()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "ROOM", 30)
        patch.setattr(merging, "is_loaded", lambda: compiled)
        merging.keep_nearest(best, found, 1000)
    assert [list(zip(*row, strict=True)) for row in zip(*(part.tolist() for part in best), strict=True)] == expected


@dataclass
class Watched:
    """Pages that count how far they were read when each was asked for, and fail in the end if told to."""

    codes: torch.Tensor
    read: int = 0
    fails_at: int | None = None

    def __iter__(self):
        for i in range(10):
            if i == self.fails_at:
                raise OSError("the disk is gone")
            self.read += 1
            yield Page(i * 10, self.codes[i * 10 : i * 10 + 10])


CODES = torch.randint(256, (100, 8), dtype=torch.uint8, generator=torch.manual_seed(0))


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("lookalike-pages")]


def test_errors_of_the_reading_thread_come_through():
    for fails_at in (0, 4, 9):
        with pytest.raises(OSError, match="the disk is gone"):
            streamed_topk(CODES[:5], Watched(CODES, fails_at=fails_at), 3)
        assert not reading_threads()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_one_page_is_read_ahead_and_no_thread_stays(monkeypatch, error):
    watched, seen = Watched(CODES), []

    def search(request, _):
        seen.append(watched.read)
        if len(seen) == 4:
            raise error
        return hamming_topk(request.query, request.reference, request.k, limits=request.limits)

    monkeypatch.setattr("lookalike.search.streaming.answer", search)
    with pytest.raises(error):
        streamed_topk(CODES[:5], watched, 3)
    assert all(read in (i + 1, i + 2) for i, read in enumerate(seen))
    assert not reading_threads()


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ([Page(0, CODES[:, :4])], ValueError, "the page from id 0 has codes of 32 bits, and the queries have 64 bits."),
        ([Page(0, CODES.float())], TypeError, "codes of the page from id 0 must be packed codes of dtype uint8"),
        (
            [Page(0, CODES), Page(99, CODES)],
            ValueError,
            "ascending order of id: the page from id 99 follows one that ends with id 99.",
        ),
        ([Page(-1, CODES)], ValueError, "first of a page must be at least 0, got -1."),
        ([Page(0, CODES, torch.zeros(100))], TypeError, "labels of the page from id 0 must be integers"),
        ([Page(0, CODES, [1])], ValueError, "labels of the page from id 0 must have one label per code, 100, got 1."),
        ([Page(7, CODES, [1] * 100)], ValueError, "the page from id 7 has labels, but the queries have none"),
    ],
)
def test_bad_pages_get_a_sentence(given, error, sentence):
    with pytest.raises(error, match=sentence):
        streamed_topk(CODES[:5], given, 3)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"query_labels": [1] * 5}, ValueError, "the page from id 0 has no labels, but the queries have"),
        ({"query_labels": [1] * 4}, ValueError, "query_labels must have one label per code, 5, got 4."),
        ({"k": 0}, ValueError, "k must be at least 1, got 0."),
        ({"backend": "faiss"}, ValueError, "backend must be one of"),
        ({"limits": [0.5] * 5}, TypeError, "limits must be integers"),
        ({"exclude": ([0] * 6, [-1])}, ValueError, "offsets must rise from 0 to the number of ids"),
        ({"query": CODES.float()}, TypeError, "query must be packed codes"),
    ],
)
def test_bad_arguments_get_a_sentence(change, error, sentence):
    with pytest.raises(error, match=sentence):
        streamed_topk(**{"query": CODES[:5], "k": 3, "pages": [Page(0, CODES)]} | change)


@pytest.mark.parametrize("kind", ["raw", "npy"])
@pytest.mark.parametrize("page_rows", [1, 7, 100, 1000])
def test_files_are_read_in_pages(tmp_path, kind, page_rows):
    path = tmp_path / "codes"
    labels = torch.arange(100) % 4
    if kind == "raw":
        CODES.numpy().tofile(path)
    else:
        with path.open("wb") as file:
            np.save(file, CODES.numpy())
    given = CodePages(path, bits=64 if kind == "raw" else None, labels=labels, page_rows=page_rows)
    assert len(given) == 100
    expected = hamming_topk(CODES[:9], CODES, 20, query_labels=labels[:9], reference_labels=labels)
    for _ in range(2):
        assert_same(streamed_topk(CODES[:9], given, 20, query_labels=labels[:9]), expected)
    part = CodePages(path, bits=64, start=30, stop=61, first=1000, page_rows=page_rows)
    expected = hamming_topk(CODES[:9], CODES[30:61], 5)
    found = streamed_topk(CODES[:9], part, 5)
    assert_same(found, expected._replace(indices=expected.indices + 1000))


def test_two_buffers_hold_all_pages(tmp_path):
    CODES.numpy().tofile(tmp_path / "codes")
    held = {page.codes.data_ptr() for page in CodePages(tmp_path / "codes", 64, page_rows=9)}
    assert len(held) == 2


def test_default_pages():
    assert pages.default_rows(64, torch.device("cuda", 1)) == 1 << 22
    for width in (1, 3, 64, 10**9):
        rows = pages.default_rows(width, torch.device("cpu"))
        assert rows % 512 == 0
        assert rows == 512 or rows * width <= pages.PAGE_BYTES["cpu"]


@pytest.mark.parametrize(
    ("make", "options", "sentence"),
    [
        ("raw", {}, "is not an .npy file: bits, the length of its codes, must be given."),
        ("raw", {"bits": 56}, "has 800 bytes, which is no multiple of a code of 56 bits"),
        ("raw", {"bits": 60}, "bits must be a multiple of 8, got 60"),
        ("raw", {"bits": 64, "stop": 101}, "has 100 codes; rows 0 to 101 are not a part of them."),
        ("raw", {"bits": 64, "start": 5, "stop": 4}, "rows 5 to 4 are not a part of them."),
        ("raw", {"bits": 64, "labels": [1, 2]}, "labels must have one label per row that is read, 100, got 2."),
        ("npy", {"bits": 32}, "holds codes of 64 bits, not 32."),
        ("floats", {}, r"must hold codes, uint8 \[n, bits / 8\] row by row, got float32 \[100, 8\]."),
        ("columns", {}, "row by row, got uint8"),
        ("cut", {}, "is truncated: 3 bytes are missing at its end"),
    ],
)
def test_bad_files_get_a_sentence(tmp_path, make, options, sentence):
    path, codes = tmp_path / "codes.npy", CODES.numpy()
    if make == "raw":
        codes.tofile(path)
    else:
        np.save(path, {"floats": codes.astype(np.float32), "columns": np.asfortranarray(codes)}.get(make, codes))
    if make == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match=sentence):
        CodePages(path, **options)


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    path = tmp_path / "codes"
    CODES.numpy().tofile(path)
    given = iter(CodePages(path, 64, page_rows=30))
    next(given)
    os.truncate(path, 400)
    with pytest.raises(ValueError, match="became shorter while it was read"):
        list(given)


@pytest.mark.gpu
@given(search=searches(), cuts=st.lists(st.floats(0, 1), max_size=5), queries_on_device=st.booleans())
def test_device_gives_the_answer_of_one_search(search, cuts, queries_on_device):
    queries, reference, k, options = search
    expected = hamming_topk(queries, reference, k, backend="plain", **options)
    edges = [round(cut * len(reference)) for cut in cuts]
    queries = torch.from_numpy(queries).cuda() if queries_on_device else queries
    found = streamed(queries, reference, k, edges, device="cuda", backend="cuda", **options)
    assert_same(Neighbours(*(part.cpu() for part in found)), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("pinned", [True, False])
def test_device_searches_large_pages_of_a_file(tmp_path, pinned):
    codes, members = clustered_codes(60_000, 256, 200, seed=1)
    codes.numpy().tofile(tmp_path / "codes")
    labels = torch.from_numpy(members)
    options = {"query_labels": labels[::20]}
    expected = hamming_topk(codes[::20].cuda(), codes.cuda(), 50, reference_labels=labels, **options)
    device = "cuda" if pinned else "cpu"
    for rows in (7001, 16_384):
        given = CodePages(tmp_path / "codes", 256, labels=labels, page_rows=rows, device=device)
        assert_same(streamed_topk(codes[::20].cuda(), given, 50, **options), expected)


@pytest.mark.gpu
def test_device_holds_two_pages():
    rows = 1 << 18
    queries = torch.randint(256, (64, 64), dtype=torch.uint8, device="cuda")

    def drawn():
        return (Page(i * rows, torch.randint(256, (rows, 64), dtype=torch.uint8)) for i in range(8))

    streamed_topk(queries, drawn(), 5, backend="cuda")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    streamed_topk(queries, drawn(), 5, backend="cuda")
    assert torch.cuda.max_memory_allocated() - before < 2.5 * rows * 64


@pytest.mark.parametrize("backend", ["plain", "matmul", "cpu"])
@pytest.mark.parametrize("kind", ["spread", "opposites", "few distinct"])
def test_pages_of_codes_of_several_bits(backend, kind):
    """Distances of up to 32,767 bound later pages, and ties keep their order."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(900, 24, generator=generator)
    if kind == "opposites":
        x = x[:1] * torch.tensor([1.0, -1.0])[torch.randint(2, (900, 1), generator=generator)]
    elif kind == "few distinct":
        x = x[torch.randint(20, (900,), generator=generator)]
    hasher = ScalarHasher(24, 96)
    hasher.update(torch.randn(500, 24, generator=generator))
    codes, labels = hasher.encode(x), torch.arange(900) // 3
    queries, own = codes[::40], labels[::40]
    options = {"query_labels": own, "exclude": csr([[i, 890 - i] for i in range(len(own))])}
    expected = scalar_topk(queries, codes, 700, reference_labels=labels, backend="plain", **options)
    options |= {"reference_labels": labels, "scheme": hasher.scheme, "backend": backend}
    assert_same(streamed(queries.packed, codes.packed, 700, [100, 100, 350, 899], **options), expected)
    limits = expected.distances[:, 17].clamp(max=FARTHEST)
    limited = streamed(queries.packed, codes.packed, 700, [100, 350], limits=limits, **options)
    within = (expected.distances >= 0) & (expected.distances <= limits[:, None])
    assert torch.equal(limited.distances, expected.distances.where(within, -1))
    assert torch.equal(limited.indices, expected.indices.where(within, -1))
    if kind == "opposites":
        assert int(expected.distances.max()) > 30_000
