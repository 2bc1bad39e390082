"""`lookalike mine` reads tables as training does: it guesses no columns, and says where a table is wrong."""

import json

import pytest

from tests.data.miniatures import write_csv, write_parquet

PAIRS = [(f"question {i}", f"answer {i}") for i in range(40)]


@pytest.fixture
def mine(run_here, tmp_path):
    """Run `lookalike mine` until it loads a model, which is not there: what it printed, and its error."""
    (tmp_path / "no-model").mkdir()

    def until_the_model(*arguments):
        more = ("--model", tmp_path / "no-model", "--output", "mined.jsonl")
        code, out, err = run_here("mine", *arguments, *more)
        assert code == 2
        return out, err

    return until_the_model


@pytest.fixture
def pairs(tmp_path):
    return write_csv(tmp_path / "pairs.csv", ("query", "answer"), PAIRS)


def test_columns_are_named_and_never_guessed(tmp_path, mine):
    path = write_csv(tmp_path / "claim_evid.csv", ("claim", "evidence"), PAIRS)
    message = mine(path)[1]
    assert "has the columns claim, evidence: no known pair" in message
    assert "claim,evidence" in message
    assert "40 pairs from the columns claim and evidence." in mine(path, "--columns", "claim,evidence")[0]
    several = write_csv(tmp_path / "several.csv", ("query", "answer", "passage"), [(q, a, a) for q, a in PAIRS])
    assert "several to choose from (answer, passage)" in mine(several)[1]


def test_a_file_without_a_header(tmp_path, mine):
    path = write_csv(tmp_path / "plain.tsv", PAIRS[0], PAIRS[1:], "\t")
    assert "if the first line is already a pair" in mine(path)[1]
    assert "40 pairs from the columns 1 and 2 (no header)." in mine(path, "--no-header")[0]
    three = write_csv(tmp_path / "three.tsv", ("a", "b", "c"), [("d", "e", "f")], "\t")
    assert "has 3 columns; say which two" in mine(three, "--no-header")[1]


def test_tables_that_are_wrong(tmp_path, mine):
    null = write_parquet(tmp_path / "null.parquet", anchor=["a", "b", "c"], positive=["d", "e", None])
    assert "null.parquet, row 3: positive is missing (null)" in mine(null)[1]
    number = tmp_path / "number.jsonl"
    number.write_text('{"anchor": "a", "positive": "b"}\n\n{"anchor": "a", "positive": 7}\n')
    assert "number.jsonl, line 3: positive is of type int and not a text" in mine(number)[1]
    deep = tmp_path / "deep.jsonl"
    deep.write_text("[" * 100_000)
    assert "deep.jsonl, line 1 is not a table: its JSON is nested too deeply" in mine(deep)[1]
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps({"query": "a", "answer": "b"}, indent=1))
    assert "whole.json is one JSON value over several lines" in mine(whole)[1]
    mac = tmp_path / "mac.tsv"
    mac.write_bytes(b"query\tanswer\ra\tb\r")
    assert r"mac.tsv ends its lines with carriage returns (\r) alone" in mine(mac)[1]
    blank = tmp_path / "blank.tsv"
    blank.write_text("query\tanswer\na\tb\n\t\nc\td\n")
    assert "blank.tsv, line 3: query is empty" in mine(blank)[1]
    broken = tmp_path / "broken.csv"
    broken.write_bytes(b"query,answer\na,b\nc\xe9,d\n")
    assert "broken.csv, line 3 is not UTF-8 (byte 0xe9)" in mine(broken)[1]


def test_a_byte_order_mark_and_lists_of_positives(tmp_path, mine):
    path = write_csv(tmp_path / "marked.csv", ("Question", "Answer"), PAIRS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert "40 pairs from the columns Question and Answer." in mine(path)[0]
    grouped = tmp_path / "grouped.jsonl"
    rows = [{"query": f"q{i}", "pos": [f"a{i}", f"b{i}"]} for i in range(20)]
    grouped.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "40 pairs from the columns query and pos." in mine(grouped)[0]


def test_a_corpus_splits_on_newlines_only(tmp_path, mine, pairs):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("one\x0bline\nanother\u2028line\r\n\n \x85 third\x1cline\n", newline="")
    assert "40 queries, 43 texts to search." in mine(pairs, "--corpus", corpus)[0]
    corpus.write_bytes(b"one\rline\ntwo\r\n")
    assert "42 texts to search" in mine(pairs, "--corpus", corpus)[0]
    corpus.write_bytes(b"one\rtwo\r")
    assert "corpus.txt ends its lines with carriage returns" in mine(pairs, "--corpus", corpus)[1]
    corpus.write_bytes(b"query\na\nc\xe9\n")
    assert "corpus.txt, line 3 is not UTF-8 (byte 0xe9)" in mine(pairs, "--corpus", corpus)[1]


@pytest.mark.parametrize("content", ["", "\n \n\t\n"])
def test_an_empty_corpus_is_refused(tmp_path, mine, pairs, content):
    (tmp_path / "empty.txt").write_text(content)
    assert "empty.txt holds no texts" in mine(pairs, "--corpus", "empty.txt")[1]


def test_the_column_of_a_corpus_is_known_or_named(tmp_path, mine, pairs):
    texts = [(str(i), f"passage {i}") for i in range(5)]
    headed = write_csv(tmp_path / "headed.tsv", ("id", "text"), texts, "\t")
    plain = write_csv(tmp_path / "collection.tsv", texts[0], texts[1:], "\t")
    assert "45 texts to search" in mine(pairs, "--corpus", headed)[0]
    message = mine(pairs, "--corpus", plain)[1]
    assert "collection.tsv has no known column, but 0, 'passage 0'" in message
    assert "--corpus-column 2" in message
    assert "--no-corpus-header" in message
    shown = mine(pairs, "--corpus", plain, "--corpus-column", "2", "--no-corpus-header")[0]
    assert "45 texts to search" in shown
    for column in ("Text", " TEXT "):
        assert "45 texts to search" in mine(pairs, "--corpus", headed, "--corpus-column", column)[0]
    one = write_csv(tmp_path / "one.csv", ("a passage",), [("another",)])
    assert "--no-corpus-header" in mine(pairs, "--corpus", one)[1]
    assert "42 texts to search" in mine(pairs, "--corpus", one, "--no-corpus-header")[0]
    message = mine(pairs, "--corpus", plain, "--corpus-column", "text", "--no-corpus-header")[1]
    assert "has no column 'text', but 1, 2" in message
    assert "--corpus-column belongs to --corpus" in mine(pairs, "--corpus-column", "2")[1]
