import logging
import shutil

import numpy as np
import pytest

from lookalike.data import glyphs as module
from lookalike.data.glyphs import FACES, Glyphs, identical_shapes, load_glyphs
from tests.toys import write_glyph_file


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


def test_drawn_once_then_read_from_the_cache(tmp_path, monkeypatch, dejavu):
    monkeypatch.setenv("LOOKALIKE_CACHE", str(tmp_path / "new" / "folder"))
    monkeypatch.setattr(module, "draw_glyphs", lambda **_: dejavu)
    assert load_glyphs() is dejavu
    monkeypatch.setattr(module, "draw_glyphs", None)  # must not be called again
    again = load_glyphs()
    assert again.checksum == dejavu.checksum
    assert np.array_equal(again.images, dejavu.images)


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_cache_is_drawn_again(tmp_path, monkeypatch, caplog, dejavu, damage):
    monkeypatch.setenv("LOOKALIKE_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "draw_glyphs", lambda **_: dejavu)
    load_glyphs()
    (cached,) = tmp_path.iterdir()
    if damage == "cut":
        cached.write_bytes(cached.read_bytes()[:5000])
    else:
        with np.load(cached) as file:
            arrays = dict(file)
        arrays["packed"][100] ^= 1
        np.savez(cached, **arrays)
    with caplog.at_level(logging.WARNING, "lookalike"):
        assert load_glyphs() is dejavu
    assert "damaged" in caplog.text
    assert load_glyphs().checksum == dejavu.checksum


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch, caplog, dejavu):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOOKALIKE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(module, "draw_glyphs", lambda **_: dejavu)
    assert load_glyphs() is dejavu
    assert "cannot cache the glyphs" in caplog.text


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
