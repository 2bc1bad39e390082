import numpy as np
import pytest
import torch

from lookalike.data import load_data
from lookalike.data.glyphs import load_glyphs
from lookalike.data.scans import class_of, degraded, glyph_scans, is_training_class
from tests.toys import write_glyph_file


@pytest.fixture(scope="module")
def labelled():
    return glyph_scans()


@pytest.mark.parametrize("paired", [False, True])
def test_training_and_test_classes_are_disjoint_and_fixed(paired):
    data = glyph_scans(paired=paired)
    glyphs = load_glyphs()
    names = class_of(glyphs, merge_identical=True)
    training = is_training_class(names)
    assert 0.45 < training.mean() < 0.55
    assert not set(names[training]) & set(data.test.reference_labels.tolist())
    assert set(data.test.query_labels.tolist()) <= set(data.test.reference_labels.tolist())
    assert len(set(data.test.reference_labels.tolist())) == len(data.test.reference_labels)
    assert is_training_class(np.array([65, 66, 67, 0x4E00])).tolist() == [True, True, False, True]
    part = data.train
    assert len(part.labels) == (part.pairs or len(part))
    if paired:
        differ = (part.images[part.query_ids] != part.images[part.reference_ids]).flatten(1).any(1)
        assert differ.float().mean() > 0.8  # another face; symbols may look the same in all
        assert (np.diff(glyphs.codepoints[part.query_ids]) > 0).all()
    else:
        assert len(part) == int(training.sum())


def test_identical_characters_have_one_label_unless_asked_for(labelled):
    glyphs = load_glyphs()
    merged, apart = (class_of(glyphs, merge_identical=flag) for flag in (True, False))
    cyrillic = glyphs.codepoints == 0x410
    assert set(merged[cyrillic]) == {ord("A")}
    assert set(apart[cyrillic]) == {0x410}
    assert labelled.checksum != glyph_scans(merge_identical=False).checksum


def test_scans_depend_on_the_seed_alone(labelled):
    part = labelled.train
    ids = torch.tensor([3, 500, 7])
    first, again, other = (part.queries(ids, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (3, 1, 32, 32)
    assert 0 <= first.min() <= first.max() <= 1
    assert torch.equal(part.references(ids, 1), part.plain("reference", ids))
    tests = [data.test.queries(torch.arange(50)) for data in (labelled, glyph_scans())]
    assert torch.equal(*tests)


def test_degraded_images_are_turned_blurred_noisy_and_erased():
    image = torch.zeros(64, 1, 32, 32)
    image[:, :, 12:20, 12:20] = 1
    scans = degraded(image, torch.Generator().manual_seed(0))
    assert (scans != image).flatten(1).any(1).all()
    assert (scans - image).abs().mean() < 0.1
    erased = torch.nn.functional.max_pool2d(scans, 8, stride=1).amin((1, 2, 3))
    assert (erased == 0).float().mean() > 0.95  # somewhere a square has no ink and no noise


def test_one_reference_per_class_in_another_face_than_its_queries(tmp_path):
    data = load_data(str(write_glyph_file(tmp_path / "own.npz")))
    assert torch.bincount(data.test.query_labels).max() == 2  # three faces: one is the reference
    clean = set(map(bytes, data.test.clean.flatten(1).numpy()))
    assert len(clean) == len(data.test.reference_labels)
