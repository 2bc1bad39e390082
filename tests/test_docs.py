"""The documentation says what the committed results say, and its code runs."""

import importlib.util
import os
import re
from pathlib import Path

import pytest
import yaml

import lookalike
from benchmarks import tables
from tests.processes import program, run_function

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", tables.PAGES)
def test_tables_come_from_committed_results(page):
    text = (ROOT / page).read_text()
    assert text == tables.rendered(text), "run `python -m benchmarks.tables`"


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def run_as_it_stands(code, folder):
    """Run a program in a process of its own, from an empty folder; returns what it prints."""
    run = run_function(program, f"import warnings; warnings.simplefilter('error')\n{code}", cwd=folder)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def test_the_program_of_the_readme_runs_as_it_stands(tmp_path):
    _, training, _ = python_blocks("README.md")
    assert re.fullmatch(r"epoch 0: loss \d\.\d\d\nepoch 1: loss \d\.\d\d\n", run_as_it_stands(training, tmp_path))


def test_the_programs_of_the_page_on_streams_run_as_they_stand(tmp_path):
    of_pairs, of_labels, *_ = python_blocks("docs/streams.md")
    printed = run_as_it_stands(f"{of_pairs}{of_labels}print(batches.counts)", tmp_path).splitlines()
    assert printed[0].startswith("StreamCounts(read=2000, windows=3, batches=32, repeated=0, dropped=0")
    assert printed[1].startswith("StreamCounts(read=2000, windows=3, ")


def test_the_other_program_of_the_readme_runs_as_it_stands(tmp_path):
    *_, mining = python_blocks("README.md")
    shown = run_as_it_stands(mining + "print(*codes.shape, *negatives.indices.shape)", tmp_path)
    assert shown == "2000 64 2000 128\n"


def test_the_quick_start_runs_from_top_to_bottom(tmp_path):
    shown = run_as_it_stands("".join(python_blocks("docs/quickstart.md")) + "print(sampler.paired, epoch)", tmp_path)
    assert shown == "True 2\n"


def test_fragments_run_where_their_names_are_known(tmp_path):
    """The first lines of the README and the page on batches show parts of a loop: the README's own, for one."""
    three_lines, training, _ = python_blocks("README.md")
    assert python_blocks("docs/index.md") == [three_lines]
    save, load, several, marked, marking = python_blocks("docs/batches.md")
    several = f"from lookalike import LSHBatchSampler\n{several}"
    code = f"{training}\nembeddings = z.detach()\n{several}\n{three_lines}\npath = 'checkpoint'\n{save}\n{load}"
    run_as_it_stands(f"{code}\nassert sampler.state_dict().keys() == torch.load(path)['sampler'].keys()", tmp_path)
    code = f"from lookalike import LSHBatchSampler\nlabels = [i // 4 for i in range(1000)]\n{marking}\n{marked}"
    assert run_as_it_stands(f"{code}\nprint(len(marks))", tmp_path) == "1\n"


def test_pictures_are_drawn(tmp_path):
    script = ROOT / "docs" / "pictures" / "draw.py"
    environment = {**os.environ, "MPLBACKEND": "agg"}
    run = run_function(program, script.read_text(), tmp_path, env=environment)
    assert run.returncode == 0, run.stderr
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in script.parent.glob("*.svg")}
    pages = "".join((ROOT / "docs" / page).read_text() for page in ("concepts.md", "design.md"))
    assert sorted(re.findall(r"\(pictures/(\w+\.svg)\)", pages)) == sorted(drawn)


def test_empty_tables_do_not_swallow_what_follows(monkeypatch):
    monkeypatch.setattr(tables, "TABLES", {"a": lambda: "A", "b": lambda: "B"})
    text = "<!-- table: a -->\n<!-- end -->\nkept\n<!-- table: b -->\nold\n<!-- end -->\n"
    expected = "<!-- table: a -->\nA\n<!-- end -->\nkept\n<!-- table: b -->\nB\n<!-- end -->\n"
    assert tables.rendered(text) == tables.rendered(expected) == expected


def test_the_api_page_lists_the_public_names():
    listed = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), flags=re.MULTILINE)
    public = (getattr(lookalike, name) for name in lookalike.__all__)
    assert {f"{each.__module__}.{each.__qualname__}" for each in public} <= set(listed)
    for module, name in (path.rsplit(".", 1) for path in listed):
        source = Path(importlib.util.find_spec(module).origin)  # not imported: integrations take seconds
        defined = re.search(rf"^(class|def) {name}\b|^ *from .* import .*\b{name}\b", source.read_text(), re.MULTILINE)
        assert defined or source.with_name(f"{name}.py").exists(), f"{module} has no {name}"


def test_the_index_for_language_models_lists_the_pages_of_the_site():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    text = (DOCS / "llms.txt").read_text()
    listed = re.findall(r"^- \[(.*?)\]\(https://\S+/main/docs/(\S+)\): \S", text, re.MULTILINE)
    assert listed == list(pages(config["nav"]))


def pages(nav):
    """Title and file of every page of the site, in its order."""
    for entry in nav:
        for title, content in entry.items():
            yield from [(title, content)] if isinstance(content, str) else pages(content)


def test_links_lead_somewhere():
    for page in ROOT.glob("**/*.md"):
        if not {".venv", "node_modules"} & set(page.parts):
            for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
                assert (page.parent / link).exists(), f"{page.name} links to {link}"
