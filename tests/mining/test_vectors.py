"""Negatives of embeddings that are there: against full comparison, and within bounded memory."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from lookalike.data.synthetic import clustered_embeddings
from lookalike.mining.options import Options
from lookalike.mining.rows import FileRows, rows_of
from lookalike.mining.vectors import Vectors

EVERYTHING = 1000


@pytest.fixture(scope="module")
def data():
    x, labels = clustered_embeddings(600, dim=48, offset=1.0, seed=0)
    return x.numpy() * np.linspace(0.5, 2, 600, dtype=np.float32)[:, None], labels.numpy()  # not normalised


def all_of(vectors, **options):
    parts = list(vectors.mined(Options(rescore=EVERYTHING, queries_at_a_time=100, **options)))
    return torch.cat([part.indices for part in parts]), torch.cat([part.scores for part in parts])


def expected(x, y, excluded, k, ceiling=None):
    similarity = normalize(torch.from_numpy(x), dim=1) @ normalize(torch.from_numpy(y), dim=1).T
    similarity[torch.from_numpy(excluded)] = -torch.inf
    if ceiling is not None:
        similarity[similarity > ceiling[:, None]] = -torch.inf
    return similarity.topk(k, dim=1)


def test_labels_are_left_out_and_scores_are_cosines(data):
    x, labels = data
    indices, scores = all_of(Vectors(x, labels=labels), num_negatives=5)
    true = expected(x, x, labels[:, None] == labels, 5)
    assert torch.equal(indices, true.indices)
    torch.testing.assert_close(scores, true.values)


def test_without_labels_a_row_finds_all_but_itself(data):
    x, _ = data
    indices, _ = all_of(Vectors(x), num_negatives=4)
    assert torch.equal(indices, expected(x, x, np.eye(600, dtype=bool), 4).indices)


def test_positives_in_another_table_set_the_margin(data):
    x, _ = data
    queries, corpus = x[:200], x[100:]
    positives = np.full((200, 2), -1)
    positives[:100, 0] = np.arange(100) + 7
    positives[:50, 1] = np.arange(50) + 300
    excluded = np.zeros((200, 500), bool)
    for column in range(2):
        given = positives[:, column] >= 0
        excluded[np.flatnonzero(given), positives[given, column]] = True
    similarity = normalize(torch.from_numpy(queries), dim=1) @ normalize(torch.from_numpy(corpus), dim=1).T
    lowest = torch.where(torch.from_numpy(excluded), similarity, torch.inf).amin(1)
    true = expected(queries, corpus, excluded, 3, lowest - 0.1)
    vectors = Vectors(queries, corpus, positives=positives)
    indices, scores = all_of(vectors, absolute_margin=0.1, range_max=500)
    there = true.values != -torch.inf
    assert torch.equal(indices, true.indices.masked_fill(~there, -1))
    torch.testing.assert_close(scores, true.values)
    assert vectors.tally.dropped["absolute_margin"] > 0


def test_margins_of_labels_are_measured_from_a_positive_of_the_label(data):
    x, labels = data
    vectors = Vectors(x, labels=labels)
    parts = list(vectors.mined(Options(rescore=EVERYTHING, relative_margin=0.0)))
    for part in parts:
        worst = torch.full((len(part.scores),), torch.inf).scatter_reduce(0, part.owners, part.positive_scores, "amin")
        assert bool((part.scores <= worst[:, None]).all())
    unique, counts = np.unique(labels, return_counts=True)
    alone = np.isin(labels, unique[counts == 1]).sum()
    assert sum(len(part.positive_scores) for part in parts) == 600 - alone


def test_bits_alone_and_half_precision_find_most(data):
    x, labels = data
    true = expected(x, x, labels[:, None] == labels, 10).indices
    for values, options in ((x, {"bits": 2048, "rescore": False}), (x.astype(np.float16), {"bits": 512})):
        parts = list(Vectors(values, labels=labels).mined(Options(num_negatives=10, **options)))
        found = torch.cat([part.indices for part in parts])
        share = (found[:, :, None] == true[:, None]).any(2).float().mean()
        assert share > (0.7 if "rescore" in options else 0.97), options


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"corpus": np.ones((5, 7), np.float32)}, "must have one dimension, got 48 and 7"),
        ({"labels": [0], "positives": [0]}, "give them or positives"),
        ({"labels": [0, 1]}, "labels must have one label per code, 600, got 2"),
        ({"positives": np.zeros(3, int)}, r"positives must be integers of the shape \[600\] or \[600, m\]"),
        ({"positives": np.full(600, 600)}, "positives must be between 0 and 599"),
        ({"positives": np.zeros(600)}, "positives must be integers"),
    ],
)
def test_what_does_not_fit_is_refused(data, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Vectors(data[0], **arguments)


def test_a_row_that_is_not_finite_is_named(data):
    x = data[0].copy()
    x[417, 5] = np.nan
    with pytest.raises(ValueError, match=r"X\.npy must hold finite embeddings, but row 417 has NaN or infinity"):
        list(Vectors(x, names=("X.npy", "")).mined(Options()))


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


def test_a_file_that_was_cut_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((50, 7), np.float32))
    read = rows_of(np.load(tmp_path / "x.npy", mmap_mode="r"))
    os.truncate(tmp_path / "x.npy", 500)
    with pytest.raises(ValueError, match=r"x\.npy ends before row 49"):
        read.read(np.array([2, 49]))
