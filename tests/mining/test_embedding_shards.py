"""Shards of embeddings read like one array; Parquet is converted once, completely or not at all."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest

from lookalike.mining import embedding_shards, job
from lookalike.mining.embedding_shards import embeddings_identity, open_shards
from lookalike.utils.locks import FolderInUseError, locked
from tests.processes import PATIENCE

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
X = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32)
BOUNDS = (0, 20, 20, 21, 50)  # one shard without rows, and one with a single row


def write_parquet(path, x, *, fixed=True):
    kind = pa.list_(pa.from_numpy_dtype(x.dtype), x.shape[1] if fixed else -1)
    table = pa.table({"id": list(range(len(x))), "vector": pa.array(list(x), kind)})
    parquet.write_table(table, path, row_group_size=8)


def write_shards(folder, suffix, **options):
    for i, (first, last) in enumerate(pairwise(BOUNDS)):
        path = folder / f"x-{i + 8}{suffix}"
        write_parquet(path, X[first:last], **options) if suffix == ".parquet" else np.save(path, X[first:last])
    return folder


def check(rows, x=X):
    assert rows.shape == x.shape
    ids = np.array([49, 0, 20, 19, 21, 20])
    assert np.array_equal(rows.read(ids).numpy(), x[ids].astype(np.float32))
    for first, last in ((0, 50), (19, 22), (20, 20), (30, 31)):
        assert np.array_equal(rows.read_range(first, last).numpy(), x[first:last].astype(np.float32))
    assert rows.read(np.array([], np.int64)).shape == (0, 7)


@pytest.mark.parametrize(("suffix", "options"), [(".npy", {}), (".parquet", {}), (".parquet", {"fixed": False})])
def test_shards_read_like_one_array(tmp_path, monkeypatch, suffix, options):
    monkeypatch.setattr(embedding_shards, "ROWS", 5)
    folder = write_shards(tmp_path, suffix, **options)
    for source in (folder, str(folder / f"*{suffix}"), sorted(folder.glob("x-*"), key=lambda p: int(p.stem[2:]))):
        check(open_shards(source, cache=tmp_path / "cache", min_rows=50))
        assert embeddings_identity(source) == embeddings_identity(folder)
    with pytest.raises(ValueError, match="has 50 rows and at least 51 are needed"):
        open_shards(folder, cache=tmp_path / "cache", min_rows=51)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_file(tmp_path, dtype):
    x = X.astype(dtype)
    write_parquet(tmp_path / "x.parquet", x)
    np.save(tmp_path / "x.npy", x)
    check(open_shards(tmp_path / "x.npy"), x)
    check(open_shards(tmp_path / "x.parquet"), x)
    for name in ("x.parquet", "x.parquet:vector"):
        rows = open_shards(tmp_path / name, cache=tmp_path / "cache")
        assert rows.dtype == (np.float16 if dtype == np.float16 else np.float32)
        check(rows, x)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_conversion_is_used_again_until_the_file_changes(tmp_path, monkeypatch):
    write_parquet(tmp_path / "x.parquet", X)
    check(open_shards(tmp_path / "x.parquet", cache=tmp_path / "cache"))
    convert = embedding_shards._convert
    monkeypatch.setattr(embedding_shards, "_convert", None)
    check(open_shards(tmp_path / "x.parquet", cache=tmp_path / "cache"))
    monkeypatch.setattr(embedding_shards, "_convert", convert)
    write_parquet(tmp_path / "x.parquet", 2 * X)
    check(open_shards(tmp_path / "x.parquet", cache=tmp_path / "cache"), 2 * X)


def test_a_conversion_that_stopped_is_never_used(tmp_path, monkeypatch):
    write_parquet(tmp_path / "x.parquet", X)
    values, calls = embedding_shards._values, []

    def stopping(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return values(*arguments)

    monkeypatch.setattr(embedding_shards, "ROWS", 5)
    monkeypatch.setattr(embedding_shards, "_values", stopping)
    with pytest.raises(KeyboardInterrupt):
        open_shards(tmp_path / "x.parquet", cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    check(open_shards(tmp_path / "x.parquet", cache=tmp_path / "cache"))


def test_processes_that_start_together_convert_once(tmp_path, monkeypatch):
    write_parquet(tmp_path / "x.parquet", X)
    convert, converted, second_acted = embedding_shards._convert, [], threading.Event()

    def open_it():
        return open_shards(tmp_path / "x.parquet", cache=tmp_path / "cache")

    with ThreadPoolExecutor(1) as other, monkeypatch.context() as patched:

        def converting(*arguments):
            converted.append(arguments)
            if len(converted) == 1:  # the other one begins, and waits
                second.append(other.submit(open_it))
                assert second_acted.wait(PATIENCE)
            convert(*arguments)
            if len(converted) == 2:
                second_acted.set()

        def locking(*arguments, **options):
            try:
                with locked(*arguments, **options):
                    yield
            except FolderInUseError:
                second_acted.set()
                raise

        second = []
        patched.setattr(embedding_shards, "_convert", converting)
        patched.setattr(job, "locked", contextmanager(locking))
        check(open_it())
        check(second[0].result(PATIENCE))
    assert len(converted) == 1
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".npy"]


def test_a_conversion_that_was_cut_is_made_again(tmp_path):
    write_parquet(tmp_path / "x.parquet", X)
    check(open_shards(tmp_path / "x.parquet", cache=tmp_path / "cache"))
    (path,) = (tmp_path / "cache").iterdir()
    for size in (500, 0):
        os.truncate(path, size)
        check(open_shards(tmp_path / "x.parquet", cache=tmp_path / "cache"))


def column(*rows):
    return pa.table({"vector": pa.array(list(rows))})


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (column([1.0] * 3, [2.0] * 3), ValueError, "b.parquet has the dimension 3, but .*a.parquet has 7"),
        (column([1.0] * 7, None), ValueError, r"b.parquet must hold one embedding per row, but row 1 is missing"),
        (column([1.0] * 7, [None] * 7), ValueError, "b.parquet must hold finite embeddings"),
        (column([1.0] * 7, [1.0]), ValueError, "rows of a column of embeddings must have the same length"),
        (column([], []), ValueError, "rows of a column of embeddings must have the same length"),
        (column([1] * 7), TypeError, "b.parquet must hold floats, got int64"),
        (pa.table({"text": ["a"]}), ValueError, "b.parquet holds no two-dimensional array of floats"),
        (pa.table({"a": [[1.0]], "b": [[1.0]]}), ValueError, "b.parquet holds several arrays: say which"),
    ],
)
def test_shards_that_do_not_fit_are_named(tmp_path, table, error, message):
    write_parquet(tmp_path / "a.parquet", X)
    parquet.write_table(table, tmp_path / "b.parquet")
    with pytest.raises(error, match=message):
        open_shards(tmp_path, cache=tmp_path / "cache")


def test_files_that_are_no_shards_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file of embeddings"):
        open_shards(tmp_path / "x.npy")
    np.save(tmp_path / "1.npy", X[:0])
    with pytest.raises(ValueError, match=r"none of the files of embeddings has any rows; the first is .*1\.npy"):
        open_shards(tmp_path)
    np.save(tmp_path / "2.npy", np.array(["text"]))
    with pytest.raises(TypeError, match=r"2\.npy holds text, not embeddings"):
        open_shards(tmp_path)
    (tmp_path / "2.npy").write_bytes(b"junk")
    with pytest.raises(ValueError, match=r"2\.npy is damaged or of another kind"):
        open_shards(tmp_path)
    (tmp_path / "2.npy").unlink()
    write_parquet(tmp_path / "x.parquet", X)
    np.save(tmp_path / "3.npy", X)
    with pytest.raises(ValueError, match=r"x\.parquet: shards in Parquet are converted first, beside the output"):
        open_shards([tmp_path / "3.npy", tmp_path / "x.parquet"])
