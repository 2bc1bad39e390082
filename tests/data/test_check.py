import logging

import numpy as np
import pytest
from PIL import Image

from lookalike.data import DATA_SETS, check, load_data
from lookalike.data.check import OFFICIAL, check_data, contact_sheet
from tests.data.miniatures import damage, write_cvact, write_cvusa, write_inshop, write_msmarco, write_sop, write_vigor
from tests.processes import command_line, run_function
from tests.toys import write_glyph_file


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOKALIKE_CACHE", str(tmp_path / "cache"))


def run(*arguments, cwd):
    return run_function(command_line, "data", *arguments, cwd=cwd)


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
    monkeypatch.setitem(OFFICIAL, "cvusa", {"training pairs": 6, "test queries": 4, "test references": 4})
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


def test_as_typed(tmp_path):
    shown = run("check", "sop", write_sop(tmp_path / "own"), cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (1, "")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.stdout.splitlines() if "│" in line]
    assert rows[0] == ["training images", "24", "59,551", "differs"]
    with Image.open(tmp_path / "contact-sheet-sop.png") as page:
        assert page.height > 128
    shown = run("check", "msmarco", write_msmarco(tmp_path / "texts"), cwd=tmp_path)
    assert "question 17\n  passage 3" in shown.stdout
    glyphs = write_glyph_file(tmp_path / "own.npz")
    shown = run("check", glyphs, "--sheet", tmp_path / "glyphs.png", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert (tmp_path / "glyphs.png").exists()
    shown = run("check", "sop", tmp_path / "absent", cwd=tmp_path)
    assert shown.returncode == 2
    assert shown.stderr.startswith(
        f"lookalike: {tmp_path / 'absent'} is not a folder; SOP is laid out as Ebay_train.txt"
    )
    assert len(shown.stderr.splitlines()) == 1


def test_the_list_names_all(tmp_path):
    shown = run("list", cwd=tmp_path)
    assert [line.split()[0] for line in shown.stdout.splitlines()] == list(DATA_SETS)
    assert check.PAIRS == 12
