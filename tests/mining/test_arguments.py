"""Everything that can be wrong with the arguments of `mine_hard_negatives`, refused before anything is encoded."""

import logging

import pytest
import torch

from lookalike import mine_hard_negatives
from lookalike.mining.options import FROM_TEXTS
from lookalike.utils.imports import optional_import

pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")


class Untouched:
    """A model that must not be used."""

    prompts = {"ask": "?"}  # noqa: RUF012

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
        ({}, {"corpus": ["c", 5]}, TypeError, "corpus must hold texts, but row 1 is int"),
        ({}, {"output_format": "pairs"}, ValueError, "output_format must be one of 'triplet', .* got 'pairs'"),
        ({}, {"sampling_strategy": "hard"}, ValueError, "sampling_strategy must be 'top' or 'random'"),
        ({}, {"num_negatives": 0}, ValueError, "num_negatives must be at least 1"),
        ({}, {"num_negatives": 2.5}, TypeError, "num_negatives must be an integer, got float"),
        ({}, {"range_min": -1}, ValueError, "range_min must be at least 0"),
        ({}, {"range_min": 3, "range_max": 5}, ValueError, "must leave room for num_negatives=3, got range_min=3"),
        ({}, {"faiss_batch_size": 0}, ValueError, "faiss_batch_size must be at least 1"),
        ({}, {"bits": 100}, ValueError, "bits must be a multiple of 8"),
        ({}, {"rescore": -2}, ValueError, "rescore must be True, False or how many times"),
        ({}, {"rescore": "yes"}, ValueError, "rescore must be True, False or how many times"),
        ({}, {"query_prompt_name": "x"}, ValueError, "the model has no prompt named 'x'; it has 'ask'"),
        ({}, {"corpus_prompt_name": "x"}, ValueError, "the model has no prompt named 'x'; it has 'ask'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_encoded(columns, options, error, sentence):
    dataset = datasets.Dataset.from_dict(columns or {"a": ["q", "r"], "b": ["s", "t"]})
    with pytest.raises(error, match=sentence):
        mine_hard_negatives(dataset, Untouched(), **options)


def test_what_is_no_data_set_is_refused(dataset):
    with pytest.raises(TypeError, match=r"dataset must be a datasets.Dataset, got dict; .* Dataset.from_dict"):
        mine_hard_negatives({"a": ["q"], "b": ["s"]}, Untouched())
    with pytest.raises(TypeError, match="take one split of a DatasetDict"):
        mine_hard_negatives(datasets.DatasetDict({"train": dataset}), Untouched())


def test_a_missing_library_is_named_with_its_command():
    with pytest.raises(ImportError, match=r"needs no_such_library: pip install 'lookalike\[text\]'"):
        optional_import("no_such_library", *FROM_TEXTS)


def test_a_model_that_gives_nan_is_refused_with_the_text(dataset, model, monkeypatch):
    encode = model.encode_document

    def broken(texts, **options):
        return encode(texts, **options).masked_fill(
            torch.tensor([i == 4 for i in range(len(texts))])[:, None], torch.nan
        )

    monkeypatch.setattr(model, "encode_document", broken)
    with pytest.raises(ValueError, match=f"gives NaN or infinity for the text '{dataset['answer'][4]}'"):
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
    assert f"{without:,} queries ({without / queries:.1%}) have no negative and are left out: max_score." in shown


def test_deprecated_arguments_say_what_to_use(dataset, model, caplog):
    mine_hard_negatives(dataset, model, verbose=False, as_triplets=False, margin=0.1, output_format="n-tuple-scores")
    assert "as_triplets is deprecated: say output_format='n-tuple'" in caplog.text
    assert "margin is deprecated: say absolute_margin=0.1" in caplog.text
