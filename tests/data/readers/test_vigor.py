from itertools import pairwise

import pytest
import torch

from lookalike import hamming_topk
from lookalike.data import load_data
from tests.data.crossview import SMALL, red
from tests.data.miniatures import damage, write_vigor

pytestmark = pytest.mark.usefixtures("cache")


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
    offsets, hidden = hits.test_exclude
    assert offsets.tolist() == [3 * i for i in range(len(hits.test.query_labels) + 1)]
    assert red(hits.test.references(hidden[:3])) == [105, 106, 107]


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
