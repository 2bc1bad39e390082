"""Pairs of texts from tables: nothing is guessed, and errors say which row is wrong."""

import json
import re

import pytest
import torch

from lookalike.data import load_data
from lookalike.data.huggingface import from_dataset
from tests.data.miniatures import write_csv, write_parquet

PAIRS = [(f"question {i}", f"answer {i}") for i in range(40)]


def trained(path, **options):
    """Return the pairs that training reads from a file, and the description of the data."""
    data = load_data("texts", path, test=path, **options)
    ids = torch.arange(data.train.pairs)
    return list(zip(data.train.queries(ids, 0), data.train.references(ids, 0), strict=True)), data.description


def refused(path, **options):
    with pytest.raises((ValueError, TypeError)) as caught:
        load_data("texts", path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


def test_a_header_is_never_taken_for_a_pair(tmp_path):
    path = write_csv(tmp_path / "claim_evid.csv", ("claim", "evidence"), PAIRS)
    message = refused(path)
    assert "has the columns claim, evidence: no known pair" in message
    assert message.endswith("with columns=claim,evidence, or pass header=False if the first line is already a pair.")
    for columns in ("claim,evidence", ("claim", "evidence"), ["claim", "evidence"], " Claim , Evidence"):
        pairs, description = trained(path, columns=columns)
        assert pairs == PAIRS
        assert description.startswith("columns claim and evidence of claim_evid.csv: ")


def test_columns_are_not_guessed_by_their_place(tmp_path):
    path = write_csv(tmp_path / "three.csv", ("id", "title", "text"), [(i, *pair) for i, pair in enumerate(PAIRS)])
    assert "has the columns id, title, text: no known pair of queries and answers" in refused(path)
    assert trained(path, columns="title,text")[0] == PAIRS
    several = write_csv(tmp_path / "several.csv", ("query", "answer", "passage"), [(q, a, a) for q, a in PAIRS])
    assert "several to choose from (answer, passage)" in refused(several)
    twice = write_csv(tmp_path / "twice.csv", ("query", "answer", "answer"), [(q, a, a) for q, a in PAIRS])
    assert "several to choose from (answer, answer)" in refused(twice)
    assert "has 2 columns called 'answer'; rename one" in refused(twice, columns="query,answer")
    one = tmp_path / "semicolons.csv"
    one.write_text("query;answer\na;b\n")
    assert "has one column, 'query;answer'; fields of a .csv file are separated by commas" in refused(one)
    for columns in ("title", "title,title", "a,b,c", {"query": "title"}, 7):
        assert "columns must name two columns" in refused(path, columns=columns)
    assert "has no column 'body', but id, title, text" in refused(path, columns="title,body")


def test_a_file_without_a_header(tmp_path):
    path = write_csv(tmp_path / "plain.tsv", PAIRS[0], PAIRS[1:], "\t")
    assert "has the columns 'question 0', 'answer 0'" in refused(path)
    assert "pass header=False" in refused(path)
    pairs, description = trained(path, header=False)
    assert pairs == PAIRS
    assert description.startswith("columns 1 and 2 of plain.tsv: ")
    rows = [(q, i, a) for i, (q, a) in enumerate(PAIRS)]
    three = write_csv(tmp_path / "three.tsv", rows[0], rows[1:], "\t")
    message = refused(three, header=False)
    assert "has 3 columns; say which two" in message
    assert message.endswith("as in columns=1,2.")
    assert trained(three, header=False, columns="1,3")[0] == PAIRS
    assert "header must be true or false, got 'no'" in refused(path, header="no")


BAD = [
    (None, "is missing (null)"),
    (b"bytes", "is bytes and not a text"),
    (["a", "list"], "is a list and not a text; .* lists of texts belong in a column called pos"),
    ("  \n", "is empty"),
    (7, "is of type int and not a text"),
]


@pytest.mark.parametrize(
    ("suffix", "value", "problem"),
    [
        (suffix, *bad)
        for suffix in ("parquet", "jsonl", "json")
        for bad in BAD
        if suffix == "parquet" or not isinstance(bad[0], bytes)  # JSON has no bytes
    ],
)
def test_what_is_no_text_is_refused_with_its_row(tmp_path, suffix, value, problem):
    kind = type(value) if value is not None else str
    good = {str: "fine", bytes: b"fine", list: ["fine"], int: 3}[kind]
    path = tmp_path / f"pairs.{suffix}"
    if suffix == "parquet":
        write_parquet(path, anchor=["a", "b", "c"], positive=[good, good, value])
    else:
        rows = [{"anchor": "a", "positive": v} for v in (good, good, value)]
        path.write_text(json.dumps(rows) if suffix == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    number = 3 if isinstance(good, str) else 1  # a whole column of the wrong type is wrong from its first row on
    place = f"pairs.{suffix}, {'line' if suffix == 'jsonl' else 'row'} {number}: positive "
    more = "" if number == 3 else ", and 2 more like it"
    first, _, hint = problem.partition("; .* ")
    message = refused(path)
    assert place + first + more in message
    assert hint in message


def test_a_missing_key_and_a_null_split(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"query": "a", "answer": "b"}\n\n{"query": "c"}\n')
    assert "pairs.jsonl, line 3: answer is missing (null)" in refused(path)
    splits = [None, "train", "test"] * 4
    rows = [{"query": f"q{i}", "answer": f"a{i}", "split": split} for i, split in enumerate(splits)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert load_data("texts", path).counts["training pairs"] == 8


def test_empty_fields_are_no_texts(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("query\tanswer\na\tb\n\t\nc\td\n")
    assert "pairs.tsv, line 3: query is empty" in refused(path)


def test_half_a_character_is_refused_before_anything_is_encoded(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"query": "a", "answer": "\\ud83d"}\n')
    assert "line 1: answer holds half of a surrogate pair" in refused(path)


def test_lists_of_positives_become_pairs(tmp_path):
    path = tmp_path / "grouped.jsonl"
    rows = [{"query": f"q{i}", "pos": [f"a{i}", f"b{i}"], "split": "train" if i < 15 else "test"} for i in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    counts = load_data("texts", path).counts
    assert counts == {"training pairs": 30, "test queries": 5, "test references": 10}
    for value, problem in (([], "is an empty list"), (["a", None], "holds a text that is missing (null)")):
        path.write_text(json.dumps({"query": "q", "pos": value}) + "\n")
        assert f"line 1: pos {problem}" in refused(path)


def test_data_sets_of_texts_are_read_as_files_are():
    datasets = pytest.importorskip("datasets")
    rows = {"Question": [q for q, _ in PAIRS], "Answer": [a for _, a in PAIRS]}
    data = from_dataset(datasets.Dataset.from_dict(rows), test_share=0.5)
    assert data.train.queries(torch.tensor([0]), 0)[0].startswith("question")
    for values, problem in (
        ([*rows["Answer"][:-1], None], "dataset, row 40: Answer is missing (null)"),
        ([[answer] for answer in rows["Answer"]], "dataset, row 1: Answer is a list and not a text, and 39 more"),
    ):
        with pytest.raises(ValueError, match=re.escape(problem)):
            from_dataset(datasets.Dataset.from_dict({**rows, "Answer": values}))
