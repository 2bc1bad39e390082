"""CVUSA, CVACT and VIGOR, on miniature copies of their layouts."""

import shutil
import sys
from itertools import pairwise

import pytest
import torch

from lookalike import hamming_topk
from lookalike.data import load_data
from tests.data.miniatures import damage, write_cvact, write_cvusa, write_vigor

SMALL = {"query_size": (8, 16), "reference_size": 8}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOKALIKE_CACHE", str(tmp_path / "cache"))


def red(images):
    return images[:, 0, 4, 4].tolist()


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


def test_cvact(tmp_path):
    root, order = write_cvact(tmp_path / "own")
    data = load_data("cvact", root, **SMALL)
    assert data.counts == {"training pairs": 6, "test queries": 4, "test references": 4}
    assert red(data.train.plain("query", torch.arange(6))) == order[:6].tolist()
    assert red(data.train.plain("reference", torch.arange(6))) == (order[:6] + 100).tolist()
    queries = data.test.queries(torch.arange(4))
    assert sorted(red(queries)) == sorted(order[6:].tolist())
    assert red(data.test.references(data.test.query_labels)) == [100 + value for value in red(queries)]
    test = load_data("cvact-test", root, **SMALL)
    assert test.counts == {"training pairs": 6, "test queries": 5, "test references": 5}
    assert red(test.test.queries(torch.arange(5))) == [0, 1, 2, 3, 4]
    assert test.checksum != data.checksum


def test_cvact_incomplete(tmp_path, monkeypatch, caplog):
    root, order = write_cvact(tmp_path / "own", train=300, val=4)
    gone = root / "ANU_data_small" / "streetview" / f"pano{order[7]:018d}_grdView.jpg"
    gone.unlink()
    assert load_data("cvact", root, **SMALL).counts["training pairs"] == 299
    assert f"1 of 300 pairs of CVACT are missing and left out, such as {gone}" in caplog.text
    for path in sorted((root / "ANU_data_small" / "satview_polish").iterdir())[:100]:
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"pairs are missing below .*ANU_data_small, such as streetview/pano"):
        load_data("cvact", root)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ImportError, match=r"reading ACT_data.mat needs scipy: pip install scipy"):
        load_data("cvact", root)
    with pytest.raises(ValueError, match="split must be 'val' or 'test', got 'dev'"):
        load_data("cvact", root, split="dev")


@pytest.mark.parametrize("layout", ["official", "by kind"])
def test_vigor_same(tmp_path, layout):
    root = write_vigor(tmp_path / "own")
    if layout == "by kind":  # ground/CITY and satellite/CITY, as some code has it
        for city in ("Chicago", "NewYork", "SanFrancisco", "Seattle"):
            for kind, name in (("panorama", "ground"), ("satellite", "satellite")):
                (root / name).mkdir(exist_ok=True)
                (root / city / kind).rename(root / name / city)
    data = load_data("vigor-same", root, **SMALL)
    assert data.counts == {
        "aerial images": 24,
        "street images": 32,
        "training pairs": 24,
        "test queries": 8,
        "test references": 24,
    }
    ids = torch.arange(24)
    assert red(data.train.plain("query", ids))[:7] == [0, 1, 2, 3, 4, 5, 10]
    assert red(data.train.plain("reference", ids))[:7] == [101, 101, 102, 102, 103, 103, 111]
    labels = data.train.labels
    assert labels[0] == labels[1] != labels[2]  # two panoramas in one aerial image
    assert red(data.test.queries(torch.arange(2))) == [6, 7]
    assert red(data.test.references(data.test.query_labels[:2])) == [104, 104]


def test_vigor_cross(tmp_path):
    data = load_data("vigor-cross", write_vigor(tmp_path / "own"), **SMALL)
    assert data.counts == {
        "aerial images": 24,
        "street images": 32,
        "training pairs": 16,
        "test queries": 16,
        "test references": 12,
    }
    assert red(data.train.plain("query", torch.arange(16)))[::8] == [10, 30]  # New York, Seattle
    assert red(data.test.queries(torch.arange(16)))[::8] == [0, 20]


def test_semi_positives_are_neither_positives_nor_negatives(tmp_path):
    root = write_vigor(tmp_path / "own", aerial=12)
    data = load_data("vigor-same", root, **SMALL)
    offsets, ids = data.train_exclude
    assert len(offsets) == len(data.train) + 1
    lists = [set(ids[a:b].tolist()) for a, b in pairwise(offsets.tolist())]
    assert lists[0] == {2, 3, 4, 5}  # in aerial image 1; pairs 2 and 3 are in image 2, pairs 4 and 5 in image 3
    assert lists[4] == {0, 1, 2, 3}  # the other way round
    for i, others in enumerate(lists):
        assert all(i in lists[j] for j in others)
        assert not {j for j in others if data.train.labels[j] == data.train.labels[i]}
    codes = torch.zeros(len(data.train), 8, dtype=torch.uint8)
    found = hamming_topk(codes, codes, 20, query_labels=data.train.labels, exclude=data.train_exclude).indices
    assert not {2, 3, 4, 5, 0, 1} & set(found[0].tolist())
    assert data.test_exclude is None  # published recall counts semi-positives as wrong
    hits = load_data("vigor-same", root, hit_rate=True, **SMALL)
    assert red(hits.test.references(hits.test_exclude[0])) == [105, 106, 107]


def test_vigor_incomplete(tmp_path):
    root = write_vigor(tmp_path / "own")
    damage(root / "Chicago" / "satellite" / "satellite_0_1.png")  # has two panoramas and is near to others
    data = load_data("vigor-same", root, on_error="skip", **SMALL)
    assert data.counts["training pairs"] == 22
    assert data.counts["test references"] == 23
    assert red(data.train.plain("reference", torch.arange(3))) == [102, 102, 103]
    listed = root / "splits" / "Seattle" / "satellite_list.txt"
    listed.write_text(listed.read_text().replace("satellite_3_2.png", "satellite_3_9.png"))
    with pytest.raises(ValueError, match=r"same_area_balanced_train.txt names 'satellite_3_2.png', which is not in"):
        load_data("vigor-same", root)
    listed.unlink()
    with pytest.raises(FileNotFoundError, match=r"Seattle/satellite_list.txt is missing; VIGOR is laid out as splits/"):
        load_data("vigor-same", root)
