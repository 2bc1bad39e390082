import shutil

import numpy as np
import pytest

from lookalike.data import glyphs as module
from lookalike.data.glyphs import Glyphs, identical_shapes, load_glyphs
from tests.toys import write_glyph_file

FACES = (
    *("DejaVuSans", "DejaVuSerif", "DejaVuSansMono"),
    *("DejaVuSans-Bold", "DejaVuSerif-Bold", "DejaVuSansMono-Bold"),
    *("DejaVuSans-Oblique", "DejaVuSerif-Italic", "DejaVuSansMono-Oblique"),
    *("DejaVuSans-BoldOblique", "DejaVuSerif-BoldItalic", "DejaVuSansMono-BoldOblique"),
)


@pytest.fixture(scope="module")
def dejavu():
    return load_glyphs()


def test_every_character_is_drawn_in_every_face_that_has_it(dejavu):
    assert dejavu.face_names == FACES
    codepoints, counts = np.unique(dejavu.codepoints, return_counts=True)
    assert len(codepoints) > 5900
    assert (counts == 12).sum() > 2300
    assert counts.min() == 2
    assert dejavu.images.max() == 15
    assert (dejavu.images.reshape(len(dejavu), -1).max(1) > 0).all()
    order = dejavu.codepoints.astype(np.int64) * 16 + dejavu.faces
    assert (np.diff(order) > 0).all()


def test_pictures_show_what_they_should(dejavu):
    def drawn(character, face="DejaVuSans"):
        return dejavu.images[(dejavu.codepoints == ord(character)) & (dejavu.faces == FACES.index(face))][0]

    assert drawn("|").sum(0).argmax() in (15, 16)  # centred
    assert drawn("O").sum() > 1.2 * drawn("o").sum()  # sizes are kept
    assert drawn("_")[:20].sum() == 0  # and so is the place on the line
    assert drawn("'")[16:].sum() == 0
    assert drawn("A", "DejaVuSans-Bold").sum() > 1.2 * drawn("A").sum()
    assert (drawn("I", "DejaVuSerif") != drawn("I")).any()


def test_letters_that_look_the_same_are_found(dejavu):
    groups = {chr(codepoint): {chr(c) for c in group} for group in identical_shapes(dejavu) for codepoint in group}
    assert {"A", "\u0391", "\u0410"} <= groups["A"]  # Latin, Greek, Cyrillic
    assert {"o", "\u03bf", "\u043e"} <= groups["o"]
    assert "a" not in groups["A"]
    assert "B" not in groups["A"]
    for different in "QRbdg3":
        assert groups.get(different, {different}) & set("ABCDEFGHIabcdefghi0123456789QR") == {different}


def test_identical_shapes_need_two_faces_and_half_of_the_shared_ones():
    pictures = np.zeros((10, 32, 32), np.uint8)
    pictures[:, 0, 0] = [1, 2, 3, 1, 2, 3, 1, 2, 9, 8]
    codepoints = np.array([65, 65, 65, 66, 66, 66, 67, 67, 67, 68])
    faces = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
    glyphs = Glyphs(pictures, codepoints, faces, ("a", "b", "c"))
    assert identical_shapes(glyphs) == [[65, 66, 67]]
    pictures[7, 0, 0] = 7  # now 67 agrees with the others in one face of three only
    assert identical_shapes(glyphs) == [[65, 66]]


def test_the_glyphs_are_those_that_earlier_runs_trained_on(dejavu):
    assert dejavu.checksum == "c8def6b9b4ba0f8b"  # part of a run's settings: another one could not resume


def test_drawing_gives_the_images_of_the_package(dejavu):
    drawing = pytest.importorskip("benchmarks.prepare.dejavu", exc_type=ImportError)  # needs the bench extra
    assert drawing.FACES == FACES
    for face in (0, 7):
        font = drawing.open_font(face)
        for image in np.flatnonzero(dejavu.faces == face)[::400]:
            assert np.array_equal(drawing.draw(font, chr(dejavu.codepoints[image])), dejavu.images[image])


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    damaged = tmp_path / "damaged.npz"
    if damage == "cut":
        damaged.write_bytes(module.DEJAVU.read_bytes()[:5000])
    else:
        with np.load(module.DEJAVU) as file:
            arrays = dict(file)
        arrays["packed"][100] ^= 1
        np.savez(damaged, **arrays)
    with pytest.raises(
        ValueError, match="is not a file of glyphs" if damage == "cut" else "does not have the checksum"
    ):
        load_glyphs(damaged)


def test_files_of_ones_own(tmp_path):
    glyphs = load_glyphs(write_glyph_file(tmp_path / "own.npz"))
    assert len(glyphs) == 120
    assert glyphs.face_names == ("face 0", "face 1", "face 2")
    with pytest.raises(FileNotFoundError, match="no such file of glyphs"):
        load_glyphs(tmp_path / "absent.npz")
    np.savez(tmp_path / "other.npz", packed=np.zeros((3, 512), np.uint8))
    with pytest.raises(ValueError, match="is not a file of glyphs"):
        load_glyphs(tmp_path / "other.npz")
    shutil.copy(__file__, tmp_path / "text.npz")
    with pytest.raises(ValueError, match="is not a file of glyphs"):
        load_glyphs(tmp_path / "text.npz")
