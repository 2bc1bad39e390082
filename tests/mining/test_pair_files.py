"""Pairs in files are those of `make_pairs`, in its order, written in bounded memory and completely or not at all."""

import itertools
import multiprocessing
import os
import random

import pytest
import torch

from lookalike.mining import list_files
from lookalike.mining.encoding import checksum
from lookalike.mining.pair_files import open_pair_files, write_pairs
from tests.mining.words import make_pairs
from tests.processes import Child, wait_until


def batches(size, *columns):
    for first in range(0, len(columns[0]), size):
        parts = [column[first : first + size] for column in columns]
        yield parts[0] if len(parts) == 1 else tuple(parts)


def check(found, expected):
    assert list(found.queries) == expected.queries
    assert list(found.corpus) == expected.corpus
    assert found.corpus.checksum == checksum(expected.corpus)
    n = len(expected.queries)
    offsets, ids = expected.positives
    assert all(torch.equal(*each) for each in zip(found.positives.read(0, n), expected.positives, strict=True))
    for first, last in ((n // 3, n // 2 + 1), (n - 1, n), (0, 0)):
        part = found.positives.read(first, last)
        assert part[0].tolist() == (offsets[first : last + 1] - offsets[first]).tolist()
        assert part[1].tolist() == ids[offsets[first] : offsets[last]].tolist()
    assert (found.num_rows, found.most_rows) == (expected.num_rows, expected.most_rows)
    assert found.most_positives == int(offsets.diff().max())
    assert (len(found.positives), found.positives.num_ids) == (n, len(ids))


@pytest.mark.parametrize("seed", range(40))
def test_pairs_are_those_in_memory(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    monkeypatch.setattr(list_files, "ROWS", rng.choice([1, 2, 7, 50, 1 << 20]))
    n, kinds, size = rng.choice([1, 2, 5, 100, 400]), rng.choice([1, 3, 20, 300]), rng.choice([1, 3, 64])
    queries, positives = ([f"{rng.choice('ab')}{rng.randrange(kinds)}" for _ in range(n)] for _ in range(2))
    corpus = [f"{rng.choice('bc')}{rng.randrange(kinds)}" for _ in range(rng.choice([0, 1, 50]))]
    found = write_pairs(tmp_path / "pairs", batches(size, queries, positives), batches(size, corpus) if corpus else ())
    check(found, make_pairs(queries, positives, corpus))
    check(open_pair_files(tmp_path / "pairs"), make_pairs(queries, positives, corpus))
    assert {path.name for path in tmp_path.rglob("*") if path.suffix in (".tmp", ".part")} == set()


def test_empty_and_huge_texts_are_texts_like_others(tmp_path):
    queries, positives = ["", "x" * 5_000_000, ""], ["\0", "", "\ud800"]
    check(write_pairs(tmp_path / "pairs", batches(2, queries, positives)), make_pairs(queries, positives))


def test_an_empty_source_is_refused(tmp_path):
    for empty in ([], [([], [])]):
        with pytest.raises(ValueError, match="there are no pairs"):
            write_pairs(tmp_path / "pairs", empty, [["text"]])
    with pytest.raises(ValueError, match="2 queries and 1 positives"):
        write_pairs(tmp_path / "pairs", [(["a", "b"], ["c"])])
    assert list(tmp_path.iterdir()) == []


def write_forever(folder):
    for i in itertools.count():
        if i == 100:
            folder.with_name("waiting").touch()
            multiprocessing.parent_process().join()
        yield [f"query {i}"] * 1000, [f"positive {j}" for j in range(1000)]


def kill_here(folder):
    write_pairs(folder, write_forever(folder))


def test_killed_while_writing_nothing_is_taken_for_complete(tmp_path):
    folder = tmp_path / "pairs"
    with Child(kill_here, folder) as process:
        wait_until(folder.with_name("waiting").exists, process)
    with pytest.raises(FileNotFoundError, match="holds no complete pairs"):
        open_pair_files(folder)
    check(write_pairs(folder, [(["q"], ["p"])], source={"rows": 1}), make_pairs(["q"], ["p"]))
    assert open_pair_files(folder).source == {"rows": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs", "waiting"]


@pytest.mark.parametrize("name", ["pairs.json", "positives/ids.npy", "positives/offsets.npy", "queries/texts.bin"])
def test_files_that_were_cut_are_refused(tmp_path, name):
    found = write_pairs(tmp_path / "pairs", [(["query", "r"], ["p", "s"])])
    path = tmp_path / "pairs" / name
    os.truncate(path, path.stat().st_size - 5)
    with pytest.raises(ValueError, match="is damaged"):
        open_pair_files(tmp_path / "pairs")
    if name == "positives/ids.npy":
        with pytest.raises(ValueError, match=r"ids\.npy ends before number 1"):
            found.positives.read(0, 2)
