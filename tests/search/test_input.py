"""What a caller can get wrong, and what must just work."""

import numpy as np
import pytest
import torch

from lookalike import hamming_topk

CODES = torch.tensor([[0, 0], [1, 0], [3, 0], [7, 0]], dtype=torch.uint8)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"k": 0}, ValueError, "k must be at least 1, got 0."),
        ({"k": -3}, ValueError, "k must be at least 1, got -3."),
        ({"k": 1.5}, TypeError, "k must be an integer, got float."),
        ({"query": CODES.float()}, TypeError, "query must be packed codes of dtype uint8, got torch.float32"),
        ({"query": CODES[0]}, ValueError, r"query must have the shape \[n, bits / 8\], got \[2\]"),
        ({"reference": CODES[:, :0]}, ValueError, r"reference must have the shape \[n, bits / 8\], got \[4, 0\]"),
        ({"reference": CODES[:, :1]}, ValueError, "same width, got 16 bits and 8 bits; shorten"),
        ({"query_labels": [0, 1, 2, 3]}, ValueError, "must be given together"),
        (
            {"query_labels": [0, 1, 2], "reference_labels": [0, 1, 2, 3]},
            ValueError,
            "query_labels must have one label per code, 4, got 3.",
        ),
        (
            {"query_labels": [0.0] * 4, "reference_labels": [0] * 4},
            TypeError,
            "query_labels must be integers, got torch.float32; number other values with numpy.unique.",
        ),
        (
            {"query_labels": [[0]] * 4, "reference_labels": [0] * 4},
            ValueError,
            r"query_labels must have one dimension, got the shape \[4, 1\].",
        ),
        ({"exclude": [1, 2, 3]}, TypeError, "exclude must be a pair"),
        ({"exclude": ([0, 1], [0])}, ValueError, r"exclude offsets must have length 5 \(rows \+ 1\), got 2."),
        ({"exclude": ([0, 2, 1, 1, 1], [0])}, ValueError, "must rise from 0 to the number of ids, 1"),
        ({"exclude": ([0, 1, 1, 1, 1], [4])}, ValueError, "exclude ids must be between 0 and 3, got 4 to 4."),
        (
            {"backend": "faiss"},
            ValueError,
            "backend must be one of 'auto', 'plain', 'cpu', 'matmul', 'cuda', got 'faiss'.",
        ),
        ({"memory": 0}, ValueError, "memory must be at least 1, got 0."),
        ({"limits": [1.0] * 4}, TypeError, "limits must be integers, got torch.float32."),
        ({"limits": [1, 2, 3]}, ValueError, "limits must have one distance per query, 4, got 3."),
        ({"limits": 3}, ValueError, r"limits must have one dimension, got the shape \[\]."),
    ],
)
def test_bad_input_gets_a_sentence(change, error, sentence):
    arguments = {"query": CODES, "reference": CODES.clone(), "k": 2} | change
    with pytest.raises(error, match=sentence):
        hamming_topk(**arguments)


@pytest.mark.parametrize("backend", ["plain", "cpu", "matmul"])
def test_any_memory_layout_works(backend):
    wide = torch.zeros(8, 4, dtype=torch.uint8)
    wide[::2, ::2] = CODES
    expected = hamming_topk(CODES, CODES, 3, backend=backend)
    strided = hamming_topk(wide[::2, ::2], CODES.numpy(), 3, query_labels=None, backend=backend)
    assert torch.equal(strided.indices, expected.indices)


@pytest.mark.parametrize("backend", ["auto", "plain", "cpu", "matmul"])
@pytest.mark.parametrize(("q", "n"), [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_search(backend, q, n):
    found = hamming_topk(CODES[:q], CODES[:n], 2, backend=backend)
    assert found.indices.shape == found.distances.shape == (q, 2)
    assert (found.indices == -1).all()
    assert found.indices.dtype == torch.int64
    assert found.distances.dtype == torch.int32


def test_labels_of_a_self_join_need_be_given_once():
    found = hamming_topk(CODES, CODES, 1, query_labels=np.array([0, 0, 1, 1], dtype=np.uint8))
    assert found.indices.flatten().tolist() == [2, 2, 1, 1]


def test_excluded_lists_may_be_unsorted_and_repeat():
    found = hamming_topk(CODES, CODES, 4, exclude=([0, 3, 3, 3, 3], [2, 0, 2]), backend="cpu")
    assert found.indices[0].tolist() == [1, 3, -1, -1]
