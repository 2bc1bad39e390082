import shutil

import pytest
import torch

from lookalike.data import load_data
from tests.data.crossview import SMALL, red
from tests.data.miniatures import damage, write_cvusa

pytestmark = pytest.mark.usefixtures("cache")


def test_cvusa(tmp_path):
    data = load_data("cvusa", write_cvusa(tmp_path / "own"), **SMALL)
    assert data.counts == {"training pairs": 6, "test queries": 4, "test references": 4}
    assert data.train.pairs == 6
    assert data.train.labels is None
    ids = torch.tensor([2, 5])
    assert data.train.plain("query", ids).shape == (2, 3, 8, 16)
    assert data.train.plain("reference", ids).shape == (2, 3, 8, 8)
    assert red(data.train.plain("query", ids)) == [2, 5]
    assert red(data.train.plain("reference", ids)) == [102, 105]
    assert red(data.test.queries(torch.arange(4))) == [6, 7, 8, 9]
    assert red(data.test.references(data.test.query_labels)) == [106, 107, 108, 109]
    assert load_data("cvusa", tmp_path / "own").train.plain("query", ids).shape == (2, 3, 112, 616)
    augmented = data.train.queries(ids, 1), data.train.references(ids, 1)
    assert [x.dtype for x in augmented] == [torch.uint8] * 2


def test_cvusa_incomplete(tmp_path):
    root = write_cvusa(tmp_path / "own")
    damage(root / "bingmap/19/0000003.jpg")
    data = load_data("cvusa", root, on_error="skip", **SMALL)
    assert red(data.train.plain("query", torch.arange(5))) == [0, 1, 3, 4, 5]
    assert red(data.train.plain("reference", torch.arange(5))) == [100, 101, 103, 104, 105]
    shutil.rmtree(root / "streetview")
    with pytest.raises(FileNotFoundError, match=r"panos/0000001.jpg is missing; CVUSA is laid out as splits/"):
        load_data("cvusa", root)
    shutil.rmtree(root / "splits")
    with pytest.raises(FileNotFoundError, match=r"splits/train-19zl.csv is missing, and so is"):
        load_data("cvusa", root)
