"""Pairs that are the same are read from many forms, and count as one label."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lookalike.negatives import exact_hard_negatives, hard_negatives, hardest_positives
from lookalike.negatives.same import Marks, merge_labels, read_same
from tests.negatives.marked import groups, marks

PAIRS = [[12, 40], [3, 4]]


def written(tmp_path, suffix):
    path = tmp_path / f"same{suffix}"
    if suffix == ".jsonl":
        with Marks(path, samples=50) as file:
            for pair in PAIRS:
                file.mark(*pair)
    elif suffix == ".npy":
        np.save(path, PAIRS)
    else:
        path.write_text("\n".join(("," if suffix == ".csv" else "\t").join(map(str, pair)) for pair in PAIRS))
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".npy"])
def test_every_file_gives_the_same_pairs(tmp_path, suffix):
    assert read_same(written(tmp_path, suffix), 50).tolist() == [[3, 4], [12, 40]]


@pytest.mark.parametrize("form", [list, np.array, torch.tensor, lambda pairs: np.array(pairs, np.uint8)])
def test_every_array_gives_the_same_pairs(form):
    found = read_same(form([[40, 12], [3, 4], [12, 40], [7, 7]]), 50)
    assert (found.dtype, found.tolist()) == (np.int64, [[3, 4], [12, 40]])


@pytest.mark.parametrize("nothing", [[], np.empty((0, 2)), torch.empty(0, 2)])
def test_no_pairs(nothing):
    assert read_same(nothing, 5).shape == (0, 2)


def test_a_header_is_optional(tmp_path):
    path = tmp_path / "same.csv"
    path.write_text('\ufefffirst,second\n"3", 4\n\n')
    assert read_same(path, 5).tolist() == [[3, 4]]


def test_a_query_and_a_reference_may_have_one_number():
    assert read_same([[3, 3], [4, 1]], 5, references=4).tolist() == [[3, 3], [4, 1]]
    with pytest.raises(ValueError, match="same, pair 0: second must be an id between 0 and 3, got 4"):
        read_same([[3, 4]], 5, references=4)


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ([[0, 1, 2]], ValueError, r"same must have the shape [m, 2], two ids per pair, got [1, 3]."),
        ([0, 1], ValueError, r"same must have the shape [m, 2], two ids per pair, got [2]."),
        ([[0, 1], [2]], ValueError, "same must be an array of integers, got rows of different lengths."),
        ([[0.0, 1.0]], TypeError, "same must be integers, got float64."),
        ([["a", "b"]], TypeError, "same must be integers, got <U1."),
        ([[1, 2], [-1, 2]], ValueError, "same, pair 1: first must be an id between 0 and 4, got -1."),
        ([[1, 5]], ValueError, "same, pair 0: second must be an id between 0 and 4, got 5."),
        ("marks.txt", ValueError, "marks.txt must be a .jsonl file of marks, a .csv or .tsv file of two columns, or"),
        ("nowhere.csv", FileNotFoundError, "nowhere.csv: there is no such file of pairs that are the same"),
    ],
)
def test_mistakes(given, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        read_same(given, 5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1,2\n3,x\n", "line 2: expected two ids such as 12 and 940, got '3', 'x'."),
        ("1,x\n", "line 1: expected two ids such as 12 and 940, got '1', 'x'."),
        ("1,2\n3\n", "line 2: expected two ids, got 1 fields."),
        ("a,b\n1,7\n", "line 2: second must be an id between 0 and 4, got 7."),
    ],
)
def test_damaged_columns(tmp_path, text, sentence):
    path = tmp_path / "same.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{path}, {sentence}")):
        read_same(path, 5)


def test_a_file_that_is_no_array(tmp_path):
    path = tmp_path / "same.npy"
    path.write_text("no array")
    with pytest.raises(ValueError, match=r"same.npy cannot be read as pairs \(.*\); expected integers \[m, 2\]"):
        read_same(path, 5)


@given(st.data())
def test_labels_are_merged_as_by_hand(data):
    n = data.draw(st.integers(1, 12))
    labels = data.draw(st.none() | st.lists(st.integers(-3, 2**40), min_size=n, max_size=n))
    same = data.draw(marks(n))
    merged = merge_labels(labels, same, n)
    assert merged.dtype == np.int64
    assert merged.tolist() == groups(same, range(n) if labels is None else labels)


def test_one_more_mark_moves_no_other_label():
    before, after = merge_labels(None, [[5, 2]], 9), merge_labels(None, [[5, 2], [8, 7]], 9)
    assert np.flatnonzero(before != after).tolist() == [8]


def test_labels_must_fit():
    with pytest.raises(ValueError, match=r"labels must have one label per sample, 3, got the shape \[2\]"):
        merge_labels([0, 1], [], 3)


@given(st.data())
def test_no_hard_negative_is_the_same(data):
    n, paired = data.draw(st.integers(2, 16)), data.draw(st.booleans())
    labels = None if paired else data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    same = data.draw(marks(n))
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(n))
    codes = (x > 0).to(torch.uint8)
    group = groups(same, range(n) if labels is None else labels)
    options = {"reference": codes.flip(1)} if paired else {}
    for found in (
        hard_negatives(codes, labels, n, same=same, **options),
        exact_hard_negatives(x, labels, n, same=same),
    ):
        for i, row in enumerate(found.indices.tolist()):
            assert sorted(j for j in row if j >= 0) == [j for j in range(n) if group[j] != group[i]]
    if labels is not None:
        for i, j in enumerate(hardest_positives(codes, labels, same=same).tolist()):
            assert (j >= 0) == (group.count(group[i]) > 1)
            assert j < 0 or group[j] == group[i]


def test_a_query_and_a_reference_are_the_same():
    codes = torch.tensor([[0], [1], [3]], dtype=torch.uint8)
    options = {"reference": codes.clone(), "reference_labels": [10, 11, 12]}
    found = hard_negatives(codes, [0, 1, 2], 3, same=[[0, 0], [1, 0], [1, 2]], **options)
    assert found.indices.tolist() == [[1, -1, -1], [1, -1, -1], [2, 1, 0]]
