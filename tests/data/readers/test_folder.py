import pytest
import torch

from lookalike.data import load_data
from tests.data.miniatures import unzipped, write_image

pytestmark = pytest.mark.usefixtures("cache")


def write_classes(root, classes, per_class=3, first=0):
    for label in range(classes):
        for view in range(per_class):
            write_image(root / f"kind{label % 2}" / f"class{label}" / f"{view}.png", first + label * per_class + view)
    return root


def test_a_folder_per_class(tmp_path):
    data = load_data("folder", write_classes(tmp_path / "own", 40), size=8)
    counts = data.counts
    assert counts["training images"] + counts["test images"] == 120
    assert counts["training classes"] + counts["test classes"] == 40
    assert 8 < counts["test classes"] < 32
    assert torch.bincount(data.train.labels).max() == 3
    again = load_data("folder", write_classes(tmp_path / "own", 44), size=8)  # others do not change sides
    before, after = (
        {d.train.query.items.paths[i].parent.name for i in d.train.query.ids.tolist()} for d in (data, again)
    )
    assert before <= after


def test_folders_for_training_and_test(tmp_path):
    write_classes(tmp_path / "own" / "train", 4)
    write_classes(tmp_path / "own" / "val", 3, first=100)
    data = load_data("folder", tmp_path / "own", size=8)
    assert data.counts == {"training images": 12, "training classes": 4, "test images": 9, "test classes": 3}
    assert data.test.queries(torch.arange(9))[:, 0, 0, 0].min() == 100
    with pytest.raises(FileNotFoundError, match=r"has no images in folders below it: expected CLASS/IMAGE.jpg"):
        load_data("folder", tmp_path / "own" / "train" / "kind0" / "class0")


def test_real_photographs(tmp_path):
    data = load_data("folder", unzipped("grocery128.zip", tmp_path), size=(32, 48))
    assert data.counts == {
        "training images": 2_640,
        "training classes": 81,
        "test images": 2_485,
        "test classes": 81,
    }
    images = data.train.plain("query", torch.arange(0, 2_640, 100))
    assert images.shape == (27, 3, 32, 48)
    assert 40 < images.float().mean() < 200
