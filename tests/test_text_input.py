"""Text where numbers are needed gets one sentence that says how to number or embed it."""

import numpy as np
import pytest
import torch

import lookalike
from lookalike.analysis import analyze

NAMES = ["cat", "dog", "owl", "fox"] * 8
CODES = torch.randint(256, (32, 4), dtype=torch.uint8, generator=torch.manual_seed(0))
X = torch.randn(32, 8, generator=torch.manual_seed(0))
MARGIN = lookalike.Filters(relative_margin=0.05)
HOW = r"numpy\.unique\(labels, return_inverse=True\)\[1\]"

TAKE_LABELS = {
    "LSHBatchSampler": lambda labels: lookalike.LSHBatchSampler(labels, 8, bits=64),
    "RandomBatchSampler": lambda labels: lookalike.RandomBatchSampler(labels, 8),
    "PreEpochBatchSampler": lambda labels: lookalike.PreEpochBatchSampler(labels, 8, mode="full"),
    "hard_negatives": lambda labels: lookalike.hard_negatives(CODES, labels, 3),
    "hardest_positives": lambda labels: lookalike.hardest_positives(CODES, labels),
    "hamming_topk": lambda labels: lookalike.hamming_topk(CODES, CODES, 3, query_labels=labels),
    "compose_batches": lambda labels: lookalike.compose_batches(torch.arange(32).view(-1, 1), 4, labels=labels),
    "evaluate": lambda labels: lookalike.evaluate(X, X, labels, labels),
    "analyze": lambda labels: analyze(X, labels, bits=(8,), k=3),
}


@pytest.mark.parametrize("take", TAKE_LABELS.values(), ids=TAKE_LABELS)
@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(NAMES, id="list"),
        pytest.param(tuple(NAMES), id="tuple"),
        pytest.param(np.array(NAMES), id="array"),
        pytest.param(np.array(NAMES, object), id="objects"),
        pytest.param([0, 1, *NAMES[2:]], id="mixed"),
    ],
)
def test_text_as_labels(take, labels):
    with pytest.raises(TypeError, match=rf"labels must be integers, got text such as '(cat|owl)'; .*{HOW}"):
        take(labels)


@pytest.mark.parametrize("take", TAKE_LABELS.values(), ids=TAKE_LABELS)
def test_the_advice_on_labels_works(take):
    take(np.unique(NAMES, return_inverse=True)[1])


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([None] * 32, "labels must be integers, got NoneType"),
        ([[0], [1, 2]] * 16, "labels must be integers, got lists of different lengths"),
        (np.array([b"a", b"b"] * 16), "labels must be integers, got text such as b'a'"),
        ([0.5] * 32, f"labels must be integers, got torch.float32; number other values with {HOW}"),
        (["a" * 1000] * 32, "got text such as 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...;"),
    ],
)
def test_other_things_as_labels(labels, sentence):
    with pytest.raises(TypeError, match=sentence):
        lookalike.hard_negatives(CODES, labels, 3)


def test_integers_among_objects_are_integers():
    labels = np.arange(32) // 4
    expected = lookalike.hard_negatives(CODES, labels, 3).indices
    assert torch.equal(lookalike.hard_negatives(CODES, labels.astype(object), 3).indices, expected)


def test_labels_of_a_table_whose_rows_were_chosen():
    """Columns of pandas are read by position; their index may begin anywhere."""
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series(np.arange(40) // 4)[8:]
    expected = lookalike.hard_negatives(CODES, labels.to_numpy(), 3).indices
    assert torch.equal(lookalike.hard_negatives(CODES, labels, 3).indices, expected)


def test_text_as_codes_and_embeddings():
    with pytest.raises(TypeError, match="query must be packed codes of dtype uint8, got text such as 'cat'"):
        lookalike.hamming_topk(NAMES, CODES, 3)
    with pytest.raises(TypeError, match="embeddings must be floats, got text such as 'cat'"):
        lookalike.SignHasher(8, 64).encode(NAMES)


@pytest.mark.parametrize("labels", [None, torch.arange(32)])
def test_margins_without_any_positive_are_pointed_out(labels, caplog):
    lookalike.hard_negatives(CODES, labels, 3, filters=MARGIN)
    (record,) = caplog.records
    assert "no sample has a positive, because all labels are different" in record.message
    assert "pass positives=" in record.message


def test_margins_with_some_positives_are_fine(caplog):
    labels = torch.arange(32)
    labels[1] = 0
    lookalike.hard_negatives(CODES, labels, 3, filters=MARGIN)
    lookalike.hard_negatives(CODES, None, 3, filters=MARGIN, positives=torch.arange(32).flip(0))
    assert not caplog.records
