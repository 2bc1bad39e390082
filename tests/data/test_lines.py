import logging
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lookalike.data import indexed_lines as module
from lookalike.data.lines import Lines

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_every_line_is_found(tmp_path, monkeypatch, chunk, end):
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    texts = ["", "one", "zwei \u00fc\u00e4", "tab\tin it", "x" * 100, "\u4e2d\u6587", "last"]
    path = tmp_path / "texts.tsv"
    newline = "\r\n" if end == "\r\n" else "\n"
    path.write_bytes((newline.join(f"{i}\t{text}" for i, text in enumerate(texts)) + end).encode())
    lines = Lines(path)
    assert len(lines) == 7
    assert lines.ids is None
    assert lines.read(np.arange(7)) == texts
    assert lines.read(np.array([6, 0, 2, 2])) == ["last", "", texts[2], texts[2]]
    assert lines.positions([5, 1]).tolist() == [5, 1]
    assert pickle.loads(pickle.dumps(lines)).read(np.array([1])) == ["one"]


def test_ids_in_any_order(tmp_path):
    path = tmp_path / "queries.tsv"
    path.write_text("1000000\ta\n3\tb\n123456789012345678\tc\n")
    lines = Lines(path)
    assert lines.positions([123456789012345678, 3, 1000000]).tolist() == [2, 1, 0]
    for wrong in (4, -1, 10**18):
        with pytest.raises(ValueError, match=f"queries.tsv has no line with the id {wrong}, which another file names"):
            lines.positions([3, wrong])


def test_the_index_is_built_once_for_each_state_of_the_file(tmp_path, monkeypatch, cache, caplog):
    path = tmp_path / "texts.tsv"
    path.write_text("0\ta\n1\tb\n")
    built = []
    build = Lines._build_index
    monkeypatch.setattr(Lines, "_build_index", lambda *a, **k: built.append(1) or build(*a, **k))
    assert Lines(path).read(np.array([1])) == Lines(path).read(np.array([1])) == ["b"]
    assert len(built) == 1
    path.write_text("0\ta\n1\tbcd\n2\te\n")
    assert Lines(path).read(np.array([1, 2])) == ["bcd", "e"]
    assert len(built) == 2
    (index,) = cache.iterdir()
    index.write_bytes(index.read_bytes()[:90])
    with caplog.at_level(logging.WARNING, "lookalike"):
        assert len(Lines(path)) == 3
    assert "is damaged; building it again" in caplog.text


def test_without_a_cache_it_works_too(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOOKALIKE_CACHE", str(tmp_path / "file" / "below"))
    path = tmp_path / "texts.tsv"
    path.write_text("5\ta\n")
    assert Lines(path).read(np.array([0])) == ["a"]
    assert "cannot cache the index" in caplog.text


@pytest.mark.parametrize("without_pread", [False, True])
def test_threads_do_not_disturb_each_other(tmp_path, monkeypatch, without_pread):
    if without_pread:
        monkeypatch.delattr(os, "pread", raising=False)
    path = tmp_path / "texts.tsv"
    path.write_text("".join(f"{i}\t{'y' * i}\n" for i in range(300)))
    lines = Lines(path)
    with ThreadPoolExecutor(4) as pool:
        for i, texts in enumerate(pool.map(lambda i: lines.read(np.array([i])), range(300))):
            assert texts == ["y" * i]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "texts.tsv is empty"),
        ("0\ta\n\n2\tb\n", "line 2: expected a number, a tab and a text, got ''"),
        ("0\ta\nid7\tb\n", "line 2: expected a number, a tab and a text, got 'id7"),
        ("0 a\n", "line 1: expected a number, a tab and a text, got '0 a'"),
        ("1234567890123456789\ta\n", "line 1: expected a number"),
    ],
)
def test_mistakes(tmp_path, text, sentence):
    path = tmp_path / "texts.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=sentence):
        Lines(path)
