"""The documentation says what the committed results say, and its code runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import tables
from tests.processes import PATIENCE

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", tables.PAGES)
def test_tables_come_from_committed_results(page):
    text = (ROOT / page).read_text()
    assert text == tables.rendered(text), "run `python -m benchmarks.tables`"


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def run_as_it_stands(code, folder):
    """Run a program in a process of its own, from an empty folder; returns what it prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def test_the_program_of_the_readme_runs_as_it_stands(tmp_path):
    training, _ = python_blocks("README.md")
    assert re.fullmatch(r"epoch 0: loss \d\.\d\d\nepoch 1: loss \d\.\d\d\n", run_as_it_stands(training, tmp_path))


def test_the_other_program_of_the_readme_runs_as_it_stands(tmp_path):
    _, mining = python_blocks("README.md")
    shown = run_as_it_stands(mining + "print(*codes.shape, *negatives.indices.shape)", tmp_path)
    assert shown == "2000 64 2000 128\n"


def test_the_quick_start_runs_from_top_to_bottom(tmp_path):
    shown = run_as_it_stands("".join(python_blocks("docs/quickstart.md")) + "print(sampler.paired, epoch)", tmp_path)
    assert shown == "True 2\n"


def test_fragments_run_where_their_names_are_known(tmp_path):
    """What the landing page and the page on batches show belongs into a loop: the README's, for one."""
    training, _ = python_blocks("README.md")
    (three_lines,) = python_blocks("docs/index.md")
    save, load = python_blocks("docs/batches.md")
    code = f"{training}\nembeddings = z.detach()\n{three_lines}\npath = 'checkpoint'\n{save}\n{load}"
    run_as_it_stands(f"{code}\nassert sampler.state_dict().keys() == torch.load(path)['sampler'].keys()", tmp_path)


def test_pictures_are_drawn(tmp_path):
    script = ROOT / "docs" / "pictures" / "draw.py"
    environment = {**os.environ, "MPLBACKEND": "agg"}
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, env=environment, timeout=PATIENCE)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in script.parent.glob("*.svg")}
    shown = re.findall(r"\(pictures/(\w+\.svg)\)", (ROOT / "docs" / "concepts.md").read_text())
    assert sorted(shown) == sorted(drawn)


def test_empty_tables_do_not_swallow_what_follows(monkeypatch):
    monkeypatch.setattr(tables, "TABLES", {"a": lambda: "A", "b": lambda: "B"})
    text = "<!-- table: a -->\n<!-- end -->\nkept\n<!-- table: b -->\nold\n<!-- end -->\n"
    expected = "<!-- table: a -->\nA\n<!-- end -->\nkept\n<!-- table: b -->\nB\n<!-- end -->\n"
    assert tables.rendered(text) == tables.rendered(expected) == expected


def test_links_lead_somewhere():
    for page in ROOT.glob("**/*.md"):
        if not {".venv", "node_modules"} & set(page.parts):
            for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
                assert (page.parent / link).exists(), f"{page.name} links to {link}"
