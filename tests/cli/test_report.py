"""`lookalike report` prints what the page leaves out and where it is."""

import json
import re

ANALYSIS = {"rows": [{"method": "lsh", "bits": 128, "overlap": {"mean": 0.5}}, {"method": "lsh"}]}


def test_as_typed(run_here, tmp_path):
    (tmp_path / "analysis.json").write_text(json.dumps(ANALYSIS))
    code, output, errors = run_here("report", "analysis.json", "--no-gallery")
    assert (code, errors) == (0, "")
    assert "analysis.json, row 2: bits is missing; skipped the row." in output
    assert "Missing: Overlap and positional distance by epoch (lookalike train DATA --track-overlap)" in output
    assert re.search(r"^Written: report\.html \(\d+ kB\)$", output, re.MULTILINE)
    assert (tmp_path / "report.html").exists()


def test_a_mistake_is_one_line(run_here, tmp_path):
    code, _, errors = run_here("report", "absent")
    assert code == 2
    assert errors.startswith("lookalike: absent does not exist; a report needs folders with")
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


def test_errors_name_options(run_here, tmp_path):
    (tmp_path / "analysis.json").write_text(json.dumps(ANALYSIS))
    (tmp_path / "notes.html").write_text("<p>mine</p>")
    code, _, errors = run_here("report", "analysis.json", "--out", "notes.html")
    assert code == 2
    assert errors == (
        "lookalike: notes.html is not a lookalike report: --force overwrites it, --out chooses another page.\n"
    )
