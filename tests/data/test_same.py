"""Samples that are the same have one label in the training part, and go to one side of a validation split."""

import pytest
import torch

from lookalike.data.build import paired_texts
from lookalike.data.explicit import ExplicitNegatives
from lookalike.data.same import with_same
from lookalike.data.validation import hold_out
from lookalike.negatives.same import read_same
from tests.data.test_validation import LABELS, numbered_data, sides
from tests.negatives.marked import groups

SAME = read_same([[i, i + 7] for i in range(0, 50, 9)], 60)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("labels", [None, LABELS])
def test_only_the_labels_of_the_training_part_change(paired, labels):
    if labels is None and not paired:
        pytest.skip("such data do not exist")
    data = numbered_data(labels, paired=paired)
    same = SAME[SAME.max(1) < (data.train.pairs or 60)]
    marked = with_same(data, same)
    n = 40 if labels is None else 60
    assert marked.train.labels.tolist() == groups(same.tolist(), range(n) if labels is None else labels)
    assert marked.train.pairs == data.train.pairs
    ids = torch.tensor([5, 1])
    assert marked.train.queries(ids, 3) == data.train.queries(ids, 3)
    assert marked.train.to(torch.device("cpu")).labels.tolist() == marked.train.labels.tolist()
    assert (marked.test, marked.checksum) == (data.test, data.checksum)


def test_nothing_marked_changes_nothing():
    data = numbered_data(LABELS)
    assert with_same(data, read_same([], 60)) is data


@pytest.mark.parametrize("paired", [False, True])
def test_two_that_are_the_same_go_to_one_side(paired):
    data = hold_out(with_same(numbered_data(LABELS, paired=paired), SAME), 0.25)
    kept, held = sides(data)
    assert sorted(kept + held) == list(range(60))
    group = groups(SAME.tolist(), LABELS)
    assert not {group[i] for i in kept} & {group[i] for i in held}
    assert data.train.labels.tolist() == [group[i] for i in kept]
    assert data.validation.query_labels.tolist() == [group[i] for i in held]


def test_an_explicit_negative_that_answers_a_marked_pair_is_left_out():
    rows = [(f"q{i}", f"a{i}") for i in range(8)]
    data = paired_texts(
        "texts", "texts", rows, [("q", "a"), ("r", "b")], negatives=[[f"a{(i + 1) % 8}"] for i in range(8)]
    )
    marked = with_same(data, read_same([[2, 3]], 8))
    offsets, places = ExplicitNegatives(marked.train).excluded(torch.tensor([2, 6]), torch.tensor([2, 6]))
    assert (offsets.tolist(), places.tolist()) == ([0, 1, 1], [2])  # a3 answers q2 as well
