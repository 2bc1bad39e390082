"""Files to explore: what they may be, and what is said of those that do not fit."""

import numpy as np
import pytest
from PIL import Image

from lookalike.explore.sources import explored_file
from tests.explore.serving import explored, write_embeddings


@pytest.fixture
def folder(tmp_path):
    return write_embeddings(tmp_path, n=12)


def test_texts_come_from_lines_or_from_a_column(folder):
    (folder / "t.csv").write_text("id,text\n" + "".join(f"{i},row {i}\n" for i in range(12)))
    content = explored(folder, texts="t.csv").content
    assert content.describe(7)["views"] == {"sample": "row 7"}
    assert content.search("ROW 11", 5) == [11]
    assert explored(folder, texts="texts.txt").content.describe(9)["views"]["sample"].startswith("text number 9")


def test_images_come_from_a_folder_or_a_list(folder):
    (folder / "images").mkdir()
    for i in range(12):
        Image.new("RGB", (300, 200), (20 * i, 0, 0)).save(folder / "images" / f"{i:02}.png")
    (folder / "list.txt").write_text("".join(f"images/{i:02}.png\n" for i in reversed(range(12))))
    for name, last in (("images", 220), ("list.txt", 0)):
        content = explored(folder, images=name).content
        assert content.kinds == {"sample": "image"}
        (folder / "out.png").write_bytes(content.picture("sample", 11))
        with Image.open(folder / "out.png") as image:
            assert image.size == (256, 171)
            assert image.getpixel((0, 0))[0] == last
    (folder / "images" / "11.png").write_bytes(b"not an image")
    with pytest.raises(LookupError, match=r"11\.png cannot be read"):
        explored(folder, images="images").content.picture("sample", 11)


def test_labels_keep_their_names(folder):
    content = explored(folder, labels="labels.txt").content
    assert content.describe(4)["label"] == "label-001"
    assert content.search("label-003", 5) == [9, 10, 11]
    np.save(folder / "numbers.npy", np.arange(12) // 6 + 40)
    content = explored(folder, labels="numbers.npy").content
    assert content.search("label:41", 3) == [6, 7, 8]


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ({"texts": "missing.txt"}, "no such file of texts"),
        ({"images": "missing"}, "no such folder of images"),
        ({"images": "labels.txt", "texts": "texts.txt"}, "give one of them"),
        ({"texts": "short.txt"}, "one text per embedding, 12, got 2"),
        ({"images": "empty"}, "one image per embedding, 12, got 0"),
        ({"texts": "columns.csv"}, "no column called text"),
    ],
)
def test_what_does_not_fit_is_refused(folder, shown, problem):
    (folder / "short.txt").write_text("a\nb\n")
    (folder / "empty").mkdir()
    (folder / "columns.csv").write_text("a,b\n1,2\n")
    with pytest.raises((ValueError, FileNotFoundError), match=problem):
        explored(folder, **shown)


def test_embeddings_that_have_no_neighbours_are_refused(folder):
    x = np.load(folder / "x.npy")
    for row, value, problem in ((3, np.nan, "row 3 has NaN"), (5, 0.0, "row 5 is zero")):
        bad = x.copy()
        bad[row] = value
        np.save(folder / "bad.npy", bad)
        with pytest.raises(ValueError, match=problem):
            explored_file(folder / "bad.npy")
    np.save(folder / "bad.npy", x[:1])
    with pytest.raises(ValueError, match="at least 2 are needed"):
        explored_file(folder / "bad.npy")


def test_texts_alone_are_refused(folder):
    with pytest.raises(ValueError, match="holds texts, and the page compares embeddings"):
        explored_file(folder / "texts.txt")
