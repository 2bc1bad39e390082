"""Rows in the formats of sentence-transformers, FlagEmbedding and Tevatron, as data sets and in files."""

import pytest

from lookalike import mine_hard_negatives
from lookalike.mining import formats
from lookalike.mining.formats import Layout
from tests.mining.words import read_jsonl

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.mark.parametrize("output_format", ["triplet", "n-tuple", "labeled-pair", "labeled-list"])
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_formats_of_sentence_transformers(dataset, model, tmp_path, output_format, suffix, monkeypatch):
    options = {"output_format": output_format, "output_scores": True, "relative_margin": 0.05, "num_negatives": 2}
    expected = mine_hard_negatives(dataset, model, verbose=False, **options)
    monkeypatch.setattr(formats, "ROWS_AT_A_TIME", 50)  # several batches, and row groups
    assert mine_hard_negatives(dataset, model, verbose=False, **options).to_list() == expected.to_list()
    output = tmp_path / f"out{suffix}"
    mine_hard_negatives(dataset, model, verbose=False, output=output, **options)
    got = read_jsonl(output) if suffix == ".jsonl" else parquet.read_table(output).to_pylist()
    assert got == expected.to_list()


@pytest.fixture(scope="module")
def triplets(model, pairs):
    """The texts of each query: answers, and negatives in their order."""
    dataset = pytest.importorskip("datasets").Dataset.from_dict(pairs)
    answers, negatives = {}, {}
    for row in mine_hard_negatives(dataset, model, verbose=False):
        answers.setdefault(row["query"], {})[row["answer"]] = None
        negatives.setdefault(row["query"], {})[row["negative"]] = None
    return tuple({query: list(texts) for query, texts in found.items()} for found in (answers, negatives))


@pytest.mark.parametrize("scores", [False, True])
def test_flagembedding(dataset, model, triplets, tmp_path, scores):
    options = {"output_format": "flagembedding", "output_scores": scores, "verbose": False}
    rows = mine_hard_negatives(dataset, model, **options).to_list()
    assert [row["query"] for row in rows] == list(triplets[0])
    assert {row["query"]: row["pos"] for row in rows} == triplets[0]
    assert {row["query"]: row["neg"] for row in rows} == triplets[1]
    assert list(rows[0]) == Layout("flagembedding", 3, scores=scores).columns
    for row in rows:
        assert [len(row[f"{name}_scores"]) for name in ("pos", "neg") if scores] == [
            len(row[name]) for name in ("pos", "neg") if scores
        ]
    mine_hard_negatives(dataset, model, output=tmp_path / "out.jsonl", **options)
    assert read_jsonl(tmp_path / "out.jsonl") == rows


@pytest.mark.parametrize("scores", [False, True])
def test_tevatron(dataset, model, pairs, triplets, tmp_path, scores):
    options = {"output_format": "tevatron", "output_scores": scores, "verbose": False}
    rows = mine_hard_negatives(dataset, model, **options).to_list()
    assert list(rows[0]) == Layout("tevatron", 3).columns
    assert [row["query_id"] for row in rows] == [str(i) for i in range(len(rows))]
    corpus = list(dict.fromkeys(pairs["answer"]))
    keys = {"docid", "title", "text", *(["score"] if scores else [])}
    for row in rows:
        for name, texts in zip(("positive_passages", "negative_passages"), triplets, strict=True):
            assert [passage["text"] for passage in row[name]] == texts[row["query"]]
            assert all(set(p) == keys and corpus[int(p["docid"])] == p["text"] for p in row[name])
    mine_hard_negatives(dataset, model, output=tmp_path / "out.jsonl", **options)
    assert read_jsonl(tmp_path / "out.jsonl") == rows


@pytest.mark.parametrize("output_format", ["triplet", "flagembedding", "tevatron"])
def test_without_rows_a_data_set_has_its_columns(dataset, model, output_format):
    got = mine_hard_negatives(dataset, model, min_score=0.9999, output_format=output_format, verbose=False)
    assert len(got) == 0
    assert got.column_names == Layout(output_format, 3, anchor="query", positive="answer").columns
