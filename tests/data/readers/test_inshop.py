import pytest
import torch

from lookalike.data import load_data
from tests.data.miniatures import write_inshop


def test_query_and_gallery(tmp_path):
    data = load_data("inshop", write_inshop(tmp_path), size=8)
    assert data.counts == {
        "training images": 15,
        "training classes": 5,
        "query images": 5,
        "gallery images": 10,
        "test classes": 5,
    }
    assert data.test_exclude is None
    assert torch.bincount(data.test.reference_labels)[data.test.query_labels].tolist() == [2] * 5
    assert not set(data.train.labels.tolist()) & set(data.test.query_labels.tolist())
    assert data.test.queries(torch.tensor([1]))[0, 0, 0, 0] == 18
    assert data.test.references(torch.tensor([2, 3]))[:, 0, 0, 0].tolist() == [19, 20]


def test_images_in_a_folder_of_the_archive(tmp_path):
    write_inshop(tmp_path)
    (tmp_path / "Img").mkdir()
    (tmp_path / "img").rename(tmp_path / "Img" / "img")
    assert load_data("inshop", tmp_path, size=8).train.plain("query", torch.tensor([3]))[0, 0, 0, 0] == 3


def test_mistakes(tmp_path):
    listed = write_inshop(tmp_path) / "Eval" / "list_eval_partition.txt"
    text = listed.read_text()
    listed.write_text(text.replace("gallery", "galery"))
    with pytest.raises(ValueError, match="expected train, query or gallery in the third column, got 'galery'"):
        load_data("inshop", tmp_path)
    listed.unlink()
    with pytest.raises(FileNotFoundError, match=r"list_eval_partition.txt is missing, and so is .*InShop is laid out"):
        load_data("inshop", tmp_path)
