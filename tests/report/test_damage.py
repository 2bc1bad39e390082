"""Whatever stands in the files, there is a page of the rest, and no picture with a hole in its coordinates."""

import copy
import json
import random
import re
import xml.etree.ElementTree as ET

import pytest

from lookalike.report import make_report

FILES = ("analysis.json", "compare/compare.json", "half/run.json", "half/result.json", "half/metrics.jsonl")
VALUES = (None, "x", "<b>", -1, 0, 1e300, float("nan"), float("inf"), [], {}, True)
COORDINATES = r' (?:x|y|d|x1|x2|y1|y2|cx|cy|width|height|transform)="[^"]*(?:nan|inf)'


def places(content, path=()):
    """The paths to everything inside."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in pairs:
        yield (*path, key)
        yield from places(value, (*path, key))


def damaged(text, rng):
    content = copy.deepcopy(json.loads(text))
    *path, last = rng.choice(list(places(content)))
    inner = content
    for key in path:
        inner = inner[key]
    if rng.random() < 0.2:
        del inner[last]
    else:
        inner[last] = rng.choice(VALUES)
    return json.dumps(content)


@pytest.mark.parametrize("name", FILES)
def test_a_page_comes_of_any_damage(study, tmp_path, name):
    file, out = study / name, tmp_path / "r.html"
    whole = file.read_text()
    for seed in range(25):
        rng = random.Random(seed)
        lines = whole.splitlines() if name.endswith("l") else [whole]
        file.write_text("\n".join(damaged(line, rng) for line in lines))
        make_report([study / "compare", study / "half", study / "analysis.json"], out, gallery=False)
        html = out.read_text()
        for picture in re.findall(r"<svg.*?</svg>", html):
            ET.fromstring(picture)
            assert not re.search(COORDINATES, picture), seed
        assert html.count("<figure>") >= 7, seed
