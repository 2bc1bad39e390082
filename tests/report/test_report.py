"""What the page says of what it was given."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from lookalike.report import make_report
from lookalike.report.sources import CONFIG
from tests.report.test_speed import write_benchmark

SECTIONS = ["comparison", "comparison-1", "curves", "tracked", "hardness", "analysis", "speed", "gallery", "runs"]


class Parsed(HTMLParser):
    """Checks that tags are balanced, and collects ids, sources and text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.ids, self.links, self.text = [], [], [], ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        self.ids += [names["id"]] if "id" in names and tag == "section" else []
        self.links += [names[name] for name in ("src", "href", "xlink:href") if name in names]
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if not self.open or self.open[-1] != "style" else ""


def report(*paths, out, **options):
    content = make_report(paths, out, **options)
    html = out.read_text()
    return content, html, Parsed(html)


def figures(html):
    """Title -> rows of the numbers behind it."""
    found = {}
    for figure in re.findall(r"<figure>.*?</figure>", html):
        ET.fromstring(re.search(r"<svg.*</svg>", figure)[0])  # well-formed
        assert re.search(r'<svg [^>]*role="img" aria-label="[^"]{20,}"><title>', figure)
        assert "nan" not in figure.lower().replace("dominan", "")
        rows = re.findall(r"<tr>(.*?)</tr>", figure)
        found[re.search("<h3>(.*?)</h3>", figure)[1]] = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
    return found


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
        "Similarity of what is retrieved",
        "Bound usage by bits",
        "Overlap against speed",
        "Overlap against compression",
        "Search time by size",
    ]


def test_numbers_are_those_of_the_files(study, tmp_path):
    _, html, parsed = report(study / "compare", study / "half", out=tmp_path / "r.html", gallery=False)
    drawn = figures(html)
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
    assert "no finished run" in parsed.text


def test_an_unfinished_run_is_shown_as_far_as_it_got(study, tmp_path):
    run = study / "half"
    (run / "result.json").unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines if json.loads(line)["epoch"] < 2))
    content, html, parsed = report(run, out=tmp_path / "r.html")
    assert content.notices == [f"{run} is not finished and shown as far as it got, epoch 1 of 2."]
    assert content.notices[0] in parsed.text
    assert "lsh:64 (epoch 1 of 2)" in parsed.text
    assert len(figures(html)["Recall@1 by epoch"]) == 2
    (run / "metrics.jsonl").unlink()
    content, _, parsed = report(run, out=tmp_path / "r.html")
    assert "no epoch is finished" in content.notices[0]
    assert "curves" not in parsed.ids


def test_a_comparison_without_its_table_is_a_folder_of_runs(study, tmp_path):
    (study / "compare" / "compare.json").write_text("{")
    content, _, parsed = report(study / "compare", out=tmp_path / "r.html", gallery=False)
    assert "compare.json cannot be read" in content.notices[0]
    (study / "compare" / "compare.json").unlink()
    content, _, parsed = report(study / "compare", study / "compare", out=tmp_path / "r.html", gallery=False)
    assert content.notices == []
    assert len(content.sources.runs) == 4  # once each
    assert re.search(r"random\d+\.\d+ ±\d+", parsed.text)


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
    return f"metrics.jsonl, line {number}: the line is damaged and left out."


def damaged_result(study):
    (study / "half" / "result.json").write_text("[]")
    return "result.json holds list, not an object: the run is shown as far as its metrics go."


def damaged_config(study):
    (study / "compare" / "random-seed0" / CONFIG).write_bytes(b"\xff\xfe{")
    return f"{CONFIG} cannot be read"


def damaged_rows(study):
    table = json.loads((study / "compare" / "compare.json").read_text())
    place = next(i for i, row in enumerate(table["rows"]) if row["sampler"] == "random")
    del table["rows"][place]["recall@1"]
    (study / "compare" / "compare.json").write_text(json.dumps(table))
    return f"compare.json, row {place + 1}: recall@1 is missing: the row is left out."


def damaged_histogram(study):
    analysis = json.loads((study / "analysis.json").read_text())
    analysis["histogram"]["exact"].pop()
    (study / "analysis.json").write_text(json.dumps(analysis))
    return "histogram exact is not 10 counts, one between every two edges and left out"


def not_numbers(study):
    analysis = json.loads((study / "analysis.json").read_text())
    analysis["rows"][0]["overlap"]["mean"] = float("nan")
    analysis["rows"][1]["bound"] = None
    analysis["rows"][2]["bound"] = {}
    (study / "analysis.json").write_text(json.dumps(analysis))
    return "row 1: overlap mean is not a share between 0 and 1: it is left out."


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
    with pytest.raises(ValueError, match=r"r\.html is not a report of lookalike; --force overwrites it"):
        report(made / "half", out=out, gallery=False)
    assert out.read_text() == "<p>something else</p>"
    report(made / "half", out=out, gallery=False, force=True)
    with pytest.raises(ValueError, match="is a folder; --out names the page"):
        make_report([made / "half"], tmp_path)


def command(*arguments, cwd):
    line = [sys.executable, "-c", "from lookalike.cli import main; main()", "report", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=cwd)


def test_as_typed(made, tmp_path):
    shown = command(made / "half", "--no-gallery", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Missing: Overlap and positional distance by epoch (lookalike train DATA --track-overlap)" in shown.stdout
    assert re.search(r"^Written: report\.html \(\d+ kB\)$", shown.stdout, re.MULTILINE)
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("absent", f"lookalike: there is no absent; a report needs folders with {CONFIG} (a run), compare.json"),
        ("empty", f"lookalike: empty is not a run: it has no {CONFIG} (a run), compare.json (a comparison) or"),
        ("notes.json", "lookalike: notes.json is not a run"),
        ("broken", f"lookalike: broken/{CONFIG} cannot be read"),
    ],
)
def test_mistakes_are_said_in_one_line(tmp_path, path, sentence):
    for name in ("empty", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "broken" / CONFIG).write_text('{"sampler"')
    shown = command(path, cwd=tmp_path)
    assert shown.returncode == 2
    assert shown.stderr.startswith(sentence)
    assert len(shown.stderr.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()
