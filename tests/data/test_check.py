import logging
from dataclasses import replace

import numpy as np
import pytest

from lookalike.data import data_sets, load_data
from lookalike.data.check import check_data, contact_sheet
from tests.data.miniatures import (
    damage,
    write_cvact,
    write_cvusa,
    write_inshop,
    write_msmarco,
    write_sop,
    write_vigor,
)

pytestmark = pytest.mark.usefixtures("cache")

OFFICIAL = {name: entry.official for name, entry in data_sets().items() if entry.official}


@pytest.mark.parametrize("name", OFFICIAL)
def test_every_official_count_is_counted(tmp_path, name):
    write = {"sop": write_sop, "inshop": write_inshop, "cvusa": write_cvusa, "msmarco": write_msmarco}
    writer = write.get(name, write_vigor if name.startswith("vigor") else write_cvact)
    (tmp_path / "own").mkdir()
    writer(tmp_path / "own")
    assert set(load_data(name, tmp_path / "own").counts) == set(OFFICIAL[name])
    report = check_data(name, tmp_path / "own")
    assert not report.complete  # miniature
    assert not report.bad
    assert 1 < len(report.pairs) <= 12


def test_a_complete_set_and_its_contact_sheet(tmp_path, monkeypatch):
    root = write_cvusa(tmp_path / "own")
    counts = {"training pairs": 6, "test queries": 4, "test references": 4}
    monkeypatch.setitem(data_sets(), "cvusa", replace(data_sets()["cvusa"], official=counts))
    report = check_data("cvusa", root, decode=True)
    assert report.complete
    page = np.asarray(contact_sheet(report.pairs))
    assert page.shape == (2 * 136 + 8, 3 * (704 + 128 + 16) + 8, 3)
    assert page[8, 8].tolist() == [0, 255, 7]  # the panorama of the first pair
    assert page[8, 8 + 704].tolist() == [100, 155, 7]  # and its aerial image
    assert page[0, 0].tolist() == [255] * 3
    with pytest.raises(TypeError, match="pairs of images"):
        contact_sheet([("question", "answer")])


def test_bad_images_are_named(tmp_path, caplog):
    root = write_sop(tmp_path / "own")
    (root / "chair_final" / "0003_2.JPG").unlink()
    damage(root / "chair_final" / "0004_0.JPG")
    with caplog.at_level(logging.WARNING, "lookalike"):
        assert [path.name for path in check_data("sop", root).bad] == ["0003_2.JPG"]
        assert [path.name for path in check_data("sop", root, decode=True).bad] == ["0003_2.JPG", "0004_0.JPG"]
