"""Negatives that come with pairs of texts: every layout gives the same ones, and nothing else is taken for one."""

import json

import pytest
import torch

from lookalike.data import load_data
from lookalike.data.huggingface import from_dataset
from lookalike.mining.formats import WRITERS, Group, Layout
from tests.data.miniatures import write_csv, write_parquet

# Queries 0 and 1 have two positives each; the last query lacks a negative.
CORPUS = [f"text {i}" for i in range(12)]
GROUPS = [
    Group(0, "query 0", [(0, 0.9), (1, 0.8)], [(4, 0.7), (5, 0.6)]),
    Group(1, "query 1", [(2, 0.9), (3, 0.8)], [(5, 0.7), (0, 0.6)]),
    Group(2, "query 2", [(6, 0.9)], [(7, 0.7), (11, 0.6)]),
]
PAIRS = [("query 0", "text 0"), ("query 0", "text 1"), ("query 1", "text 2"), ("query 1", "text 3")]
PAIRS.append(("query 2", "text 6"))
NEGATIVES = [["text 4", "text 5"]] * 2 + [["text 5", "text 0"]] * 2 + [["text 7", "text 11"]]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def mined(folder, layout, **options):
    rows = [row for group in GROUPS for row in WRITERS[layout](Layout(layout, 2, **options), CORPUS, group)]
    return write_lines(folder / f"{layout}.jsonl", rows)


def with_test(path, **options):
    """Read all of a file as training pairs."""
    return load_data("texts", path, test=path, **options)


def content(data):
    """Return the pairs of the training part and the negatives of each."""
    ids = torch.arange(data.train.pairs)
    pairs = list(zip(data.train.queries(ids, 0), data.train.references(ids, 0), strict=True))
    m = data.train.num_negatives
    texts = data.train.negatives(ids, 0) if m else []
    _, numbers = data.train.item_numbers(ids)
    rows = [texts[i * m : (i + 1) * m] for i in range(len(pairs))]
    return pairs, [
        [text for text, number in zip(row, own, strict=True) if number >= 0]
        for row, own in zip(rows, numbers.tolist(), strict=True)
    ]


@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_that_mining_writes(tmp_path, layout):
    path = mined(tmp_path, layout)
    data = with_test(path)
    assert content(data) == (PAIRS, NEGATIVES)
    assert data.counts["negatives per pair"] == 2
    assert "5 pairs with 2 negatives each to train, 3 queries among 5 references to test" in data.description
    one, none = with_test(path, negatives=1), with_test(path, negatives=0)
    assert content(one) == (PAIRS, [own[:1] for own in NEGATIVES])
    assert content(none) == (PAIRS, [[]] * 5)
    assert none.train.num_negatives == 0
    assert len({each.checksum for each in (data, one, none)}) == 3
    for each in (one, none):  # the test is the same
        assert each.counts["test references"] == data.counts["test references"]
        assert each.test.references(torch.arange(5)) == data.test.references(torch.arange(5))
    assert content(with_test(path, negatives=7)) == (PAIRS, NEGATIVES)


@pytest.mark.parametrize("layout", ["triplet", "n-tuple", "flagembedding", "tevatron"])
def test_scores_beside_the_texts_do_no_harm(tmp_path, layout):
    assert content(with_test(mined(tmp_path, layout, scores=True))) == (PAIRS, NEGATIVES)


@pytest.mark.parametrize("layout", WRITERS)
def test_rows_of_a_dataset(tmp_path, layout):
    rows = [json.loads(line) for line in mined(tmp_path, layout).read_text().splitlines()]

    class Rows:
        column_names = tuple(rows[0])

        def __len__(self):
            return len(rows)

        def __getitem__(self, key):
            return [row[key] for row in rows] if isinstance(key, str) else rows[key]

    assert content(from_dataset(Rows(), Rows())) == (PAIRS, NEGATIVES)
    assert content(from_dataset(Rows(), Rows(), negatives=0)) == (PAIRS, [[]] * 5)


def test_tables_of_other_kinds(tmp_path):
    rows = [(q, a, *own) for (q, a), own in zip(PAIRS, NEGATIVES, strict=True)]
    heading = ("Query", "Answer", "Negative_10", "negative_2")
    swapped = [(q, a, second, first) for q, a, first, second in rows]  # numbers decide on the order, not places
    for path in (
        write_csv(tmp_path / "a.csv", heading, swapped),
        write_parquet(tmp_path / "b.parquet", **dict(zip(heading, zip(*swapped, strict=True), strict=True))),
    ):
        assert content(with_test(path)) == (PAIRS, NEGATIVES)
    labelled = [(q, a, "1") for q, a in PAIRS] + [("query 2", "text 7", "0"), ("query 0", "text 4", "0")]
    path = write_csv(tmp_path / "c.csv", ("query", "answer", "label"), labelled)
    assert content(with_test(path)) == (PAIRS, [["text 4"], ["text 4"], [], [], ["text 7"]])
    named = write_csv(tmp_path / "d.csv", ("q", "negative", "negative_1"), [row[:3] for row in rows])
    assert content(with_test(named, columns="q,negative")) == (PAIRS, [own[:1] for own in NEGATIVES])


def test_pairs_may_lack_negatives_and_repeat_them(tmp_path):
    path = write_csv(
        tmp_path / "gaps.csv",
        ("anchor", "positive", "negative"),
        [("a", "1", "x"), ("b", "2", ""), ("a", "1", "y"), ("a", "1", "x"), ("c", "3", "3"), ("c", "3", "z")],
    )
    data = with_test(path)
    assert content(data) == ([("a", "1"), ("b", "2"), ("c", "3")], [["x", "y"], [], ["z"]])
    assert data.train.negatives(torch.tensor([1, 2]), 0) == ["2", "2", "z", "3"]  # references fill the gaps


def test_the_split_decides_which_pairs_train(tmp_path):
    rows = [
        {"query": f"q{i}", "answer": f"a{i}", "neg": [f"n{i}"], "split": "train" if i % 2 else "test"} for i in range(8)
    ]
    data = load_data("texts", write_lines(tmp_path / "a.jsonl", rows))
    assert content(data) == ([(f"q{i}", f"a{i}") for i in (1, 3, 5, 7)], [[f"n{i}"] for i in (1, 3, 5, 7)])
    assert data.test.references(torch.arange(4)) == ["a0", "a2", "a4", "a6"]
    bare = [{name: row[name] for name in ("query", "answer", "neg")} for row in rows]
    pairs, negatives = content(load_data("texts", write_lines(tmp_path / "b.jsonl", bare), test_share=0.4))
    assert 2 <= len(pairs) <= 6
    assert all((q[1:], a[1:]) == (n[1:], n[1:]) for (q, a), (n,) in zip(pairs, negatives, strict=True))


def test_a_query_without_an_answer_does_not_turn_negatives_into_answers(tmp_path, caplog):
    rows = [(q, a, "1") for q, a in PAIRS] + [("query 0", "text 4", "0"), ("query without answer", "text 9", "0")]
    data = with_test(write_csv(tmp_path / "c.csv", ("query", "answer", "label"), rows))
    assert data.train.pairs == len(PAIRS)
    assert data.train.num_negatives == 1
    assert "1 queries have no row with a 1: they are left out" in caplog.text


def test_other_labels_are_not_negatives(tmp_path, caplog):
    for labels in (["0"] * 4, ["1"] * 4, ["0", "1", "2", "0"], ["x", "0", "1", "y"]):
        rows = [(f"q{i}", f"a{i}", label) for i, label in enumerate(labels)]
        data = with_test(write_csv(tmp_path / "a.csv", ("query", "answer", "label"), rows))
        assert content(data) == ([row[:2] for row in rows], [[]] * 4)
        assert not caplog.records
    rows = [("q0", "a0", "1"), ("q1", "a1", "1"), ("q2", "a2", "0")]  # no query has both
    data = with_test(write_csv(tmp_path / "a.csv", ("query", "answer", "label"), rows))
    assert content(data)[0] == [row[:2] for row in rows]
    assert "1 queries have no row with a 1: every row is read as a pair" in caplog.text


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        ([{"query": "q", "answer": "a"}], {"negatives": 2}, "holds no negatives: there is no column called negative"),
        ([{"query": "q", "answer": "a", "negative": 7}], {}, "line 1: negative holds a text that is of type int"),
        ([{"query": "q", "answer": "a", "neg": ["b", None]}], {}, r"neg holds a text that is missing \(null\)"),
        ([{"query": "q", "answer": ["a", "b"], "labels": [1]}], {}, "must hold a 1 or a 0 for each of the 2 texts"),
        ([{"query": "q", "positive_passages": ["a"]}], {}, "positive_passages must hold a list of objects, each with"),
        ([{"query": "q", "answer": "a", "neg": [str(i) for i in range(33)]}], {}, "up to 33 negatives per pair.*say"),
        ([{"query": "q", "answer": "a", "neg": ["b"]}], {"negatives": -1}, "negatives must be at least 0, got -1"),
    ],
)
def test_mistakes(tmp_path, rows, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_data("texts", write_lines(tmp_path / "a.jsonl", rows), **options)
