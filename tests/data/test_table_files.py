"""Tables from files: what is read, and where a table is wrong."""

import csv
import json
import sys

import pytest

from lookalike.data.table_files import read_lines, read_table
from tests.data.miniatures import write_csv, write_parquet

PAIRS = [(f"question {i}", f"answer {i}") for i in range(40)]


def pairs_in(path, **options):
    table = read_table(path, **options)
    return list(zip(*(table.values(name) for name in table.names), strict=True))


def refused(path, **options):
    with pytest.raises(ValueError, match=r"\.$") as caught:
        read_table(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json"])
def test_a_byte_order_mark_is_skipped(tmp_path, suffix):
    path = tmp_path / f"pairs.{suffix}"
    if suffix in ("csv", "tsv"):
        write_csv(path, ("Question", "Answer"), PAIRS, "," if suffix == "csv" else "\t")
    else:
        rows = [{"Question": q, "Answer": a} for q, a in PAIRS]
        path.write_text(json.dumps(rows) if suffix == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert pairs_in(path) == PAIRS


def test_parquet(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "pairs.parquet", query=["a", None], answer=["b", "c"])
    table = read_table(path)
    assert table.column("query") == ["a", None]
    with pytest.raises(ValueError, match=r"pairs.parquet, row 2 has no 'query'; add it or remove the row"):
        table.values("query")
    path.write_bytes(path.read_bytes()[:-20])
    assert "pairs.parquet cannot be read as Parquet" in refused(path)
    write_parquet(path, query=[])
    assert "has no rows" in refused(path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"reading parquet needs pyarrow: pip install 'lookalike\[tables\]'"):
        read_table(path)


def test_a_file_without_a_header(tmp_path):
    path = tmp_path / "plain.tsv"
    path.write_text("".join(f"{q}\t{a}\n" for q, a in PAIRS))
    table = read_table(path, header=False)
    assert (table.names, table.header) == (["1", "2"], False)
    assert pairs_in(path, header=False) == PAIRS
    lines = tmp_path / "pairs.jsonl"
    lines.write_text("{}\n")
    assert "only .csv and .tsv files can lack a header" in refused(lines, header=False)


@pytest.mark.parametrize("opened", ["[", '{"query": '])
@pytest.mark.parametrize(("suffix", "place"), [("json", ""), ("jsonl", ", line 1")])
def test_json_that_is_nested_too_deeply(tmp_path, opened, suffix, place):
    path = tmp_path / f"deep.{suffix}"
    path.write_text(opened * 100_000)
    whole = "" if opened == "[" else ", line 1"  # a .json file that is no array has an object per line
    assert f"deep.{suffix}{place or whole} is not a table: its JSON is nested too deeply" in refused(path)


@pytest.mark.parametrize("value", [{"data": [{"query": "a", "answer": "b"}]}, {"query": "a", "answer": "b"}])
def test_json_that_is_no_table_is_not_called_broken(tmp_path, value):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(value, indent=1))
    assert "pairs.json is one JSON value over several lines; a .json file must be an array of objects" in refused(path)
    path.write_text('{"query": "a", "answer": "b"}\n{"query": \n')
    assert "pairs.json, line 2 is not JSON" in refused(path)
    path.write_text('[{"query": "a"}, 7]')
    assert "pairs.json, row 2: expected an object, got 7" in refused(path)


@pytest.mark.parametrize(("suffix", "separator"), [("tsv", "\t"), ("csv", ",")])
def test_lines_that_end_with_carriage_returns_alone(tmp_path, suffix, separator):
    path = tmp_path / f"mac.{suffix}"
    rows = [("query", "answer"), *PAIRS]
    path.write_text("".join(f"{q}{separator}{a}\r" for q, a in rows), newline="")
    if suffix == "csv":
        assert pairs_in(path) == PAIRS
    else:
        end = r"mac.tsv ends its lines with carriage returns (\r) alone; save it with \n line ends."
        assert refused(path).endswith(end)


def test_lines_end_at_newlines_only(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("one\x0bline\nanother\u2028line\r\n\n \x85 third\x1cline\n", newline="")
    assert list(read_lines(path)) == [(1, "one\x0bline"), (2, "another\u2028line"), (4, " \x85 third\x1cline")]
    path.write_bytes(b"one\rline\ntwo\r\n")
    assert list(read_lines(path)) == [(1, "one\rline"), (2, "two")]
    path.write_bytes(b"one\rtwo\r")
    with pytest.raises(ValueError, match=r"lines.txt ends its lines with carriage returns"):
        list(read_lines(path))


def test_long_fields_are_read_and_the_limit_of_other_code_stays(tmp_path):
    limit = csv.field_size_limit()
    long = [(f"question {i}", f"answer {i} " + "x" * 200_000) for i in range(10)]
    assert pairs_in(write_csv(tmp_path / "long.csv", ("query", "answer"), long)) == long
    assert csv.field_size_limit() == limit


def test_rows_with_other_numbers_of_fields_are_refused(tmp_path):
    path = tmp_path / "ragged.csv"
    path.write_text('query,answer\n"a",b\n"two\nlines",c\na,b, and more\n')
    expected = "ragged.csv, line 5 has 3 fields where the first line has 2; quote texts that contain a comma"
    assert expected in refused(path)
    path.write_text('query,answer\na,"never closed\nb,c\n')
    assert "ragged.csv, line 2 cannot be read as CSV" in refused(path)
    path.write_text("query,answer\n")
    assert "has a header and no rows" in refused(path)
    path.write_text("")
    assert "is empty" in refused(path)


def test_columns_with_the_same_name(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text("query,answer,answer\na,b,c\n")
    with pytest.raises(ValueError, match="has 2 columns called 'answer'; rename one"):
        read_table(path).column("answer")


def test_only_lines_without_anything_are_no_rows_of_a_tsv(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("query\tanswer\na\tb\n\t\nc\td\n")
    assert pairs_in(path) == [("a", "b"), ("", ""), ("c", "d")]
    path.write_text("query\tanswer\n \na\tb\n")
    assert "pairs.tsv, line 2 has 1 fields where the first line has 2" in refused(path)
    path.write_text("query\tanswer\r\n\r\na\tb\r\n\nc\td\n\n", newline="")
    assert pairs_in(path) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json"])
def test_broken_utf8_names_file_and_line(tmp_path, suffix):
    path = tmp_path / f"pairs.{suffix}"
    if suffix in ("csv", "tsv"):
        path.write_bytes(b"query\tanswer\na\tb\nc\xe9\td\n")
    else:
        path.write_bytes(b'{"query": "a", "answer": "b"}\n\n{"query": "c\xe9", "answer": "d"}\n')
    assert f"pairs.{suffix}, line 3 is not UTF-8 (byte 0xe9); save the file as UTF-8" in refused(path)
