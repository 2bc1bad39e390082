"""Scores of the kernels are those of torch, for rows anywhere, and depend on nothing but the two rows."""

import os
import threading

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from lookalike.mining import rescoring
from lookalike.mining.rescoring import list_scores, pair_scores
from lookalike.mining.rows import ArrayRows, FileRows, ShardRows, UnitRows, rows_of
from lookalike.mining.store import Store
from lookalike.utils import jit

N = 60


def file_rows(path, x, dtype=np.float32):
    np.save(path, x.astype(dtype))
    return rows_of(np.load(path, mmap_mode="r"))


def stored(folder, x):
    with Store(folder, len(x), np.float32) as store:
        store.claim()
        for j in range(store.num_chunks):
            store.write(j, x[list(store.chunk(j))])
        return store.rows()


KINDS = {
    "array": lambda _, x: ArrayRows(x),
    "slice": lambda _, x: ArrayRows(np.repeat(x, 2, axis=0)[::2]),  # not one row after another
    "file": lambda folder, x: file_rows(folder / "x.npy", x),
    "store": lambda folder, x: stored(folder / "store", x),
    "shards": lambda folder, x: ShardRows(
        [file_rows(folder / "a.npy", x[:7]), ArrayRows(x[7:7]), ArrayRows(x[7:9]), file_rows(folder / "b.npy", x[9:])]
    ),
    "float64": lambda folder, x: file_rows(folder / "x.npy", x, np.float64),
    "mixed": lambda folder, x: ShardRows([ArrayRows(x[:7]), file_rows(folder / "b.npy", x[7:], np.float64)]),
}
KERNEL = ("array", "file", "store", "shards")


def make(dim, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((N, dim)).astype(np.float32)
    x[5], x[6], x[7] = 0, x[8], -x[8]
    ids = rng.integers(-1, N, (N, 9))
    ids[3], ids[:, 1] = -1, ids[:, 0]
    return x, rng.permutation(N), ids


def plain(x, rows, ids, unit):
    x = torch.from_numpy(x).double()
    x = normalize(x, dim=1) if unit else x
    return (x[rows][:, None] * x[ids.clip(min=0)]).sum(-1).masked_fill(torch.from_numpy(ids < 0), -torch.inf)


@pytest.fixture(params=["whole", "in tiles"])
def _tiles(request, monkeypatch):
    if request.param == "in tiles":
        monkeypatch.setattr(rescoring, "FLOATS_IN_MEMORY", 500)
        monkeypatch.setattr(rescoring, "PAIRS", 50)
        monkeypatch.setattr(rescoring, "TASK", 16)
        monkeypatch.setattr(Store, "CHUNK", 16)


@pytest.mark.usefixtures("_tiles")
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("dim", [1, 31, 32, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_torch(tmp_path, kind, dim, unit):
    x, asked, ids = make(dim)
    rows = KINDS[kind](tmp_path, x)
    rows = UnitRows(rows) if unit else rows
    expected = plain(x, asked, ids, unit)
    got = list_scores(rows, rows, asked, ids)
    assert (got.dtype, got.shape) == (torch.float32, ids.shape)
    assert torch.equal(got.isinf(), expected.isinf())
    there = ~expected.isinf()
    scale = 1.0 if unit else float(np.square(x).sum(1).max())
    assert float((got.double() - expected)[there].abs().max()) < 1e-6 * scale
    pairs = pair_scores(rows, rows, np.repeat(asked, 9), ids.ravel())
    assert torch.equal(pairs.view(*ids.shape), got)


@pytest.mark.parametrize("kind", KERNEL)
def test_scores_depend_neither_on_threads_nor_on_other_queries(tmp_path, monkeypatch, kind):
    x, asked, ids = make(100)
    rows = UnitRows(KINDS[kind](tmp_path, x))
    whole = list_scores(rows, rows, asked, ids)
    alone = torch.cat([list_scores(rows, rows, asked[i : i + 1], ids[i : i + 1]) for i in range(N)])
    assert torch.equal(whole, alone)
    monkeypatch.setattr(rescoring, "TASK", 16)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(whole, list_scores(rows, rows, asked, ids))
    order = np.random.default_rng(1).permutation(N)
    assert torch.equal(whole[torch.from_numpy(order)], list_scores(rows, rows, asked[order], ids[order]))


def test_the_kernels_are_used_where_they_can_be(tmp_path, monkeypatch):
    x, asked, ids = make(32)
    used = []
    multiply = rescoring._multiply
    monkeypatch.setattr(rescoring, "_multiply", lambda *arguments: used.append(multiply(*arguments)))
    for kind, rows_in in KINDS.items():
        (tmp_path / kind).mkdir()
        rows = rows_in(tmp_path / kind, x)
        used.clear()
        list_scores(rows, rows, asked, ids)
        assert bool(used) == (kind in KERNEL), kind
    rows = ArrayRows(x)
    used.clear()
    similar = list_scores(rows, rows, asked, ids, lambda a, b: -(a - b).square().sum(1))
    mixed = list_scores(UnitRows(rows), rows, asked, ids)
    monkeypatch.setattr(rescoring, "numba_obstacle", lambda: "numba is not installed")
    assert torch.allclose(list_scores(rows, rows, asked, ids), plain(x, asked, ids, unit=False).float(), atol=1e-4)
    assert not used
    assert similar[0, 0] == -torch.from_numpy(x[asked[0]] - x[ids[0, 0]]).square().sum() or ids[0, 0] < 0
    assert torch.isfinite(mixed).sum() == (ids >= 0).sum()
    assert jit.numba_obstacle() is None


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e30])
def test_rows_of_extreme_length_keep_finite_cosines(tmp_path, scale):
    x, asked, ids = make(64)
    rows = UnitRows(file_rows(tmp_path / "x.npy", x * np.float32(scale)))
    got = list_scores(rows, rows, asked, ids)
    expected = plain((x * np.float32(scale)).astype(np.float64), asked, ids, unit=True)
    there = torch.from_numpy(ids >= 0)
    assert torch.allclose(got[there].double(), expected[there], atol=1e-6)


def test_nothing_to_score():
    rows = ArrayRows(np.eye(4, dtype=np.float32))
    assert list_scores(rows, rows, [], np.empty((0, 5), np.int64)).shape == (0, 5)
    assert list_scores(rows, rows, [1], np.empty((1, 0), np.int64)).shape == (1, 0)
    assert pair_scores(rows, rows, [], []).shape == (0,)


@pytest.mark.parametrize(("asked", "ids"), [([0], [4]), ([4], [0]), ([-1], [0]), ([0], [-2])])
def test_ids_that_are_out_of_range_are_refused(asked, ids):
    rows = ArrayRows(np.eye(4, dtype=np.float32))
    with pytest.raises(IndexError, match="ids must be between 0 and 3, or -1 for no candidate"):
        pair_scores(rows, rows, asked, ids)


@pytest.mark.parametrize("side", ["queries", "reference"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_file_that_was_cut_is_named(tmp_path, monkeypatch, side, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    x, _, _ = make(32)
    whole, cut = ArrayRows(x), file_rows(tmp_path / "x.npy", x)
    os.truncate(tmp_path / "x.npy", 128 + 20 * 128 + 17)
    sides = (cut, whole) if side == "queries" else (whole, cut)
    assert torch.isfinite(pair_scores(*sides, [2, 3], [19, 0])).all()
    with pytest.raises(ValueError, match=r"x\.npy ends before row 20: it was truncated while it was read"):
        pair_scores(*sides, [20, 3], [20, 0])


def test_threads_share_a_file(tmp_path):
    """Each thread reads rows of its own places: they have no position in common."""
    x, _, _ = make(32)
    x.tofile(tmp_path / "x.bin")
    rows, wrong = FileRows(tmp_path / "x.bin", x.shape, np.float32), []

    def read(seed):
        ids = np.random.default_rng(seed).integers(0, N, (200, 5))
        wrong.extend(row for row in ids if not np.array_equal(rows.read(row).numpy(), x[row]))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
