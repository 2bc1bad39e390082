"""A validation part held out of any training part."""

import itertools
import re

import pytest
import torch

from lookalike.data.build import paired_texts
from lookalike.data.explicit import MISSING, UNKNOWN, ExplicitNegatives
from lookalike.data.retrieval import RetrievalData
from lookalike.data.validation import hold_out
from lookalike.utils.lists import make_lists
from tests.toys import ToyPart, toy_data


class Numbered(ToyPart):
    """Returns what it was asked for instead of inputs."""

    def queries(self, ids, seed=0):
        return "query", ids.tolist(), seed

    def references(self, ids, seed=0):
        return "reference", ids.tolist(), seed

    def plain(self, tower, ids):
        return tower, ids.tolist()


def numbered_data(labels, *, paired=False, exclude=None):
    labels = None if labels is None else torch.tensor(labels)
    n = 40 if labels is None else len(labels)
    part = Numbered(torch.zeros(n, 8), labels, n if paired else None)
    return RetrievalData(
        name="numbers", description="", checksum="", train=part, test=toy_data().test, train_exclude=exclude
    )


def original_ids(part, n):
    return part.plain("query", torch.arange(n))[1]


def sides(data):
    """The ids of the whole part on either side."""
    n = len(data.train.labels) if data.train.pairs is None else data.train.pairs
    kept = original_ids(data.train, n)
    held = data.validation.references(torch.arange(len(data.validation.reference_labels)))[1]
    return kept, held


LABELS = [7 * (i % 20) for i in range(60)]


@pytest.mark.parametrize("paired", [False, True])
def test_classes_are_held_out_whole_and_every_sample_is_on_one_side(paired):
    data = hold_out(numbered_data(LABELS, paired=paired), 0.25)
    kept, held = sides(data)
    assert sorted(kept + held) == list(range(60))
    assert kept == sorted(kept)
    classes = {LABELS[i] for i in held}
    assert len(classes) == 5
    assert not classes & {LABELS[i] for i in kept}
    assert data.train.labels.tolist() == [LABELS[i] for i in kept]
    assert data.validation.query_labels.tolist() == [LABELS[i] for i in held]
    assert data.train.pairs == (len(kept) if paired else None)
    assert data.validation.in_itself is not paired


def test_pairs_without_labels_are_held_out_one_by_one():
    data = hold_out(numbered_data(None, paired=True), 0.3)
    kept, held = sides(data)
    assert (len(kept), len(held)) == (28, 12)
    assert data.train.labels is None
    assert data.validation.query_labels.tolist() == held
    assert data.validation_exclude is None


def test_the_labels_alone_decide():
    first = hold_out(numbered_data(LABELS), 0.25)
    assert sides(hold_out(numbered_data(LABELS), 0.25)) == sides(first)
    held = {LABELS[i] for i in sides(first)[1]}
    turned = LABELS[::-1]
    assert {turned[i] for i in sides(hold_out(numbered_data(turned), 0.25))[1]} == held
    assert held <= {LABELS[i] for i in sides(hold_out(numbered_data(LABELS), 0.5))[1]}  # a larger share adds classes
    assert {label // 7 for label in held} != set(range(5))


def test_training_reads_the_samples_it_keeps_as_the_whole_part_does():
    data = hold_out(numbered_data(LABELS), 0.25)
    kept, held = sides(data)
    ids = torch.tensor([3, 0, 11])
    chosen = [kept[i] for i in ids.tolist()]
    assert data.train.queries(ids, 5) == ("query", chosen, 5)
    assert data.train.references(ids, 6) == ("reference", chosen, 6)
    assert data.train.to(torch.device("cpu")).plain("reference", ids) == ("reference", chosen)
    assert data.train.prefetch
    validation = data.validation.to(torch.device("cpu"))
    assert validation.queries(torch.tensor([1])) == ("query", [held[1]])


@pytest.mark.parametrize("paired", [False, True])
def test_what_is_excluded_stays_excluded_on_its_side(paired):
    rows = [[(i + 1) % 60, (i + 5) % 60, (i + 20) % 60, i] for i in range(60)]  # i + 20 has the label of i
    data = hold_out(numbered_data(LABELS, paired=paired, exclude=make_lists(rows)), 0.4)
    kept, held = sides(data)

    def listed(lists, among):
        offsets, ids = (part.tolist() for part in lists)
        assert len(offsets) == len(among) + 1
        return [{among[i] for i in ids[a:b]} for a, b in itertools.pairwise(offsets)]

    assert listed(data.train_exclude, kept) == [set(rows[i]) & set(kept) for i in kept]
    hidden = [{j for j in set(rows[i]) & set(held) if LABELS[j] != LABELS[i]} for i in held]
    assert any(hidden)
    own = [set() if paired else {i} for i in held]
    assert listed(data.validation_exclude, held) == [a | b for a, b in zip(hidden, own, strict=True)]


def test_labelled_samples_do_not_find_themselves():
    offsets, ids = hold_out(numbered_data(LABELS), 0.25).validation_exclude
    assert offsets.tolist() == list(range(16))
    assert ids.tolist() == list(range(15))


def test_pairs_that_share_a_text_stay_together_and_answer_each_other():
    pairs = [(f"question {i}", f"answer {i // 3}") for i in range(60)]
    data = hold_out(paired_texts("texts", "texts", pairs, [("a", "b"), ("c", "d")]), 0.25)
    ids = torch.arange(15)
    held = data.validation.references(ids)
    assert sorted(set(map(held.count, held))) == [3]
    assert not set(held) & set(data.train.references(torch.arange(45), 0))
    labels = data.validation.reference_labels
    assert torch.equal(labels, data.validation.query_labels)
    assert [held[i] == held[j] for i in ids for j in ids] == [bool(labels[i] == labels[j]) for i in ids for j in ids]
    assert data.validation.queries(torch.tensor([0]))[0].startswith("question")


def test_references_that_are_held_out_are_no_explicit_negatives():
    pairs = [(f"q{i}", f"a{i}") for i in range(30)]
    negatives = [[f"a{(i + 1) % 30}", f"nothing {i}"] for i in range(30)]
    data = hold_out(paired_texts("thirty", "thirty", pairs, pairs, negatives=negatives), 0.3)
    kept, n = data.train.ids.tolist(), data.train.pairs
    is_kept = [(i + 1) % 30 in kept for i in kept]
    assert 0 < sum(is_kept) < n
    found = ExplicitNegatives(data.train).ids
    assert found[:, 0].tolist() == [
        kept.index((i + 1) % 30) if is_there else MISSING for i, is_there in zip(kept, is_kept, strict=True)
    ]
    assert found[:, 1].tolist() == [UNKNOWN] * n
    assert len(data.train.negatives(torch.arange(n), 0)) == 2 * n


def test_nothing_changes_without_a_share():
    data = numbered_data(LABELS)
    assert hold_out(data, 0.0) is data


@pytest.mark.parametrize(
    ("labels", "options", "sentence"),
    [
        (
            LABELS,
            {"share": 0.05},
            "validation_share=0.05 holds out 1 of 20 classes of at least two samples, but validation needs two",
        ),
        (list(range(60)), {"share": 0.5}, "holds out 0 of 0 classes of at least two samples"),
        (
            LABELS,
            {"share": 0.5, "pairs_per_batch": 11},
            "leaves 10 of 20 classes of at least two samples to train on, which do not fill a batch of 11 pairs: lower",
        ),
    ],
)
def test_splits_that_cannot_be(labels, options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        hold_out(numbered_data(labels), **options)


def test_a_part_of_its_own_is_not_replaced():
    data = hold_out(numbered_data(LABELS), 0.25)
    with pytest.raises(ValueError, match="numbers has a validation part of its own: validation_share= must be 0"):
        hold_out(data, 0.25)
