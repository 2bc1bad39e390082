"""Texts on disk: read back as they were written, by number, and never taken for complete when they are not."""

import multiprocessing
import pickle

import numpy as np
import pytest

from lookalike.mining.encoding import checksum
from lookalike.mining.text_files import TextFile, TextWriter
from tests.processes import Child, wait_until

TEXTS = ["one", "", "zw\u00f6lf", "\ud800 alone", "\x00\n\r\t", "x" * 3_000_000, "\U0001f600" * 5, "", "last"]


def write(folder, texts):
    with TextWriter(folder) as writer:
        writer.extend(texts)
    return TextFile(folder)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write(tmp_path_factory.mktemp("texts") / "texts", TEXTS)


def test_texts_are_those_that_were_written(written):
    assert len(written) == len(TEXTS)
    assert list(written) == written[:] == TEXTS
    assert [written[i] for i in range(-9, 9)] == TEXTS * 2
    for part in (slice(2, 5), slice(5, 2), slice(None, None, -2), slice(-3, None), slice(9, 20)):
        assert written[part] == TEXTS[part]
    ids = [8, 0, 8, 3, 4, 5, 2]
    assert written.take(np.array(ids)) == [TEXTS[i] for i in ids]
    assert written.take([]) == []
    assert written.sizes().tolist() == [len(text.encode("utf-8", "surrogatepass")) for text in TEXTS]
    assert [len(part) for part in written.parts(2)] == [2, 2, 1, 1, 2, 1]
    assert pickle.loads(pickle.dumps(written))[2] == "zw\u00f6lf"
    for wrong in (9, -10):
        with pytest.raises(IndexError):
            written[wrong]
        with pytest.raises(IndexError, match="holds the texts 0 to 8"):
            written.take([wrong])


def test_the_checksum_is_that_of_the_texts(written, tmp_path):
    assert written.checksum == checksum(TEXTS)
    assert write(tmp_path / "a", ["ab", "c"]).checksum != write(tmp_path / "b", ["a", "bc"]).checksum


@pytest.mark.parametrize("texts", [[], [""], ["one"]])
def test_few_texts(tmp_path, texts):
    assert list(write(tmp_path / "texts", texts)) == write(tmp_path / "texts", texts)[:] == texts


def test_an_error_leaves_what_was_there(tmp_path):
    write(tmp_path / "texts", ["old"])
    with pytest.raises(RuntimeError), TextWriter(tmp_path / "texts") as writer:  # noqa: PT012 - the context is tested
        writer.append("new")
        raise RuntimeError
    assert list(TextFile(tmp_path / "texts")) == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


def write_and_wait(folder):
    with TextWriter(folder) as writer:
        writer.extend(["half"] * 1_000_000)
        folder.with_name("waiting").touch()
        multiprocessing.parent_process().join()


def test_killed_while_writing_nothing_is_taken_for_complete(tmp_path):
    folder = tmp_path / "texts"
    with Child(write_and_wait, folder) as process:
        wait_until(folder.with_name("waiting").exists, process)
    with pytest.raises(FileNotFoundError, match="holds no complete texts"):
        TextFile(folder)
    assert len(list(tmp_path.iterdir())) == 2  # what it had written aside
    assert list(write(folder, ["whole"])) == ["whole"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts", "waiting"]


@pytest.mark.parametrize("name", ["texts.bin", "offsets.bin", "texts.json"])
def test_files_that_were_cut_are_refused(tmp_path, name):
    write(tmp_path / "texts", ["one", "two"])
    path = tmp_path / "texts" / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match="is damaged, or was written by another version"):
        TextFile(tmp_path / "texts")


def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path):
    texts = write(tmp_path / "texts", ["one", "two"])
    (tmp_path / "texts" / "texts.bin").write_bytes(b"one")
    with pytest.raises(ValueError, match="truncated while it was read"):
        texts[1]
