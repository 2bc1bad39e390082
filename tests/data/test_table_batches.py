"""Tables that are read in batches hold the rows, names and places of tables that are read whole."""

import json

import pytest

from lookalike.data.table_batches import glimpse, read_batches
from lookalike.data.table_files import read_table
from tests.data.miniatures import write_csv, write_parquet

ROWS = [(f"question {i}", f"answer, {i}") for i in range(10)]


def write(folder, kind):
    path = folder / f"pairs{kind.removeprefix('lines')}"
    if kind in (".csv", ".tsv"):
        return write_csv(path, ("query", "answer"), ROWS, "\t" if kind == ".tsv" else ",")
    if kind == ".parquet":
        return write_parquet(path, query=[q for q, _ in ROWS], answer=[a for _, a in ROWS])
    objects = [{"query": q, "answer": a} for q, a in ROWS]
    if kind == ".json":
        path.write_text(json.dumps(objects))
    else:
        path.write_text("\n\n".join(map(json.dumps, objects)))
    return path


@pytest.mark.parametrize("rows", [1, 3, 10, 99])
@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet", ".json", ".jsonl", "lines.json"])
def test_batches_are_the_table_in_parts(tmp_path, kind, rows):
    path = write(tmp_path, kind)
    whole, parts = read_table(path), list(read_batches(path, rows=rows))
    assert len(parts) == -(-10 // rows)
    for name in whole.names:
        assert [value for part in parts for value in part.column(name)] == list(whole.column(name))
    places = [part.place(i) for part in parts for i in range(len(part.column("query")))]
    assert places == [whole.place(i) for i in range(10)]
    for part in (*parts, glimpse(path)):
        assert (list(part.names), part.header, part.separated) == (list(whole.names), whole.header, whole.separated)


def test_a_table_without_a_header(tmp_path):
    path = write_csv(tmp_path / "plain.csv", ROWS[0], ROWS[1:])
    parts = list(read_batches(path, header=False, rows=4))
    assert [value for part in parts for value in part.column("2")] == [a for _, a in ROWS]
    assert parts[1].place(0) == f"{path}, line 5"
    with pytest.raises(ValueError, match="names its columns itself"):
        glimpse(write(tmp_path, ".parquet"), header=False)


@pytest.mark.parametrize(("name", "content"), [("a.csv", ""), ("a.tsv", "a\tb\n"), ("a.jsonl", "\n"), ("a.json", "[]")])
def test_a_table_without_rows_has_no_batches(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    assert glimpse(path) is None
    assert list(read_batches(path)) == []


def test_errors_name_the_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n' * 5 + "[1]\n")
    batches = read_batches(path, rows=2)
    assert len([next(batches), next(batches)]) == 2
    with pytest.raises(ValueError, match=r"a\.jsonl, line 6: expected an object, got \[1\]"):
        list(batches)
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" * 5 + "c\n")
    with pytest.raises(ValueError, match=r"a\.csv, line 6 has 1 fields where the first line has 2"):
        list(read_batches(path, rows=2))
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read as Parquet"):
        list(read_batches(path))
