"""Rows of files larger than memory, and chunks of a cache: what is read back is what was written."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from lookalike.mining.rows import FileRows, rows_of
from lookalike.mining.store import Store


def resident_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc, which Linux has")
def test_a_mapped_file_never_comes_into_memory(tmp_path):
    """Pages of a mapped file count as memory of the process; rows that are read do not."""
    path = tmp_path / "x.npy"
    np.save(path, np.ones((160_000, 256), np.float32))  # 164 MB
    array = np.load(path, mmap_mode="r")
    mapped = rows_of(array)
    assert isinstance(mapped, FileRows)
    before = resident_bytes()
    worst = 0
    for start in range(0, 160_000, 4000):
        mapped.read(np.arange(start, start + 4000, 7)[::-1])
        mapped.read_range(start, start + 4000)
        worst = max(worst, resident_bytes() - before)
    assert worst < 40 << 20
    assert float(np.asarray(array).sum()) == 160_000 * 256
    assert resident_bytes() - before > 140 << 20  # it would have been seen


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_of_any_file_are_those_of_the_array(tmp_path, dtype, order):
    x = np.random.default_rng(0).standard_normal((50, 7)).astype(dtype, order=order)
    np.save(tmp_path / "x.npy", x)
    read = rows_of(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert isinstance(read, FileRows) == (order == "C")
    for ids in ([3, 4, 5, 3, 49, 0], [], list(range(50))):
        got = read.read(np.array(ids, np.int64))
        assert got.dtype == torch.float32
        assert np.array_equal(got.numpy(), x[np.array(ids, np.int64)].astype(np.float32))
    assert np.array_equal(read.read_range(10, 30).numpy(), x[10:30].astype(np.float32))


@pytest.mark.parametrize("part", [slice(0, 50), slice(7, 30), slice(49, 50), slice(3, 40, 2)])
def test_a_part_of_a_mapped_file_is_that_part(tmp_path, part):
    x = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    raw = np.memmap(tmp_path / "x.bin", np.float32, "w+", offset=4 << 16, shape=x.shape)
    raw[:] = x
    for mapped in (np.load(tmp_path / "x.npy", mmap_mode="r"), raw):
        read = rows_of(mapped[part])
        assert isinstance(read, FileRows) == (part.step is None)
        assert np.array_equal(read.read_range(0, len(x[part])).numpy(), x[part])
        assert np.array_equal(read.read(np.array([len(x[part]) - 1, 0])).numpy(), x[part][[-1, 0]])


def test_changes_that_are_not_in_the_file_are_seen(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")
    mapped[1] = 5
    assert rows_of(mapped).read_range(1, 2).tolist() == [[5, 5]]


def test_a_file_that_was_cut_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((50, 7), np.float32))
    read = rows_of(np.load(tmp_path / "x.npy", mmap_mode="r"))
    os.truncate(tmp_path / "x.npy", 500)
    with pytest.raises(ValueError, match=r"x\.npy ends before row 49"):
        read.read(np.array([2, 49]))


@pytest.mark.parametrize("n", [1, 15, 16, 17, 31, 33, 100])
def test_rows_are_found_by_the_number_of_their_text(tmp_path, monkeypatch, n):
    monkeypatch.setattr(Store, "CHUNK", 16)
    values = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
    with Store(tmp_path / "store", n, np.float32) as kept:
        kept.claim()
        for j in reversed(range(kept.num_chunks)):
            assert len(kept.chunk(j)) <= 16
            kept.write(j, values[list(kept.chunk(j))])
        ids = np.random.default_rng(0).integers(0, n, 50)
        assert np.array_equal(kept.rows().read(ids).numpy(), values[ids])
    reopened = Store(tmp_path / "store", n, np.float32)
    assert (reopened.kept, reopened.width) == (n, 3)
    for j in range(kept.num_chunks):
        assert np.array_equal(reopened.read(j), values[list(reopened.chunk(j))])


def test_no_byte_of_the_note_can_spoil_what_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "CHUNK", 16)
    values = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    with Store(tmp_path / "store", 50, np.float32) as kept:
        kept.claim()
        for j in range(kept.num_chunks):
            kept.write(j, values[list(kept.chunk(j))])
    note = tmp_path / "store" / "done.json"
    whole = note.read_bytes()
    damaged = 0
    for place in range(len(whole)):
        note.write_bytes(bytes([*whole[:place], whole[place] ^ 0x10, *whole[place + 1 :]]))
        reopened = Store(tmp_path / "store", 50, np.float32)
        for j in range(kept.num_chunks):
            rows = reopened.read(j)
            damaged += rows is None
            assert rows is None or np.array_equal(rows, values[list(kept.chunk(j))]), place
    assert damaged > len(whole) / 2
