"""The registry finds every reader, and adding one takes one file."""

import subprocess
import sys

import pytest

from lookalike.data import DataSource, data_set, data_sets, load_data, readers
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
    "folder",
    "table",
    "texts",
    "FILE.npz",
}
NEW_READER = """
from lookalike.data.registry import DataSet
from lookalike.data.roots import FolderRoot

ROOT = FolderRoot("Pairs", "q/N.png and r/N.png")


def read(root, *, size=8, progress=False):
    from lookalike.data.build import paired_images

    pairs = [(path, ROOT.find(root, f"r/{path.name}")) for path in sorted((root / "q").iterdir())]
    half = len(pairs) // 2
    sizes = {"query_size": size, "reference_size": size}
    return paired_images(
        "new", "Pairs", pairs[:half], pairs[half:], **sizes, augment=None, on_error="stop", progress=progress
    )


DATA_SETS = (
    DataSet(
        name="new",
        description="a new data set",
        reader=read,
        recipe={"settings": {"epochs": 3}, "model": {"encoder": "convnet"}, "data": {"size": 6}},
        root=ROOT,
        official={"training pairs": 4},
    ),
)
"""


@pytest.fixture
def new_reader(tmp_path, monkeypatch):
    """Add a reader: one module in the folder of readers."""
    folder = tmp_path / "more_readers"
    folder.mkdir()
    (folder / "new.py").write_text(NEW_READER)
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(folder)])
    data_sets.cache_clear()
    yield folder
    sys.modules.pop("lookalike.data.readers.new", None)
    data_sets.cache_clear()


def test_every_data_set_is_listed_once():
    known = data_sets()
    assert set(known) == NAMES
    assert list(known)[:2] == ["glyphs", "glyphs-paired"]  # those that need no files come first
    assert all(name == entry.name and entry.description for name, entry in known.items())
    assert not any("\n" in entry.description for entry in known.values())


def test_a_data_set_takes_one_file(new_reader, tmp_path):
    for i in range(8):
        write_image(tmp_path / "own" / "q" / f"{i}.png", i)
        write_image(tmp_path / "own" / "r" / f"{i}.png", 100 + i)
    assert set(data_sets()) == {*NAMES, "new"}
    data = load_data("new", tmp_path / "own", size=5)
    assert data.counts == {"training pairs": 4, "test queries": 4, "test references": 4}
    assert data_set("new").official == {"training pairs": 4}
    usual = recipe("new")
    assert (usual.settings.epochs, usual.model, usual.data) == (3, {"encoder": "convnet"}, {"size": 6})
    (tmp_path / "own" / "r" / "7.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"7.png is missing; Pairs is laid out as q/N.png and r/N.png"):
        load_data("new", tmp_path / "own")
    (new_reader / "again.py").write_text(NEW_READER)
    data_sets.cache_clear()
    with pytest.raises(ValueError, match="declares the data set 'new', which another module declares too"):
        data_sets()
    sys.modules.pop("lookalike.data.readers.again", None)


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
        ("sop", None, {}, "sop is read from a folder of yours: say where it is with root=FOLDER"),
        ("texts", None, {}, "texts is read from a file of yours: say where it is with root=FILE"),
        ("sop", "absent", {}, "absent is not a folder; SOP is laid out as Ebay_train.txt"),
        ("texts", "absent.csv", {}, "absent.csv: there is no such file"),
        ("absent.npz", None, {}, "absent.npz: there is no such file"),
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
