"""The registry finds every reader, and adding one takes one file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lookalike.data import DataSource, data_sets, load_data, readers
from lookalike.data.check import check_data
from lookalike.training.recipes import recipe
from tests.data.miniatures import write_image
from tests.toys import write_glyph_file

NAMES = {
    "glyphs",
    "glyphs-paired",
    "sop",
    "inshop",
    "msmarco",
    "cvusa",
    "cvact",
    "cvact-test",
    "vigor-same",
    "vigor-cross",
    "beir",
    "folder",
    "table",
    "texts",
    "FILE.npz",
}
PAGE = Path(__file__).parents[2] / "docs" / "data.md"


@pytest.fixture
def stamps(tmp_path, monkeypatch):
    """Add the reader that the documentation shows: one module in the folder of readers."""
    code = next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "stamps" in block)
    folder = tmp_path / "more_readers"
    folder.mkdir()
    (folder / "stamps.py").write_text(code)
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(folder)])
    data_sets.cache_clear()
    yield folder
    for name in ("stamps", "again"):
        sys.modules.pop(f"lookalike.data.readers.{name}", None)
    data_sets.cache_clear()


def test_every_data_set_is_listed_once():
    known = data_sets()
    assert set(known) == NAMES
    assert list(known)[:2] == ["glyphs", "glyphs-paired"]  # those that need no files come first
    assert all(name == entry.name and entry.description for name, entry in known.items())
    assert not any("\n" in entry.description for entry in known.values())


def test_a_data_set_takes_one_file(stamps, tmp_path):
    root = tmp_path / "own"
    for i in range(12):
        write_image(root / "scans" / f"country{i // 2}" / f"{i}.jpg", i)
    (root / "test.txt").write_text("country1\ncountry4\n")
    assert set(data_sets()) == {*NAMES, "stamps"}
    data = load_data("stamps", root, size=5)
    assert data.counts == {"training images": 8, "training classes": 4, "test images": 4, "test classes": 2}
    assert data.test.queries(torch.arange(4))[:, 0, 0, 0].tolist() == [2, 3, 8, 9]
    counts = {count.name: count.official for count in check_data("stamps", root).counts}
    assert counts == {"training images": None, "training classes": None, "test images": None, "test classes": 80}
    assert recipe("stamps").settings.epochs == 20
    (root / "test.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"test.txt is missing; Stamps is laid out as scans/CLASS"):
        load_data("stamps", root)
    with pytest.raises(ValueError, match="the data set stamps does not take the option 'sizes'; did you mean 'size'"):
        load_data("stamps", root, sizes=5)
    shutil.copy(stamps / "stamps.py", stamps / "again.py")
    data_sets.cache_clear()
    with pytest.raises(ValueError, match="declares the data set 'stamps', which another module declares too"):
        data_sets()


def test_listing_data_sets_is_light():
    """`lookalike data list` must not load torch, nor NumPy."""
    script = "import sys; from lookalike.data import data_sets; data_sets(); print({'torch', 'numpy'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("name", "root", "options", "sentence"),
    [
        ("glyps", None, {}, r"no data set 'glyps'; there are glyphs, glyphs-paired, .*; did you mean 'glyphs'\?"),
        ("zzz", None, {}, r"no data set 'zzz'; there are glyphs, .*texts\.$"),
        ("sop", None, {"sise": 8}, "the data set sop does not take the option 'sise'; did you mean 'size'"),
        ("cvact", None, {"split": "test"}, "the data set cvact does not take the option 'split'"),
        ("glyphs", None, {"paired": True}, "the data set glyphs does not take the option 'paired'"),
        ("sop", None, {"progress": True}, "the data set sop does not take the option 'progress'"),
        ("sop", None, {}, "sop is read from a folder: give its path with root=FOLDER"),
        ("texts", None, {}, "texts is read from a file: give its path with root=FILE"),
        ("sop", "absent", {}, "absent is not a folder; SOP is laid out as Ebay_train.txt"),
        ("texts", "absent.csv", {}, "absent.csv: there is no such file"),
        ("absent.npz", None, {}, "absent.npz: there is no such file of glyphs"),
        ("glyphs", ".", {}, r"glyphs is not read from a folder and takes no root=, got \."),
        ("absent.npz", ".", {}, "absent.npz is not read from a folder and takes no root="),
    ],
)
def test_mistakes_are_found_without_reading_anything(name, root, options, sentence):
    source = DataSource(name, root, options)
    for act in (source.check, source.load):
        with pytest.raises((ValueError, FileNotFoundError), match=sentence):
            act()


def test_a_source_can_be_kept_and_found_again(tmp_path):
    source = DataSource(str(write_glyph_file(tmp_path / "own.npz")), options={"paired": True})
    source.check()
    again = DataSource.of_run({"seed": 0, **source.as_config()})
    assert again == source
    data = again.load()
    assert data.train.pairs is not None
    assert data.source == source
    assert DataSource("texts", "pairs.csv").is_table
    assert not source.is_table
