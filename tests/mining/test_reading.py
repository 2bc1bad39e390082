"""Pairs are read once: a job that is resumed with the same files does not read them again, and notices others."""

import os

import pytest

from lookalike.mining import reading
from lookalike.mining.engines import InProcess
from lookalike.mining.job import Job
from lookalike.mining.pair_files import open_pair_files
from lookalike.mining.reading import about, read_once
from lookalike.mining.text_sources import open_corpus, open_pairs
from tests.mining.words import make_columns, write_jsonl


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "pairs.jsonl", make_columns())


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path / "job", None, InProcess(), force=False)


def test_files_are_read_once(source, job, monkeypatch):
    first = read_once(job, open_pairs(source), (), {})
    assert (first.num_rows, len(first.queries), len(first.corpus)) == (67, 62, 64)
    with monkeypatch.context() as patched:
        patched.setattr(reading, "write_pairs", None)
        again = read_once(job, open_pairs(source), (), {})
    assert about(again, None) == about(first, None)


@pytest.mark.parametrize("change", ["longer", "touched"])
def test_files_that_may_have_changed_are_read_again(source, job, change):
    first = about(read_once(job, open_pairs(source), (), {}), None)
    if change == "longer":
        with source.open("a") as file:
            file.write('{"query": "new", "answer": "text"}\n')
    else:
        os.utime(source, ns=(0, 0))
    second = about(read_once(job, open_pairs(source), (), {}), None)
    assert (first == second) == (change == "touched")


def test_a_corpus_without_an_identity_is_read_at_every_start(source, job):
    texts = iter([["one"], ["two"]])
    first = read_once(job, open_pairs(source), [next(texts)], None)
    second = read_once(job, open_pairs(source), [next(texts)], None)
    assert (first.corpus[0], second.corpus[0]) == ("one", "two")


def test_other_columns_of_the_same_files_are_read(tmp_path, source, job):
    table = write_jsonl(tmp_path / "corpus.jsonl", {"query": ["a", "b"], "answer": ["c", "d"]})
    firsts = []
    for columns, column in (("query,answer", "query"), ("answer,query", "query"), ("answer,query", "answer")):
        corpus = open_corpus(table, column)
        pairs = read_once(job, open_pairs(source, columns), corpus, corpus.identity)
        firsts.append((pairs.queries[0], pairs.corpus[0]))
    assert [text for _, text in firsts] == ["a", "a", "c"]
    assert firsts[0][0] != firsts[1][0]


def test_data_sets_are_read_once_and_streams_at_every_start(source, job, monkeypatch):
    data = pytest.importorskip("datasets").Dataset.from_dict(make_columns())
    first = about(read_once(job, open_pairs(data), (), {}), None)
    with monkeypatch.context() as patched:
        patched.setattr(reading, "write_pairs", None)
        assert about(read_once(job, open_pairs(data), (), {}), None) == first
    for text in ("one", "two"):
        corpus = open_corpus(data.from_dict({"text": [text]}).to_iterable_dataset())
        assert read_once(job, open_pairs(source), corpus, corpus.identity).corpus[0] == text


def test_damaged_pairs_are_read_again(source, job):
    pairs = read_once(job, open_pairs(source), (), {})
    (pairs.folder / "queries" / "texts.bin").write_bytes(b"")
    assert len(read_once(job, open_pairs(source), (), {}).queries) == 62


@pytest.mark.parametrize("corpus", [(), (["z"], ["y"])])
def test_reading_something_else_leaves_alone_what_a_shard_works_on(tmp_path, source, job, corpus):
    first = read_once(job, open_pairs(source), iter(corpus), None if corpus else {})
    kept = first.positives.read(0, 62)[1].tolist()
    columns = make_columns()
    columns["answer"] = columns["answer"][1:] + columns["answer"][:1]
    other = read_once(job, open_pairs(write_jsonl(tmp_path / "other.jsonl", columns)), (), {})
    assert other.positives.read(0, 62)[1].tolist() != kept
    assert first.positives.read(0, 62)[1].tolist() == kept
    assert about(open_pair_files(first.folder), None) == about(first, None)


def test_a_stream_that_is_read_again_leaves_the_files_that_are_there(job):
    data = pytest.importorskip("datasets").Dataset.from_dict(make_columns()).to_iterable_dataset()
    first = read_once(job, open_pairs(data), (), {})
    inode = (first.folder / "pairs.json").stat().st_ino
    second = read_once(job, open_pairs(data), (), {})
    assert (second.folder, (second.folder / "pairs.json").stat().st_ino) == (first.folder, inode)
    assert [path.name for path in job.folder.iterdir()] == [first.folder.name]


def test_which_text_answers_which_is_told_apart(tmp_path, job):
    columns = make_columns()
    first = about(read_once(job, open_pairs(write_jsonl(tmp_path / "a.jsonl", columns)), (), {}), None)
    answers = columns["answer"]
    answers[0], answers[1] = answers[1], answers[0]
    columns["answer"] = answers
    second = about(read_once(job, open_pairs(write_jsonl(tmp_path / "b.jsonl", columns)), (), {}), None)
    assert first["queries"] == second["queries"]
    assert first != second
