"""Mining never returns a negative that is the same as its query or as one of its positives."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lookalike import mine_hard_negatives
from lookalike.mining import mine_embeddings
from lookalike.negatives.same import Marks
from tests.negatives.marked import groups, marks

datasets = pytest.importorskip("datasets")


def mined(x, reference=None, **options):
    found = mine_embeddings(x, reference, bits=64, num_negatives=len(x), verbose=False, **options)
    return [[j for j in row if j >= 0] for row in found.indices.tolist()]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_embeddings_in_themselves(data):
    n = data.draw(st.integers(3, 12))
    labels = data.draw(st.none() | st.lists(st.integers(0, 3), min_size=n, max_size=n))
    assume(labels is None or len(set(labels)) < n)
    same = data.draw(marks(n))
    group = groups(same, range(n) if labels is None else labels)
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(n))
    for i, row in enumerate(mined(x, labels=labels, same=same)):
        assert sorted(row) == [j for j in range(n) if group[j] != group[i]]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_embeddings_with_positives(data):
    n = data.draw(st.integers(3, 12))
    same = data.draw(marks(n))
    positives = data.draw(st.lists(st.integers(-1, n - 1), min_size=n, max_size=n))
    group = groups(same, range(n))
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(n))
    for i, row in enumerate(mined(x, positives=np.array(positives), same=same)):
        left_out = {group[i]} | ({group[positives[i]]} if positives[i] >= 0 else set())
        assert sorted(row) == [j for j in range(n) if group[j] not in left_out]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_embeddings_in_a_reference(data):
    n, m = data.draw(st.integers(2, 8)), data.draw(st.integers(1, 10))
    same = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, m - 1)), max_size=10))
    positives = data.draw(st.lists(st.integers(-1, m - 1), min_size=n, max_size=n))
    group = groups([(first, n + second) for first, second in same], range(n + m))
    x = torch.randn(n + m, 8, generator=torch.Generator().manual_seed(n))
    found = mine_embeddings(
        x[:n], x[n:], positives=np.array(positives), same=same, bits=64, num_negatives=m, verbose=False
    )
    for i, row in enumerate(found.indices.tolist()):
        left_out = {group[i]} | ({group[n + positives[i]]} if positives[i] >= 0 else set())
        assert sorted(j for j in row if j >= 0) == [j for j in range(m) if group[n + j] not in left_out]


def negatives_of(rows, query):
    return {row["negative"] for row in rows if row["q"] == query}


def test_texts(model, tmp_path):
    texts = {"q": ["one", "two", "three", "one"], "a": ["first", "second", "third", "once"]}
    data, options = datasets.Dataset.from_dict(texts), {"num_negatives": 3, "verbose": False}
    everything = mine_hard_negatives(data, model, **options)
    assert negatives_of(everything, "one") == {"second", "third"}
    path = tmp_path / "marks.jsonl"
    with Marks(path, samples=4) as file:
        file.mark(1, 3)  # the second row of "one"
    rows = mine_hard_negatives(data, model, same=path, **options)
    assert negatives_of(rows, "one") == {"third"}
    assert negatives_of(rows, "two") == {"third"}
    assert negatives_of(rows, "three") == {"first", "second", "once"}
    rows = mine_hard_negatives(data, model, corpus=["uno", "first", "dos"], same=[[1, 2], [2, 1]], **options)
    assert not negatives_of(rows, "two") & {"dos"}
    assert not negatives_of(rows, "three") & {"first"}


def test_marks_of_other_rows_are_refused(model):
    data = datasets.Dataset.from_dict({"q": ["one", "two"], "a": ["first", "second"]})
    with pytest.raises(ValueError, match="same, pair 0: second must be an id between 0 and 1, got 2"):
        mine_hard_negatives(data, model, same=[[0, 2]], verbose=False)
