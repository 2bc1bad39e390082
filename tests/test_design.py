"""The walks and the layout of docs/design.md are those of the program."""

import re
import sys
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path

import pytest
import torch

import lookalike
from lookalike import LSHBatchSampler
from tests.toys import write_glyph_file

ROOT = Path(__file__).parents[1]
SOURCE = Path(lookalike.__file__).parent
DESIGN = (ROOT / "docs" / "design.md").read_text()
PACKAGES = ("batches/", "negatives/", "search/", "data/", "training/encoders/", "training/team/")  # walked as one


def walk_of(heading):
    """The files and packages that a section of the design numbers, in order."""
    section = DESIGN.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^ *\d+\. `([\w/.]+)`", section, re.MULTILINE)


@contextmanager
def crossed(before="nowhere"):
    """Collect the files and packages of lookalike whose functions are called, until a room is entered.

    Utils serve everyone and do not count.
    """
    files = []

    def note(frame, event, _):
        code = frame.f_code
        if event != "call" or not code.co_flags & CO_OPTIMIZED or not code.co_filename.startswith(str(SOURCE)):
            return  # not a function of ours: modules and classes are executed where they are imported
        path = Path(code.co_filename).relative_to(SOURCE).as_posix()
        if path.startswith(before):
            sys.setprofile(None)
        elif not path.startswith("utils/"):
            files.append(next((package for package in PACKAGES if path.startswith(package)), path))

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("paired", [False, True])
def test_an_embedding_crosses_the_files_of_the_walk(paired):
    n, walk = 2400, walk_of("From an embedding to the next batch")
    x = torch.nn.functional.normalize(torch.randn(n, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    options = {"labels": None, "pairs": n} if paired else {"labels": torch.arange(n) // 2}
    sampler = LSHBatchSampler(batch_size=200, bits=64, **options)

    def observe(ids):
        sampler.observe(ids, **({"query": x[ids], "reference": x[ids]} if paired else {"embeddings": x[ids]}))

    *batches, last = list(sampler)
    for ids in batches[:-1]:
        observe(ids)
    with crossed() as files:
        observe(batches[-1])
        observe(last)
        next(iter(sampler))
    assert set(files) == set(walk)
    assert len(walk) == len(set(walk)) <= 12


def test_training_crosses_the_files_of_the_walk(tmp_path, run_here):
    walk = walk_of("From the command to the sampler")
    glyphs = write_glyph_file(tmp_path / "glyphs.npz")
    arguments = ["train", str(glyphs), "--epochs", "1", "--pairs-per-batch", "4", "--model-option", "width=8"]
    assert run_here(*arguments, "--out", "first")[0] == 0  # imports everything
    with crossed(before="samplers/") as files:
        assert run_here(*arguments, "--out", "second")[0] == 0
    assert set(files) == set(walk)
    assert len(walk) == len(set(walk)) <= 16
