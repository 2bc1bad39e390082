import logging

import numpy as np
import pytest
import torch

from lookalike.data import load_data
from tests.data.miniatures import damage, unzipped, write_sop

pytestmark = pytest.mark.usefixtures("cache")


def test_the_lists_are_read_as_they_are(tmp_path):
    data = load_data("sop", write_sop(tmp_path), size=8)
    assert data.counts == {"training images": 24, "training classes": 6, "test images": 24, "test classes": 6}
    assert data.train.pairs is None
    assert torch.bincount(data.train.labels).tolist() == [4] * 6
    assert not set(data.train.labels.tolist()) & set(data.test.query_labels.tolist())
    assert torch.equal(data.test.query_labels, data.test.reference_labels)
    assert [x.tolist() for x in data.test_exclude] == [list(range(25)), list(range(24))]  # each itself
    images = data.train.plain("query", torch.tensor([5, 0]))
    assert images.dtype == torch.uint8
    assert images.shape == (2, 3, 8, 8)
    assert images[:, 0, 0, 0].tolist() == [5, 0]
    assert data.test.queries(torch.tensor([1]))[0, 0, 0, 0] == 25
    assert data.checksum != load_data("sop", tmp_path, size=9).checksum


def test_training_images_depend_on_the_seed_alone(tmp_path):
    part = load_data("sop", write_sop(tmp_path), size=(16, 20)).train
    ids = torch.arange(24)
    first, again, other = (part.queries(ids, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(part.queries(ids[7:9], 1), first[7:9])  # whatever else is in the batch
    assert not torch.equal(first, part.references(ids, 1))
    plain = load_data("sop", tmp_path, size=(16, 20), augment=False).train
    assert torch.equal(plain.queries(ids, 1), part.plain("query", ids))


@pytest.mark.parametrize("gone", ["Ebay_test.txt", "chair_final/0000_0.JPG"])
def test_what_is_missing_is_named_with_the_layout(tmp_path, gone):
    (write_sop(tmp_path) / gone).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{gone} is missing; SOP is laid out as Ebay_train.txt and Ebay_test"):
        load_data("sop", tmp_path)


def test_a_corrupt_image_stops_or_is_skipped(tmp_path, caplog):
    broken = write_sop(tmp_path) / "chair_final" / "0002_1.JPG"
    damage(broken)
    data = load_data("sop", tmp_path, size=8)
    with pytest.raises(ValueError, match=rf"{broken} cannot be read as an image"):
        data.train.plain("query", torch.arange(24))
    with caplog.at_level(logging.WARNING, "lookalike"):
        skipping = load_data("sop", tmp_path, size=8, on_error="skip")
    assert str(broken) in caplog.text
    assert skipping.counts["training images"] == 23
    assert skipping.train.plain("query", torch.arange(23)).shape == (23, 3, 8, 8)
    assert skipping.checksum != data.checksum
    broken.write_bytes((tmp_path / "chair_final" / "0002_2.JPG").read_bytes())  # mended, it is found again
    assert load_data("sop", tmp_path, size=8, on_error="skip").counts["training images"] == 24


def test_mistakes(tmp_path):
    write_sop(tmp_path)
    with pytest.raises(ValueError, match="sop is read from a folder: give its path with root=FOLDER"):
        load_data("sop")
    with pytest.raises(FileNotFoundError, match="absent is not a folder; SOP is laid out as"):
        load_data("sop", tmp_path / "absent")
    with pytest.raises(ValueError, match="on_error must be 'stop' or 'skip', got 'ignore'"):
        load_data("sop", tmp_path, on_error="ignore")
    with pytest.raises(ValueError, match="height must be at least 1, got 0"):
        load_data("sop", tmp_path, size=(0, 5))
    (tmp_path / "Ebay_test.txt").write_text("image_id class_id super_class_id path\n1 2\n")
    with pytest.raises(ValueError, match=r"Ebay_test.txt, line 2: expected 4 columns, got 2: '1 2'"):
        load_data("sop", tmp_path)


def test_real_lists_and_images(tmp_path):
    data = load_data("sop", unzipped("emoji_sop.zip", tmp_path), size=64)
    counts = data.counts
    assert counts["training images"] + counts["test images"] == 17_180
    assert counts["training classes"] + counts["test classes"] == 3_139
    assert torch.bincount(data.train.labels).min() >= 4
    ids = torch.from_numpy(np.random.default_rng(0).choice(counts["training images"], 200, replace=False))
    images = data.train.queries(ids, 0)
    assert images.shape == (200, 3, 64, 64)
    assert data.train.plain("query", ids).float().mean() > 128  # on white
