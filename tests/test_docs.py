"""The documentation says what the committed results say, and its code runs."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]

tables = pytest.importorskip("benchmarks.tables", reason="needs the checkout")


@pytest.mark.parametrize("page", tables.PAGES)
def test_tables_come_from_committed_results(page):
    text = (ROOT / page).read_text()
    assert text == tables.rendered(text), "run `python -m benchmarks.tables`"


def test_readme_example_runs():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    embeddings = torch.nn.functional.normalize(torch.randn(600, 512), dim=1)
    names = {"embeddings": embeddings, "labels": torch.arange(600) // 3}
    exec("import lookalike\n" + code, names)
    assert names["codes"].shape == (600, 64)
    assert names["negatives"].indices.shape == (600, 128)


def test_links_lead_somewhere():
    for page in ROOT.glob("**/*.md"):
        if not {".venv", "node_modules"} & set(page.parts):
            for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
                assert (page.parent / link).exists(), f"{page.name} links to {link}"
