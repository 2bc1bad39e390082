"""The tables and the figure of codes of several bits are made from results."""

import pytest

from benchmarks import code_tables
from benchmarks.overlap_figure import STYLES, draw

SIZES = (16, 64)
DATA = ("medquad", "emoji")


def a_result():
    kinds = [*STYLES, ("signs, half centred", "code")]
    rows = [
        {
            "data": data,
            "bytes": size,
            "kind": kind,
            "query": query,
            "overlap": 0.5 + size / 1000,
            "standard_error": 0.004,
        }
        for data in DATA
        for size in SIZES
        for kind, query in kinds
    ]
    errors = [
        {"data": data, "bytes": size, "query": query, "error": 0.0312, "predicted": 0.0298}
        for data in DATA
        for size in SIZES
        for query in ("code", "float")
    ]
    data = [{"data": name, "title": f"title of {name}", "encoder": "MiniLM", "n": 30_000, "dim": 384} for name in DATA]
    settings = {"k": 128, "queries": 2000, "faiss": "1.15.1"}
    return {"settings": settings, "data": data, "overlap": rows, "errors": errors}


@pytest.fixture
def result(monkeypatch):
    made = a_result()
    monkeypatch.setattr(code_tables.record, "read", {"overlap": made}.__getitem__)
    return made


@pytest.mark.usefixtures("result")
def test_tables_show_every_kind_of_code():
    lines = code_tables.TABLES["overlap"]().splitlines()
    assert lines[0] == "| code | query | medquad | emoji |"
    assert lines[2] == "| several bits | floats | 52 / 56 | 52 / 56 |"
    assert len(lines) == 2 + len(STYLES) + 1 + 2
    assert "at 16 and 64 bytes per vector" in lines[-1]
    assert "standard error at most 0.4" in lines[-1]
    lines = code_tables.TABLES["overlap_errors"]().splitlines()
    assert lines[0] == "| data | query | 16 bytes | 64 bytes |"
    assert lines[2] == "| medquad | code | 0.0312 (0.0298) | 0.0312 (0.0298) |"


def test_the_figure_has_a_panel_for_each_data_set(result, tmp_path):
    draw(tmp_path / "overlap.svg", result)
    drawn = (tmp_path / "overlap.svg").read_text()
    assert all(text in drawn for text in ("Title of medquad", "Title of emoji", "FAISS RaBitQ, queries as floats"))
    assert drawn.count("bytes per vector") == len(DATA)
