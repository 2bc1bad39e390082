"""Tables of texts: one reader for training and for mining, which guesses nothing and says where a table is wrong."""

import csv
import json
import re

import pytest
import torch
from typer.testing import CliRunner

import lookalike.cli.mine
import lookalike.cli.train  # noqa: F401 - declares the commands
from lookalike.cli.app import app
from lookalike.data import load_data
from lookalike.data.check import check_data
from lookalike.data.huggingface import from_dataset
from lookalike.mining import command

PAIRS = [(f"question {i}", f"answer {i}") for i in range(40)]


def trained(path, **options):
    """Return the pairs that training reads from a file, and what it says of them."""
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


def mine(*arguments):
    """Run `lookalike mine` until it loads a model, which does not exist: what it printed, and what it raised."""
    more = ("--model", "nowhere", "--output", "mined.jsonl")
    shown = CliRunner().invoke(app, ["mine", *map(str, arguments), *more])
    return shown.output, str(shown.exception)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def without_models(monkeypatch):
    def load(name, *_):
        raise ValueError(f"there is no model {name}.")

    monkeypatch.setattr(command, "load_model", load)


def write(path, rows, separator=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=separator).writerows(rows)
    return path


def write_parquet(path, **columns):
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns), path)
    return path


def test_a_header_is_never_taken_for_a_pair(tmp_path):
    path = write(tmp_path / "claim_evid.csv", [("claim", "evidence"), *PAIRS])
    for message in (refused(path), mine(path)[1]):
        assert "has the columns claim, evidence: no known pair" in message
    assert "columns=claim,evidence (--data-option columns=claim,evidence" in refused(path)
    assert "header=False (--data-option header=false" in refused(path)
    assert "--columns claim,evidence, or say --no-header if the first line is a pair already" in mine(path)[1]
    for columns in ("claim,evidence", ("claim", "evidence"), ["claim", "evidence"], " Claim , Evidence"):
        pairs, description = trained(path, columns=columns)
        assert pairs == PAIRS
        assert description.startswith("columns claim and evidence of claim_evid.csv: ")
    shown, error = mine(path, "--columns", "claim,evidence")
    assert "40 pairs from the columns claim and evidence." in shown
    assert error == "there is no model nowhere."


def test_columns_are_not_guessed_by_their_place(tmp_path):
    path = write(tmp_path / "three.csv", [("id", "title", "text"), *((i, *pair) for i, pair in enumerate(PAIRS))])
    for message in (refused(path), mine(path)[1]):
        assert "has the columns id, title, text: no known pair of queries and answers" in message
    assert trained(path, columns="title,text")[0] == PAIRS
    several = write(tmp_path / "several.csv", [("query", "answer", "passage"), *((q, a, a) for q, a in PAIRS)])
    for message in (refused(several), mine(several)[1]):
        assert "several to choose from (answer, passage)" in message
    one = tmp_path / "semicolons.csv"
    one.write_text("query;answer\na;b\n")
    assert "has one column, 'query;answer'; fields of a .csv file are separated by commas" in refused(one)
    for columns in ("title", "title,title", "a,b,c", {"query": "title"}, 7):
        assert "columns must name two columns" in refused(path, columns=columns)
    assert "has no column 'body', but id, title, text" in refused(path, columns="title,body")


def test_a_file_without_a_header(tmp_path):
    path = write(tmp_path / "plain.tsv", PAIRS, "\t")
    assert "has the columns 'question 0', 'answer 0'" in refused(path)
    assert "say header=False" in refused(path)
    assert "say --no-header if the first line is a pair already" in mine(path)[1]
    pairs, description = trained(path, header=False)
    assert pairs == PAIRS
    assert description.startswith("columns 1 and 2 of plain.tsv: ")
    assert "40 pairs from the columns 1 and 2 (no header)." in mine(path, "--no-header")[0]
    three = write(tmp_path / "three.tsv", [(q, i, a) for i, (q, a) in enumerate(PAIRS)], "\t")
    assert "has 3 columns; say which two" in refused(three, header=False)
    assert "as in --columns 1,2" in mine(three, "--no-header")[1]
    assert trained(three, header=False, columns="1,3")[0] == PAIRS
    assert "header must be true or false, got 'no'" in refused(path, header="no")
    lines = tmp_path / "pairs.jsonl"
    lines.write_text("{}\n")
    assert "only .csv and .tsv files come without a header" in refused(lines, header=False)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json"])
def test_a_byte_order_mark_is_skipped(tmp_path, suffix):
    path = tmp_path / f"pairs.{suffix}"
    if suffix in ("csv", "tsv"):
        write(path, [("Question", "Answer"), *PAIRS], "," if suffix == "csv" else "\t")
    else:
        rows = [{"Question": q, "Answer": a} for q, a in PAIRS]
        path.write_text(json.dumps(rows) if suffix == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert trained(path)[0] == PAIRS
    assert "40 pairs from the columns Question and Answer." in mine(path)[0]


BAD = [
    (None, "is missing (null)"),
    (b"bytes", "is bytes and not a text"),
    (["a", "list"], "is a list and not a text; .* lists of texts belong in a column called pos"),
    ("  \n", "is empty"),
    (7, "is of type int and not a text"),
]


@pytest.mark.parametrize(("value", "problem"), BAD)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "json"])
def test_what_is_no_text_is_refused_with_its_row(tmp_path, value, problem, suffix):
    if isinstance(value, bytes) and suffix != "parquet":
        pytest.skip("JSON has no bytes")
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
    for message in (refused(path), mine(path)[1]):
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


def test_half_a_character_is_refused_before_anything_is_encoded(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"query": "a", "answer": "\\ud83d"}\n')
    assert "line 1: answer holds half of a surrogate pair" in refused(path)


def test_lists_of_positives_become_pairs_for_training_as_for_mining(tmp_path):
    path = tmp_path / "grouped.jsonl"
    rows = [{"query": f"q{i}", "pos": [f"a{i}", f"b{i}"], "split": "train" if i < 15 else "test"} for i in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    counts = load_data("texts", path).counts
    assert counts == {"training pairs": 30, "test queries": 5, "test references": 10}
    assert "40 pairs from the columns query and pos." in mine(path)[0]
    for value, problem in (([], "is an empty list"), (["a", None], "holds a text that is missing (null)")):
        path.write_text(json.dumps({"query": "q", "pos": value}) + "\n")
        assert f"line 1: pos {problem}" in refused(path)


@pytest.mark.parametrize("opened", ["[", '{"query": '])
@pytest.mark.parametrize(("suffix", "place"), [("json", ""), ("jsonl", ", line 1")])
def test_json_that_is_nested_too_deeply_is_refused(tmp_path, opened, suffix, place):
    path = tmp_path / f"deep.{suffix}"
    path.write_text(opened * 100_000)
    whole = "" if opened == "[" else ", line 1"  # a .json file that is no array has an object per line
    for message in (refused(path), mine(path)[1]):
        assert f"deep.{suffix}{place or whole} is not a table: its JSON is nested too deeply" in message


@pytest.mark.parametrize("value", [{"data": [{"query": "a", "answer": "b"}]}, {"query": "a", "answer": "b"}])
def test_json_that_is_no_table_is_not_called_broken(tmp_path, value):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(value, indent=1))
    for message in (refused(path), mine(path)[1]):
        assert "pairs.json is one JSON value over several lines; a .json file must be an array of objects" in message
    path.write_text('{"query": "a", "answer": "b"}\n{"query": \n')
    assert "pairs.json, line 2 is not JSON" in refused(path)


@pytest.mark.parametrize(("suffix", "separator"), [("tsv", "\t"), ("csv", ",")])
def test_lines_that_end_with_carriage_returns_alone(tmp_path, suffix, separator):
    path = tmp_path / f"mac.{suffix}"
    rows = [("query", "answer"), *PAIRS]
    path.write_text("".join(f"{q}{separator}{a}\r" for q, a in rows), newline="")
    if suffix == "csv":
        assert trained(path)[0] == PAIRS
    else:
        for message in (refused(path), mine(path)[1]):
            assert message.endswith(
                r"mac.tsv ends its lines with carriage returns (\r) alone; save it with \n line ends."
            )
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(b"one\rtwo\r")
    pairs = write(tmp_path / "pairs.csv", rows)
    assert "corpus.txt ends its lines with carriage returns" in mine(pairs, "--corpus", corpus)[1]
    corpus.write_bytes(b"one\rline\ntwo\r\n")
    assert "42 texts to search" in mine(pairs, "--corpus", corpus)[0]


def test_long_fields_are_read_and_the_limit_of_other_code_stays(tmp_path):
    limit = csv.field_size_limit()
    long = [(f"question {i}", f"answer {i} " + "x" * 200_000) for i in range(10)]
    path = write(tmp_path / "long.csv", [("query", "answer"), *long])
    assert trained(path)[0] == long
    assert csv.field_size_limit() == limit


def test_rows_with_other_numbers_of_fields_are_refused(tmp_path):
    path = tmp_path / "ragged.csv"
    path.write_text('query,answer\n"a",b\n"two\nlines",c\na,b, and more\n')
    assert "ragged.csv, line 5 has 3 fields where the first line has 2; quote texts that contain a comma" in refused(
        path
    )
    path.write_text('query,answer\na,"never closed\nb,c\n')
    assert "ragged.csv, line 2 cannot be read as CSV" in refused(path)
    path.write_text("query,answer,answer\na,b,c\n")
    assert "several to choose from (answer, answer)" in refused(path)
    assert "has 2 columns called 'answer'; rename one" in refused(path, columns="query,answer")
    path.write_text("query,answer\n")
    assert "has a header and no rows" in refused(path)
    path.write_text("")
    assert "is empty" in refused(path)


def test_only_lines_without_anything_are_no_rows_of_a_tsv(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("query\tanswer\na\tb\n\t\nc\td\n")
    for message in (refused(path), mine(path)[1]):
        assert "pairs.tsv, line 3: query is empty" in message
    path.write_text("query\tanswer\n \na\tb\n")
    assert "pairs.tsv, line 2 has 1 fields where the first line has 2" in refused(path)
    path.write_text("query\tanswer\r\n\r\na\tb\r\n\nc\td\n\n", newline="")
    assert trained(path)[0] == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "txt"])
def test_broken_utf8_names_file_and_line(tmp_path, suffix):
    path = tmp_path / f"pairs.{suffix}"
    path.write_bytes(b"query\tanswer\na\tb\nc\xe9\td\n")
    if suffix == "txt":
        good = write(tmp_path / "good.csv", [("query", "answer"), *PAIRS])
        messages = [mine(good, "--corpus", path)[1]]
    else:
        messages = [refused(path), mine(path)[1]] if suffix in ("csv", "tsv") else []
    if suffix in ("jsonl", "json"):
        path.write_bytes(b'{"query": "a", "answer": "b"}\n\n{"query": "c\xe9", "answer": "d"}\n')
        messages = [refused(path), mine(path)[1]]
    for message in messages:
        assert f"pairs.{suffix}, line 3 is not UTF-8 (byte 0xe9); save the file as UTF-8" in message


def test_a_corpus_splits_on_newlines_only(tmp_path):
    pairs = write(tmp_path / "pairs.csv", [("query", "answer"), *PAIRS])
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("one\x0bline\nanother\u2028line\r\n\n \x85 third\x1cline\n", newline="")
    assert "40 queries, 43 texts to search." in mine(pairs, "--corpus", corpus)[0]


@pytest.mark.parametrize("content", ["", "\n \n\t\n"])
def test_an_empty_corpus_is_refused(tmp_path, content):
    pairs = write(tmp_path / "pairs.csv", [("query", "answer"), *PAIRS])
    (tmp_path / "empty.txt").write_text(content)
    assert "empty.txt holds no texts; --corpus takes one text per line." in mine(pairs, "--corpus", "empty.txt")[1]


def test_the_column_of_a_corpus_is_known_or_named(tmp_path):
    pairs = write(tmp_path / "pairs.csv", [("query", "answer"), *PAIRS])
    texts = [(str(i), f"passage {i}") for i in range(5)]
    headed = write(tmp_path / "headed.tsv", [("id", "text"), *texts], "\t")
    plain = write(tmp_path / "collection.tsv", texts, "\t")
    assert "45 texts to search" in mine(pairs, "--corpus", headed)[0]
    message = mine(pairs, "--corpus", plain)[1]
    assert "collection.tsv has no known column, but 0, 'passage 0'; --corpus-column says which" in message
    assert "--corpus-column 2 --no-corpus-header if its first line holds data" in message
    shown = mine(pairs, "--corpus", plain, "--corpus-column", "2", "--no-corpus-header")[0]
    assert "45 texts to search" in shown
    for column in ("Text", " TEXT "):
        assert "45 texts to search" in mine(pairs, "--corpus", headed, "--corpus-column", column)[0]
    one = write(tmp_path / "one.csv", [("a passage",), ("another",)])
    message = mine(pairs, "--corpus", one)[1]
    assert message.endswith("which one holds the texts, or --no-corpus-header if its first line holds data.")
    assert "42 texts to search" in mine(pairs, "--corpus", one, "--no-corpus-header")[0]
    message = mine(pairs, "--corpus", plain, "--corpus-column", "text", "--no-corpus-header")[1]
    assert message.endswith("has no column 'text', but 1, 2; --corpus-column says which one holds the texts.")
    assert "--corpus-column belongs to --corpus" in mine(pairs, "--corpus-column", "2")[1]


def test_checking_takes_the_options_of_the_reader(tmp_path, run_here):
    path = write(tmp_path / "claim_evid.csv", [("claim", "evidence"), *PAIRS])
    assert "claim, evidence" in run_here("data", "check", "texts", path)[2]
    code, out, _ = run_here("data", "check", "texts", path, "--data-option", "columns=claim,evidence")
    assert code == 0
    assert out.startswith("Columns claim and evidence of claim_evid.csv: ")
    assert check_data("texts", path, columns=("claim", "evidence")).complete


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


def test_images_of_a_table_need_their_values(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"path": "a.png", "label": 1, "note": null}\n{"path": null, "label": 2, "note": "x"}\n')
    with pytest.raises(ValueError, match=r"own.jsonl, line 2 has no 'path'"):
        load_data("table", path)
    with pytest.raises(
        TypeError, match=r"columns must say what each column is called, as in .'path': 'file'., got 'a,b'"
    ):
        load_data("table", path, columns="a,b")
