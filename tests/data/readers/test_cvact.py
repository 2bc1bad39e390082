import sys

import pytest
import torch

from lookalike.data import load_data
from tests.data.crossview import SMALL, red
from tests.data.miniatures import write_cvact

pytestmark = pytest.mark.usefixtures("cache")


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


def test_cvact_can_be_validated_on_its_validation_set(tmp_path):
    root, _ = write_cvact(tmp_path / "own")
    plain, val = load_data("cvact-test", root, **SMALL), load_data("cvact", root, **SMALL)
    data = load_data("cvact-test", root, validation=True, **SMALL)
    ids = torch.arange(4)
    assert plain.validation is None
    assert torch.equal(data.validation.queries(ids), val.test.queries(ids))
    assert torch.equal(data.validation.query_labels, val.test.query_labels)
    assert red(data.test.queries(torch.arange(5))) == [0, 1, 2, 3, 4]
    assert data.checksum not in (plain.checksum, val.checksum)
    with pytest.raises(ValueError, match="cvact is tested on its validation set: validation=true is an option of"):
        load_data("cvact", root, validation=True, **SMALL)


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
