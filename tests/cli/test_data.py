"""`lookalike data list` and `lookalike data check`."""

import pytest
from PIL import Image

from lookalike.data import data_sets
from tests.data.miniatures import damage, write_csv, write_msmarco, write_sop
from tests.toys import write_glyph_file


def test_check(tmp_path, run_here):
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
    assert (code, err) == (0, "")
    assert (tmp_path / "glyphs.png").exists()
    code, _, err = run_here("data", "check", "sop", tmp_path / "absent")
    assert code == 2
    assert err.startswith(f"lookalike: {tmp_path / 'absent'} is not a folder; SOP is laid out as Ebay_train.txt")
    assert len(err.splitlines()) == 1


def test_options_of_the_reader(tmp_path, run_here):
    path = write_csv(tmp_path / "claim_evid.csv", ("claim", "evidence"), [(f"q{i}", f"a{i}") for i in range(40)])
    assert "claim, evidence" in run_here("data", "check", "texts", path)[2]
    code, out, _ = run_here("data", "check", "texts", path, "--data-option", "columns=claim,evidence")
    assert code == 0
    assert out.startswith("Columns claim and evidence of claim_evid.csv: ")


def test_list(run_here):
    out = run_here("data", "list")[1]
    assert [line.split()[0] for line in out.splitlines()] == list(data_sets())


def test_bad_images_are_named(tmp_path, run_here):
    root = write_sop(tmp_path / "own")
    (root / "chair_final" / "0003_2.JPG").unlink()
    damage(root / "chair_final" / "0004_0.JPG")
    code, out, _ = run_here("data", "check", "sop", root, "--decode")
    assert code == 1
    assert "0003_2.JPG is missing" in out
    assert "0004_0.JPG cannot be read" in out
    assert "2 images are missing or unreadable." in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("list", "sop"), "unexpected argument 'sop'."),
        (("check", "spo"), "there is no data set 'spo'"),
        (("check", "sop", "--decod"), "there is no option '--decod'; did you mean '--decode'?"),
    ],
)
def test_mistakes_are_one_line(run_here, arguments, sentence):
    code, _, err = run_here("data", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert sentence in err
