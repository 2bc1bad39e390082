"""Whatever stands in the files, there is a page, what is damaged is named, and everything else is shown."""

import copy
import json
import re
import shutil
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookalike.report import make_report
from lookalike.training.run_folder import CONFIG
from tests.report.conftest import add_overlap
from tests.report.figures.test_search_time import write_benchmark
from tests.report.pages import report

COMPARISON, RUN, RESULT, METRICS = (
    "compare/compare.json",
    f"half/{CONFIG}",
    "half/result.json",
    "half/metrics.jsonl",
)
FILES = (COMPARISON, RUN, RESULT, METRICS, "analysis.json", "search_gpu.json")
UNDAMAGED = ("random-seed0", "random-seed1", "lsh-64-seed0", "lsh-64-seed1")
RAW = {  # what json.dumps does not write, by the text that stands for it
    "@deep@": "[" * 100_000 + "]" * 100_000,
    "@deeper@": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "@digits@": "9" * 5000,
    "@exponent@": "1e999",
}
ODD = (
    None,
    True,
    False,
    "",
    "x",
    "<b>",
    "12",
    "\ud800",
    "a\ud800\udfffb",
    "\x00\x1b\ufffe",
    "y" * 100_000,
    -1,
    0,
    1,
    2,
    -0.5,
    1e300,
    -1e300,
    1e-300,
    10**30,
    float("nan"),
    float("inf"),
    float("-inf"),
    [],
    {},
    [[]],
    [1, "x"],
    {"": 0},
    {"\udc80": "\udc80"},
    {"mean": 2},
    *RAW,
)
WHOLE = (
    b"",
    b" \n",
    b"\x00\xff\xfe\x80",
    b"null",
    b"[]",
    b"3",
    b'"text"',
    b"{",
    b"{}",
    b'{"a": 1} {',
    b"\xef\xbb\xbf",
    b"\xff\xfe{\x00}\x00",
    b"[" * 100_000,
    b'{"sampler": "lsh", "sampler": 3, "rows": 1, "rows": [{}]}',
    b"\n\n{}\n[]\n",
    '{"rows": [{"method": "\ud800"}]}'.encode("utf-8", "surrogatepass"),
)


def places(content, path=()):
    """The paths to everything inside."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in pairs:
        yield (*path, key)
        yield from places(value, (*path, key))


def written(content):
    text = json.dumps(content)
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text


@st.composite
def damaged(draw, text):
    """A line of JSON with one to three odd values in it, or without some keys."""
    content = json.loads(text)
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(list(places(content))))
        inner = content
        for key in path:
            inner = inner[key]
        if draw(st.booleans()) and draw(st.booleans()):
            del inner[last]
        else:
            inner[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return written(content)


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    """Two runs of each sampler that stay as they are, and everything that is going to be damaged."""
    folder = tmp_path_factory.mktemp("damage")
    for name in ("compare", "half"):
        shutil.copytree(made / name, folder / name)
    shutil.copy(made / "analysis.json", folder)
    add_overlap(folder / "half" / "metrics.jsonl")
    write_benchmark(folder)
    return folder


def page(folder):
    """The page as a reader gets it, checked to be one."""
    paths = [folder / name for name in ("compare", "half", "analysis.json", "search_gpu.json")]
    content, html, _ = report(*paths, out=folder / "report.html", gallery=False)
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", html)
    for picture in re.findall(r"<svg.*?</svg>", html):
        for element in ET.fromstring(picture).iter():
            drawn = {name: value for name, value in element.attrib.items() if name not in ("aria-label", "class")}
            assert not re.search(r"nan|inf\b|e\+", " ".join(drawn.values())), drawn
    for name in UNDAMAGED:
        assert f">{folder / 'compare' / name}<" in html
    assert re.search(r"<h3>Recall@1 by epoch</h3>.*?<th scope=\"col\">random</th>.*?lsh:64", html, re.DOTALL)
    for notice in content.notices:
        notice.encode("utf-8")
    return content, html


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_odd_values_cost_what_they_stand_for(folder, name, data):
    file = folder / name
    whole = file.read_text()
    lines = whole.splitlines() if name.endswith("l") else [whole]
    try:
        file.write_text("\n".join(data.draw(damaged(line)) for line in lines))
        page(folder)
    finally:
        file.write_text(whole)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", WHOLE, ids=range(len(WHOLE)))
def test_a_file_that_holds_nothing_is_named(folder, name, content):
    file = folder / name
    whole = file.read_bytes()
    try:
        file.write_bytes(content)
        found, html = page(folder)
    finally:
        file.write_bytes(whole)
    assert any(name.rpartition("/")[2] in notice or "half" in notice for notice in found.notices)
    assert 'id="notices"' in html


def replaced(file, *path, value):
    content = json.loads(file.read_text())
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file.write_text(written(content))


@pytest.mark.parametrize(
    ("name", "path", "value", "notice"),
    [
        (COMPARISON, ("settings",), {}, "compare.json: settings"),
        (COMPARISON, ("machine",), [], "compare.json: machine is not an object"),
        (COMPARISON, ("rows", 0, "recall@1", "mean"), "0.5", "compare.json, row 1: recall@1"),
        (COMPARISON, ("rows", 1, "mrr@10"), None, "compare.json, row 2: mrr@10"),
        (RUN, ("bits",), -3, f"{CONFIG}: bits"),
        (RESULT, ("metrics", "recall@1"), 7, "result.json: recall@1"),
        ("analysis.json", ("rows", 3, "overlap", "mean"), "@exponent@", "analysis.json, row 4: overlap"),
        ("analysis.json", ("histogram", "lsh", "128", 2), -4, "analysis.json: histogram"),
        ("search_gpu.json", ("search", 0, "seconds"), 0, "search_gpu.json, row 1: seconds"),
    ],
)
def test_the_part_that_is_damaged_is_named(study, tmp_path, name, path, value, notice):
    write_benchmark(tmp_path)
    replaced(study / name, *path, value=value)
    content, html = page(study)
    assert [notice in each for each in content.notices] == [True]
    assert "<h2>Comparison on own.npz</h2>" in html
    assert len(re.findall("<figure>", html)) >= 15


def test_many_damaged_lines_are_one_sentence(study, tmp_path):
    write_benchmark(tmp_path)
    file = study / METRICS
    line = json.loads(file.read_text().splitlines()[-1])
    lines = [{**line, "epoch": epoch, "loss": "x"} for epoch in range(1, 200)]
    file.write_text("".join(json.dumps(each) + "\n" for each in lines) + "{\n" * 100)
    content, _ = page(study)
    assert len(content.notices) == 2
    assert max(map(len, content.notices)) < 500


def test_a_byte_order_mark_does_no_harm(study, tmp_path):
    write_benchmark(tmp_path)
    for name in FILES:
        (study / name).write_bytes(b"\xef\xbb\xbf" + (study / name).read_bytes())
    content, _ = page(study)
    assert content.notices == []


def test_names_of_folders_need_not_be_text(study, tmp_path):
    odd = tmp_path / "half\udcff\x07"
    shutil.move(study / "half", odd)
    make_report([odd], tmp_path / "r.html", gallery=False)
    html = (tmp_path / "r.html").read_bytes().decode("utf-8")
    assert "half\ufffd\ufffd" in html
    (odd / CONFIG).write_text("{}")
    content = make_report([odd, study / "compare"], tmp_path / "r.html", gallery=False)
    assert "half\ufffd\ufffd" in content.notices[0]
