"""Negatives of embeddings, from arrays and files: against full comparison."""

import json

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from lookalike import Filters
from lookalike.data.synthetic import clustered_embeddings
from lookalike.mining import embeddings, mine_embeddings, pipeline, rescoring, run
from lookalike.utils.lists import make_lists

EVERYTHING = 1000


@pytest.fixture(scope="module")
def data():
    x, labels = clustered_embeddings(600, dim=48, offset=1.0, seed=0)
    return x.numpy() * np.linspace(0.5, 2, 600, dtype=np.float32)[:, None], labels.numpy()  # not normalised


@pytest.fixture
def _several_parts(monkeypatch):
    monkeypatch.setattr(pipeline, "SCORES_IN_MEMORY", 60_000)
    monkeypatch.setattr(rescoring, "PAIRS", 1000)
    monkeypatch.setattr(rescoring, "TASK", 64)
    monkeypatch.setattr(embeddings, "ROWS", 100)


def mine(*arrays, **options):
    return mine_embeddings(*arrays, oversampling=EVERYTHING, verbose=False, **options)


def expected(x, y, excluded, k, ceiling=None):
    similarity = normalize(torch.from_numpy(x), dim=1) @ normalize(torch.from_numpy(y), dim=1).T
    similarity[torch.from_numpy(excluded)] = -torch.inf
    if ceiling is not None:
        similarity[similarity > ceiling[:, None]] = -torch.inf
    return similarity.topk(k, dim=1)


@pytest.mark.usefixtures("_several_parts")
def test_labels_are_left_out_and_scores_are_cosines(data):
    x, labels = data
    mined = mine(x, labels=labels, num_negatives=5)
    true = expected(x, x, labels[:, None] == labels, 5)
    assert torch.equal(mined.indices, true.indices)
    torch.testing.assert_close(mined.scores, true.values)
    assert mined.summary.queries == mined.summary.references == mined.summary.queries_complete == 600


def test_one_query_is_enough_where_a_reference_is_searched(data):
    x, _ = data
    assert torch.equal(
        mine(x[:1], x[1:], num_negatives=2).indices, expected(x[:1], x[1:], np.zeros((1, 599), bool), 2)[1]
    )


def test_without_labels_a_row_finds_all_but_itself(data):
    x, _ = data
    for given in (x, torch.from_numpy(x), np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
        mined = mine(given, num_negatives=4)
        assert torch.equal(mined.indices, expected(x, x, np.eye(600, dtype=bool), 4).indices)


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
    there = true.values != -torch.inf
    for given in (positives, make_lists([row[row >= 0].tolist() for row in positives])):
        mined = mine(queries, corpus, positives=given, filters=Filters(absolute_margin=0.1, range_max=500))
        assert torch.equal(mined.indices, true.indices.masked_fill(~there, -1))
        torch.testing.assert_close(mined.scores, true.values)
        assert mined.summary.dropped["absolute_margin"] > 0


def test_margins_of_labels_are_measured_from_a_positive_of_the_label(data):
    x, labels = data
    summary = mine(x, labels=labels, filters=Filters(relative_margin=0.0)).summary
    assert summary.scores["difference"]["min"] >= 0
    assert summary.dropped["relative_margin"] > 0
    unique, counts = np.unique(labels, return_counts=True)
    alone = np.isin(labels, unique[counts == 1]).sum()
    assert summary.scores["positives"]["count"] == 600 - alone


@pytest.mark.usefixtures("_several_parts")
def test_each_row_looks_for_its_positive_once_however_many_blocks_share_its_label(data, monkeypatch):
    x, labels = data
    search, asked = run.least_similar_positives, []
    monkeypatch.setattr(run, "least_similar_positives", lambda *given: (asked.append(len(given[1])), search(*given))[1])
    blocks = mine(x, labels=labels % 3, filters=Filters(relative_margin=0.1), block=100)
    assert asked == [100] * 6
    whole = mine(x, labels=labels % 3, filters=Filters(relative_margin=0.1))
    assert torch.equal(blocks.indices, whole.indices)


def test_excluded_rows_are_no_negatives(data):
    x, labels = data
    first = mine(x, labels=labels, num_negatives=2).indices
    lists = make_lists([row.tolist() if i % 3 else [] for i, row in enumerate(first)])
    excluded = labels[:, None] == labels
    for i, row in enumerate(first.tolist()):
        excluded[i, row if i % 3 else []] = True
    mined = mine(x, labels=labels, filters=Filters(exclude=lists))
    assert torch.equal(mined.indices, expected(x, x, excluded, 3).indices)
    with pytest.raises(ValueError, match="exclude offsets must have length 601"):
        mine(x, filters=Filters(exclude=make_lists([[1]])))


def test_codes_alone_and_half_precision_find_most(data):
    x, labels = data
    true = expected(x, x, labels[:, None] == labels, 10).indices
    for values, least, options in (
        (x, 0.7, {"bits": 2048, "rescore": "codes", "code": "signs"}),
        (x, 0.97, {"rescore": "codes"}),
        (x, 0.97, {"bits": 256, "code": "scalar"}),
        (x.astype(np.float16), 0.97, {}),
    ):
        found = mine_embeddings(values, labels=labels, num_negatives=10, verbose=False, **options).indices
        share = (found[:, :, None] == true[:, None]).any(2).float().mean()
        assert share > least, options


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"reference": np.ones((5, 7), np.float32)}, "reference must have the same dimension, got 48 and 7"),
        ({"labels": [0], "positives": [0]}, "give them or positives"),
        ({"labels": [0, 1]}, "labels must have one label per code, 600, got 2"),
        ({"positives": np.zeros(3, int)}, r"positives must be integers of the shape \[600\] or \[600, p\]"),
        ({"positives": np.full(600, 600)}, "positives must be between 0 and 599"),
        ({"positives": np.zeros(600)}, "positives must be integers"),
        ({"positives": make_lists([[1]])}, "positives offsets must have length 601"),
        ({"labels": np.arange(600)}, "all 600 labels are different"),
        ({"filters": Filters(range_max=2)}, "must leave room for num_negatives=3"),
        ({"output": "out.jsonl"}, "output must end in .npy or .parquet, got out.jsonl"),
        ({"device": "moon"}, "there is no device 'moon'"),
    ],
)
def test_mistakes_are_reported_before_anything_is_hashed(data, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        mine(data[0], **arguments)


@pytest.mark.parametrize("given", [np.arange(12).reshape(3, 4), np.ones(5), np.ones((1, 5))])
def test_what_are_no_embeddings_is_refused(given):
    with pytest.raises(TypeError, match=r"embeddings must be floats of the shape \[n, dim\], at least 2 of them, got"):
        mine(given)


def test_a_row_that_is_not_finite_is_named(data, tmp_path):
    x = data[0].copy()
    x[417, 5] = np.nan
    np.save(tmp_path / "X.npy", x)
    for given, name in ((x, "embeddings"), (tmp_path / "X.npy", r"X\.npy")):
        with pytest.raises(ValueError, match=f"{name} must hold finite embeddings, but row 417 has NaN or infinity"):
            mine(given)


def test_a_file_is_the_same_however_its_path_is_typed(data, tmp_path, monkeypatch):
    x, _ = data
    for name in ("x.npy", "y.npy"):
        np.save(tmp_path / name, x)
    monkeypatch.chdir(tmp_path)
    typed = ["x.npy", "./x.npy", tmp_path / "x.npy", tmp_path / ".." / tmp_path.name / "x.npy"]
    identities = [embeddings.NormalizedRows("embeddings", path, min_rows=2).identity for path in (*typed, "y.npy")]
    assert len(set(identities[:-1])) == 1
    assert identities[-1] != identities[0]


def test_files_give_what_arrays_give_and_outputs_hold_it(data, tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    x, labels = data
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "labels.txt").write_text("".join(f"class {label}\n" for label in labels))
    options = {"filters": Filters(max_score=0.4), "sampling_strategy": "random"}
    expected = mine(x, labels=labels, **options)
    assert (expected.indices < 0).any()
    files = {"labels": tmp_path / "labels.txt", **options}
    mined = mine(str(tmp_path / "x.npy"), output=tmp_path / "out.npy", **files)
    assert torch.equal(mined.indices, expected.indices)
    assert np.array_equal(np.load(tmp_path / "out.npy"), expected.indices.numpy())
    assert np.array_equal(np.load(tmp_path / "out.scores.npy"), expected.scores.numpy())
    summary = json.loads((tmp_path / "out.summary.json").read_text())
    assert summary["source"]["embeddings"] == str(tmp_path / "x.npy")
    assert summary["options"]["max_score"] == 0.4
    assert summary["scores"] == expected.summary.scores
    mine(tmp_path / "x.npy", output=tmp_path / "rows.parquet", **files)
    for i, row in enumerate(parquet.read_table(tmp_path / "rows.parquet").to_pylist()):
        there = expected.indices[i] >= 0
        assert row["query"] == i
        assert row["negatives"] == expected.indices[i][there].tolist()
        assert row["scores"] == expected.scores[i][there].tolist()
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match=r"out\.npy exists; force=True overwrites it"):
        mine(x, output=tmp_path / "out.npy")
