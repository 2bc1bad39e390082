"""`mine_hard_negatives`: wrong arguments are refused before anything is encoded; rows go to a data set or a file."""

import json
import logging

import pytest
import torch

from lookalike import mine_hard_negatives
from lookalike.mining import Summary
from lookalike.mining.sources import FROM_TEXTS
from lookalike.utils.imports import optional_import
from tests.mining.words import read_jsonl

pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")
parquet = pytest.importorskip("pyarrow.parquet")


class Untouched:
    """A model that must not be used."""

    prompts = {"ask": "?"}  # noqa: RUF012 - nobody changes it

    def encode_query(self, *_, **__):
        raise AssertionError("encoded")

    encode_document = encode_query


@pytest.mark.parametrize(
    ("columns", "options", "error", "sentence"),
    [
        (
            {},
            {"anchor_column_name": "x"},
            ValueError,
            "anchor_column_name is 'x', but the data set has the columns a, b",
        ),
        ({}, {"positive_column_name": "x"}, ValueError, "positive_column_name is 'x', but"),
        ({"a": ["q"]}, {}, ValueError, "must have two columns, queries and positives, got a"),
        ({"a": [], "b": []}, {}, ValueError, "the data set has no rows"),
        ({"a": ["q", ""], "b": ["r", "s"]}, {}, ValueError, "column 'a' must not hold empty texts, but row 1 is empty"),
        ({"a": ["q"], "b": [" \n"]}, {}, ValueError, "column 'b' must not hold empty texts, but row 0 is empty"),
        ({"a": ["q"], "b": [None]}, {}, TypeError, "column 'b' must hold texts, but row 0 is NoneType"),
        ({"a": ["q"], "negative": ["r"]}, {}, ValueError, "two columns called 'negative'; rename"),
        (
            {"a": ["q"], "b": ["r"]},
            {"anchor_column_name": "b"},
            ValueError,
            "would both be column 'b'",
        ),
        ({}, {"corpus": ["c", 5]}, TypeError, "corpus must hold texts, but row 1 is int"),
        ({}, {"output_format": "pairs"}, ValueError, "output_format must be one of 'triplet', .* got 'pairs'"),
        ({}, {"sampling_strategy": "hard"}, ValueError, "sampling_strategy must be one of 'top', 'random', got 'hard'"),
        ({}, {"num_negatives": 0}, ValueError, "num_negatives must be at least 1"),
        ({}, {"num_negatives": 2.5}, TypeError, "num_negatives must be an integer, got float"),
        ({}, {"range_min": -1}, ValueError, "range_min must be at least 0"),
        ({}, {"range_min": 3, "range_max": 5}, ValueError, "must leave room for num_negatives=3 .* got range_min=3"),
        ({}, {"faiss_batch_size": 0}, ValueError, "faiss_batch_size must be at least 1"),
        ({}, {"bits": 100}, ValueError, "bits must be a multiple of 8"),
        ({}, {"bits": 24, "rescore": "codes"}, ValueError, 'code="scalar" needs at least 32 bits, got 24'),
        ({}, {"code": "sings"}, ValueError, "code must be one of 'signs', 'scalar', got 'sings'; did you mean 'signs'"),
        ({}, {"rescore": False}, ValueError, "rescore must be one of 'floats', 'codes', got False"),
        ({}, {"oversampling": 0}, ValueError, "oversampling must be at least 1"),
        ({}, {"oversampling": 2, "rescore": "codes"}, ValueError, 'rescore="codes" needs none for texts'),
        ({}, {"oversampling": 2, "rescore": "codes", "code": "signs"}, ValueError, 'signs with rescore="codes" need'),
        ({}, {"seed": -1}, ValueError, "seed must be at least 0"),
        ({}, {"query_prompt_name": "x"}, ValueError, "the model has no prompt named 'x'; it has 'ask'"),
        ({}, {"corpus_prompt_name": "x"}, ValueError, "the model has no prompt named 'x'; it has 'ask'"),
        ({}, {"device": "moon"}, ValueError, "there is no device 'moon'"),
        ({}, {"cross_encoder": "./no/judge"}, FileNotFoundError, "./no/judge: there is no such model folder"),
        ({}, {"output": "out.npy"}, ValueError, "output must end in .jsonl or .parquet, got out.npy"),
        ({}, {"output": "out.parquet", "output_format": "tevatron"}, ValueError, "output must end in .jsonl, got"),
        ({}, {"output": "no/out.jsonl"}, ValueError, "no is not a folder; create it or choose another output"),
    ],
)
def test_mistakes_are_reported_before_anything_is_encoded(columns, options, error, sentence):
    dataset = datasets.Dataset.from_dict(columns or {"a": ["q", "r"], "b": ["s", "t"]})
    with pytest.raises(error, match=sentence):
        mine_hard_negatives(dataset, Untouched(), **options)


def test_other_types_are_refused(dataset):
    with pytest.raises(TypeError, match=r"dataset must be a datasets.Dataset, got dict; make one with Dataset.from_di"):
        mine_hard_negatives({"a": ["q"], "b": ["s"]}, Untouched())
    with pytest.raises(TypeError, match="got DatasetDict; take one of its splits"):
        mine_hard_negatives(datasets.DatasetDict({"train": dataset}), Untouched())
    with pytest.raises(
        TypeError, match=r"model must be a SentenceTransformer or the name of one, a function .*, got int"
    ):
        mine_hard_negatives(dataset, 5)
    with pytest.raises(FileNotFoundError, match=r"\./no/model: there is no such model folder"):
        mine_hard_negatives(dataset, "./no/model")


def test_a_missing_library_is_named_with_its_command():
    with pytest.raises(ImportError, match=r"needs no_such_library: pip install 'lookalike\[text\]'"):
        optional_import("no_such_library", *FROM_TEXTS)


def test_a_model_that_returns_nan_is_refused_with_the_text(dataset, model, monkeypatch):
    encode = model.encode_document

    def broken(texts, **options):
        return encode(texts, **options).masked_fill(
            torch.tensor([i == 4 for i in range(len(texts))])[:, None], torch.nan
        )

    monkeypatch.setattr(model, "encode_document", broken)
    with pytest.raises(ValueError, match=f"returns NaN or infinity for the text '{dataset['answer'][4]}'"):
        mine_hard_negatives(dataset, model, verbose=False)


def test_queries_without_a_negative_are_reported_never_padded(dataset, model, caplog, capsys):
    with caplog.at_level(logging.WARNING, "lookalike"):
        got = mine_hard_negatives(dataset, model, max_score=0.7, verbose=False, range_max=5)
    queries = len(set(dataset["query"]))
    without = queries - len(set(got["query"]))
    assert 0 < without < queries
    assert f"{without} of {queries} queries have no negative left" in caplog.text
    assert capsys.readouterr().out == ""
    mine_hard_negatives(dataset, model, max_score=0.7, range_max=5)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("62 queries, 64 texts to search.")
    assert f"{without:,} queries ({without / queries:.1%}) have no negative and are left out: max_score." in shown


def test_deprecated_arguments_name_their_successors(dataset, model, caplog):
    mine_hard_negatives(dataset, model, verbose=False, as_triplets=False, margin=0.1, output_format="n-tuple-scores")
    assert "as_triplets is deprecated: pass output_format='n-tuple'" in caplog.text
    assert "margin is deprecated: pass absolute_margin=0.1" in caplog.text


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_an_output_holds_the_rows_of_the_data_set(dataset, model, model_folder, tmp_path, suffix, capsys):
    options = {"relative_margin": 0.05, "output_scores": True}
    expected = mine_hard_negatives(dataset, model, verbose=False, **options)
    output = tmp_path / f"out{suffix}"
    for given, named in ((model, output), (str(model_folder), str(output))):  # a model or its name
        options = {**options, "output": named, "source": {"file": "pairs.csv"}, "device": "cpu"}
        summary = mine_hard_negatives(dataset, given, verbose=False, force=True, **options)
        assert isinstance(summary, Summary)
        read = read_jsonl(output) if suffix == ".jsonl" else parquet.read_table(output).to_pylist()
        assert read == expected.to_list()
        assert sorted(path.name for path in tmp_path.iterdir()) == [output.name, "out.summary.json"]
        written = json.loads((tmp_path / "out.summary.json").read_text())
        assert written["rows"] == len(expected)
        assert written["source"] == {"file": "pairs.csv"}
        assert written["options"]["relative_margin"] == 0.05
        assert written["queries"] == summary.queries == 62
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match=rf"out{suffix} exists; force=True overwrites it, output= chooses another"):
        mine_hard_negatives(dataset, Untouched(), output=output)


def test_a_seed_draws_the_same_and_leaves_the_global_generator_alone(dataset, model):
    options = {"sampling_strategy": "random", "range_max": 30, "verbose": False}
    first, second, other = (mine_hard_negatives(dataset, model, seed=seed, **options) for seed in (3, 3, 4))
    assert first.to_dict() == second.to_dict() != other.to_dict()
    assert first._fingerprint == second._fingerprint != other._fingerprint
