import logging
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from lookalike.data import data_sets, load_data
from lookalike.data.check import check_data, contact_sheet
from tests.data.miniatures import (
    damage,
    write_csv,
    write_cvact,
    write_cvusa,
    write_inshop,
    write_msmarco,
    write_sop,
    write_vigor,
)
from tests.toys import write_glyph_file

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


def test_as_typed(tmp_path, run_here):
    code, out, err = run_here("data", "check", "sop", write_sop(tmp_path / "own"))
    assert (code, err) == (1, "")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    assert rows[0] == ["training images", "24", "59,551", "differs"]
    with Image.open(tmp_path / "contact-sheet-sop.png") as page:
        assert page.height > 128
    out = run_here("data", "check", "msmarco", write_msmarco(tmp_path / "texts"))[1]
    assert "question 17\n  passage 3" in out
    glyphs = write_glyph_file(tmp_path / "own.npz")
    code, _, err = run_here("data", "check", glyphs, "--sheet", tmp_path / "glyphs.png")
    assert (code or 0, err) == (0, "")
    assert (tmp_path / "glyphs.png").exists()
    code, _, err = run_here("data", "check", "sop", tmp_path / "absent")
    assert code == 2
    assert err.startswith(f"lookalike: {tmp_path / 'absent'} is not a folder; SOP is laid out as Ebay_train.txt")
    assert len(err.splitlines()) == 1


def test_options_of_the_reader(tmp_path, run_here):
    path = write_csv(tmp_path / "claim_evid.csv", ("claim", "evidence"), [(f"q{i}", f"a{i}") for i in range(40)])
    assert "claim, evidence" in run_here("data", "check", "texts", path)[2]
    code, out, _ = run_here("data", "check", "texts", path, "--data-option", "columns=claim,evidence")
    assert not code
    assert out.startswith("Columns claim and evidence of claim_evid.csv: ")
    assert check_data("texts", path, columns=("claim", "evidence")).complete


def test_the_list_names_all(run_here):
    out = run_here("data", "list")[1]
    assert [line.split()[0] for line in out.splitlines()] == list(data_sets())
