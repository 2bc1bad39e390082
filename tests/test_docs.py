"""The documentation says what the committed results say, and its code runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks import tables

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", tables.PAGES)
def test_tables_come_from_committed_results(page):
    text = (ROOT / page).read_text()
    assert text == tables.rendered(text), "run `python -m benchmarks.tables`"


class Images(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        return torch.randn(512), i


def test_readme_examples_run():
    training, mining = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    names = {
        "DataLoader": DataLoader,
        "dataset": Images(),
        "labels": torch.arange(256) // 2,
        "model": torch.nn.Linear(512, 32),
        "criterion": lambda z: torch.nn.functional.cross_entropy(z[::2] @ z[1::2].T, torch.arange(len(z) // 2)),
    }
    exec("import lookalike\n" + training, names)
    assert names["sampler"].epoch == 1
    names["embeddings"] = torch.nn.functional.normalize(torch.randn(256, 512), dim=1)
    exec(mining, names)
    assert names["codes"].shape == (256, 64)
    assert names["negatives"].indices.shape == (256, 128)


def test_quick_start_runs():
    names = {}
    for part in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "quickstart.md").read_text(), flags=re.DOTALL):
        exec(part, names)
    assert names["sampler"].paired
    assert names["epoch"] == 2


def test_pictures_are_drawn(tmp_path):
    script = ROOT / "docs" / "pictures" / "draw.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, env={**os.environ, "MPLBACKEND": "agg"})
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
