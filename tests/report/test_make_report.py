"""What the page says of what it was given."""

import json
import re

import pytest

from lookalike.report import make_report
from lookalike.training.run_folder import CONFIG
from tests.report.figures.test_search_time import write_benchmark
from tests.report.pages import cells, figures, report

SECTIONS = ["comparison", "comparison-1", "curves", "tracked", "hardness", "analysis", "speed", "gallery", "runs"]


def test_the_page_has_everything_and_needs_nothing(study, tmp_path):
    content, html, parsed = report(
        study / "compare", study / "half", study / "analysis.json", write_benchmark(tmp_path), out=tmp_path / "r.html"
    )
    assert parsed.ids == SECTIONS
    assert content.notices == []
    assert content.missing == []
    assert all(link.startswith(("#", "data:")) for link in parsed.links)
    assert "http" not in html
    assert "<script" not in html
    assert list(figures(html)) == [
        "Recall@1 by sampler",
        "Recall@1 against memory",
        "Recall@1 by epoch",
        "Loss by epoch",
        "Hardest negative in the batch by epoch",
        "Time spent mining by epoch",
        "Bits in use by epoch",
        "Overlap by epoch, lsh:64, hardness 0.5",
        "Positional distance by epoch, lsh:64, hardness 0.5",
        "Recall@1 by hardness",
        "Overlap by bits",
        "Positional distance by bits",
        "Similarity of retrieved negatives",
        "Bound usage by bits",
        "Overlap against speed",
        "Overlap against compression",
        "Search time by size",
    ]


def test_numbers_are_those_of_the_files(study, tmp_path):
    _, html, parsed = report(study / "compare", study / "half", out=tmp_path / "r.html", gallery=False)
    drawn = {title: cells(figure) for title, figure in figures(html).items()}
    *_, random, lsh = json.loads((study / "compare" / "compare.json").read_text())["rows"]
    for row in (random, lsh):
        assert f"{100 * row['recall@1']['mean']:.2f} ±{100 * row['recall@1']['sd']:.2f}" in parsed.text
    last = [json.loads((study / "half" / "metrics.jsonl").read_text().splitlines()[-1])["recall@1"]]
    last += [random["recall@1"]["mean"], lsh["recall@1"]["mean"]]
    assert drawn["Recall@1 by epoch"][0] == ["epoch", "random", "lsh:64, hardness 0.5", "lsh:64, hardness 1"]
    assert drawn["Recall@1 by epoch"][-1] == ["2", *(f"{last[i]:.2%}" for i in (1, 0, 2))]
    assert drawn["Recall@1 by hardness"][1:] == [
        ["lsh:64", "0.5", f"{last[0]:.2%}", "1"],
        ["lsh:64", "1", f"{last[2]:.2%}", "2"],
    ]
    assert drawn["Overlap by epoch, lsh:64, hardness 0.5"][-1] == ["2", "20.00%", "45.00%"]
    assert drawn["Bits in use by epoch"][-1] == ["2", "128"]
    assert f"{lsh['recall@1']['mean']:.1%}" in parsed.text  # a tile, unless random was better
    gain = 100 * (lsh["recall@1"]["mean"] - random["recall@1"]["mean"])
    assert f"{gain:+.1f}" in parsed.text


def test_what_is_missing_is_named_with_its_command(made, tmp_path):
    content, _, parsed = report(made / "half", out=tmp_path / "r.html", gallery=False)
    assert parsed.ids == ["comparison", "curves", "runs", "missing"]
    commands = [command for _, command in content.missing]
    assert [command.split()[1] for command in commands] == ["compare", "train", "train", "analyze", "bench", "report"]
    assert all(command in parsed.text for command in commands)
    content, _, parsed = report(made / "analysis.json", out=tmp_path / "r.html")
    assert parsed.ids == ["analysis", "gallery", "missing"]
    assert "No finished run" in parsed.text


def test_an_unfinished_run_is_shown_as_far_as_it_got(study, tmp_path):
    run = study / "half"
    (run / "result.json").unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines if json.loads(line)["epoch"] < 2))
    content, html, parsed = report(run, out=tmp_path / "r.html")
    assert content.notices == [f"{run} is unfinished, shown up to epoch 1 of 2."]
    assert content.notices[0] in parsed.text
    assert "lsh:64 (epoch 1 of 2)" in parsed.text
    assert len(cells(figures(html)["Recall@1 by epoch"])) == 2
    (run / "metrics.jsonl").unlink()
    content, _, parsed = report(run, out=tmp_path / "r.html")
    assert "has not finished an epoch" in content.notices[0]
    assert "curves" not in parsed.ids


def test_a_comparison_without_its_table_is_a_folder_of_runs(study, tmp_path):
    (study / "compare" / "compare.json").write_text("{")
    content, _, parsed = report(study / "compare", out=tmp_path / "r.html", gallery=False)
    assert "compare.json cannot be read" in content.notices[0]
    (study / "compare" / "compare.json").unlink()
    content, _, parsed = report(study / "compare", study / "compare", out=tmp_path / "r.html", gallery=False)
    assert content.notices == []
    assert len(next(section.runs for section in content.sections if section.id == "runs")) == 4  # once each
    assert re.search(r"random\s*\d+\.\d+ ±\d+", parsed.text)


def test_the_table_of_a_comparison_may_be_called_otherwise(study, tmp_path):
    renamed = (study / "compare" / "compare.json").rename(tmp_path / "compare_own.json")
    content, html, parsed = report(renamed, out=tmp_path / "r.html")
    assert content.notices == []
    assert parsed.ids == ["comparison", "gallery", "missing"]
    assert list(figures(html)) == ["Recall@1 by sampler", "Recall@1 against memory"]


def damaged_line(study):
    file = study / "half" / "metrics.jsonl"
    number = len(file.read_text().splitlines()) + 1
    file.write_text(file.read_text() + '{"epoch": 3, "loss"\n')
    return f"metrics.jsonl, line {number}: the line is damaged; skipped it."


def damaged_result(study):
    (study / "half" / "result.json").write_text("[]")
    return "result.json holds a JSON list instead of an object; showing the run's metrics only."


def damaged_config(study):
    (study / "compare" / "random-seed0" / CONFIG).write_bytes(b"\xff\xfe{")
    return f"{CONFIG} cannot be read"


def damaged_rows(study):
    table = json.loads((study / "compare" / "compare.json").read_text())
    place = next(i for i, row in enumerate(table["rows"]) if row["sampler"] == "random")
    del table["rows"][place]["recall@1"]
    (study / "compare" / "compare.json").write_text(json.dumps(table))
    return f"compare.json, row {place + 1}: recall@1 is missing; skipped the row."


def damaged_histogram(study):
    analysis = json.loads((study / "analysis.json").read_text())
    analysis["histogram"]["exact"].pop()
    (study / "analysis.json").write_text(json.dumps(analysis))
    return "histogram exact is not a list of 10 counts, one per bar; ignored"


def not_numbers(study):
    analysis = json.loads((study / "analysis.json").read_text())
    analysis["rows"][0]["overlap"]["mean"] = float("nan")
    analysis["rows"][1]["bound"] = None
    analysis["rows"][2]["bound"] = {}
    (study / "analysis.json").write_text(json.dumps(analysis))
    return "row 1: overlap mean is not a fraction between 0 and 1; ignored."


@pytest.mark.parametrize(
    "damage", [damaged_line, damaged_result, damaged_config, damaged_rows, damaged_histogram, not_numbers]
)
def test_damage_is_said_and_the_rest_is_shown(study, tmp_path, damage):
    sentence = damage(study)
    content, html, parsed = report(
        study / "compare", study / "half", study / "analysis.json", out=tmp_path / "r.html", gallery=False
    )
    assert len(content.notices) <= 2
    assert sentence in content.notices[0]
    assert content.notices[0] in parsed.text
    assert len(figures(html)) >= 12


def test_text_from_files_is_escaped(study, tmp_path):
    nasty = "<script>alert('x')</script>&\"'"
    for name in (CONFIG, "result.json"):
        content = json.loads((study / "half" / name).read_text())
        (content if name == CONFIG else content["config"])["data"] = nasty
        (study / "half" / name).write_text(json.dumps(content))
    analysis = json.loads((study / "analysis.json").read_text())
    analysis["rows"][0]["method"] = nasty
    (study / "analysis.json").write_text(json.dumps(analysis))
    _, html, parsed = report(study / "half", study / "analysis.json", study / "compare", out=tmp_path / "r.html")
    assert "<script" not in html
    assert nasty in parsed.text


def test_only_reports_are_overwritten(made, tmp_path):
    out = tmp_path / "new" / "r.html"
    report(made / "half", out=out, gallery=False)
    report(made / "half", out=out, gallery=False)
    out.write_text("<p>something else</p>")
    with pytest.raises(ValueError, match=r"r\.html is not a lookalike report: force=True overwrites it"):
        report(made / "half", out=out, gallery=False)
    assert out.read_text() == "<p>something else</p>"
    report(made / "half", out=out, gallery=False, force=True)
    with pytest.raises(ValueError, match="is a folder; name the page with out="):
        make_report([made / "half"], tmp_path)


def test_one_path_needs_no_list_and_paths_may_be_text(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_report(str(made / "analysis.json"))
    assert (tmp_path / "report.html").exists()
    assert make_report(made / "analysis.json", force=True) == make_report([str(made / "analysis.json")])


@pytest.mark.parametrize(
    ("path", "error", "sentence"),
    [
        ("absent", FileNotFoundError, f"absent does not exist; a report needs folders with {CONFIG} (a run), compare"),
        (
            "empty",
            ValueError,
            f"empty holds nothing to report: it has no {CONFIG} (a run), compare.json (a comparison)",
        ),
        ("notes.json", ValueError, "notes.json is not a run, a comparison, an analysis or a search benchmark; skipped"),
        ("broken", ValueError, f"broken/{CONFIG} cannot be read"),
    ],
)
def test_mistakes_are_said_in_one_line(tmp_path, monkeypatch, path, error, sentence):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "broken" / CONFIG).write_text('{"sampler"')
    with pytest.raises(error) as raised:
        make_report(path)
    assert str(raised.value).startswith(sentence)
    assert len(str(raised.value).splitlines()) == 1
    assert not (tmp_path / "report.html").exists()
