"""Draw characters in the twelve DejaVu faces that come with matplotlib, so that training needs no download.

The class of an image is its code point; its views are the faces. Glyphs are drawn once and then read from the cache
folder.
"""

import hashlib
import logging
import zipfile
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from lookalike.utils.arrays import Array
from lookalike.utils.components import connected_rows
from lookalike.utils.files import cache_folder, replacing
from lookalike.utils.progress import progress_bar

logger = logging.getLogger("lookalike")

FACES = (
    "DejaVuSans",
    "DejaVuSerif",
    "DejaVuSansMono",
    "DejaVuSans-Bold",
    "DejaVuSerif-Bold",
    "DejaVuSansMono-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSerif-Italic",
    "DejaVuSansMono-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSerif-BoldItalic",
    "DejaVuSansMono-BoldOblique",
)
SIDE = 32  # pixels
OVERSAMPLING = 4  # draw larger and average, which hides hinting: it differs between versions of FreeType
EM = 26  # pixels per em, which leaves room for accents and descenders
BASELINE = 24  # rows from the top
FORMAT = 1  # version of the cached file


@dataclass(frozen=True)
class Glyphs:
    """Images of characters, sorted by code point, then face."""

    images: Array  # uint8 [n, 32, 32], 0 (paper) to 15 (ink)
    codepoints: Array  # int32 [n]
    faces: Array  # uint8 [n], a position in `face_names`
    face_names: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    @property
    def checksum(self) -> str:
        """Checksum of images, code points and faces."""
        digest = hashlib.sha256()
        for array in (self.images, self.codepoints.astype("<i4"), self.faces):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def load_glyphs(path: str | Path | None = None, *, progress: bool = False) -> Glyphs:
    """Read glyphs from a file; without a path, those of DejaVu, which are drawn at first use.

    A file of glyphs is an `.npz` archive of `packed`, uint8 `[n, 512]` (32 x 32 pixels of 4 bits, high nibble first),
    `codepoint`, `face` and the names `faces`. Draw other fonts into such a file to train on them.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a file of glyphs.
    """
    if path is not None:
        return _read(Path(path))
    cached = cache_folder() / f"glyphs-{FORMAT}-{_fonts_checksum()}.npz"
    if cached.exists():
        try:
            return _read(cached)
        except ValueError as error:
            logger.warning("the cached glyphs are damaged; drawing them again: %s", error)
    glyphs = draw_glyphs(progress=progress)
    try:
        _write(cached, glyphs)
    except OSError as error:
        logger.warning("cannot cache the glyphs, so they will be drawn again next time: %s", error)
    return glyphs


def draw_glyphs(*, progress: bool = False) -> Glyphs:
    """Draw every code point that at least two faces have, in all of these faces."""
    from PIL import ImageFont  # noqa: PLC0415 - only drawing needs it

    fonts = [
        ImageFont.truetype(str(path), EM * OVERSAMPLING, layout_engine=ImageFont.Layout.BASIC) for path in _font_files()
    ]
    characters = _characters()
    images, codepoints, faces = [], [], []
    with progress_bar("drawing glyphs (once)", len(characters), shown=progress) as bar:
        for codepoint, face_ids in characters:
            drawn = [(face, image) for face in face_ids if (image := _draw(fonts[face], chr(codepoint))).any()]
            if len(drawn) > 1:
                images += [image for _, image in drawn]
                faces += [face for face, _ in drawn]
                codepoints += [codepoint] * len(drawn)
            bar.advance(1)
    return Glyphs(np.stack(images), np.array(codepoints, np.int32), np.array(faces, np.uint8), FACES)


def is_glyph_file(path: Path) -> bool:
    """Return whether an `.npz` file holds glyphs, from the names of its arrays."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {"packed.npy", "codepoint.npy", "face.npy"} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def identical_shapes(glyphs: Glyphs) -> list[list[int]]:
    """Return groups of code points that look the same, such as the Latin, Greek and Cyrillic A.

    Two code points look the same if their images are equal in at least two faces and in at least half of the faces that
    have both. They cannot be told apart, so they would be false negatives of each other.
    """
    images: dict[int, dict[int, bytes]] = {}  # of a code point, by face
    for image, codepoint, face in zip(glyphs.images, glyphs.codepoints, glyphs.faces, strict=True):
        images.setdefault(int(codepoint), {})[int(face)] = image.tobytes()
    twins: dict[tuple[int, bytes], list[int]] = {}  # code points with the same image in a face
    for codepoint, drawn in images.items():
        for image_in_face in drawn.items():
            twins.setdefault(image_in_face, []).append(codepoint)
    equal_faces = Counter(pair for codepoints in twins.values() for pair in combinations(codepoints, 2))
    alike = [
        (first, second)
        for (first, second), times in equal_faces.items()
        if times >= max(2, len(images[first].keys() & images[second].keys()) / 2)
    ]
    groups: dict[int, set[int]] = {}
    for component, pair in zip(connected_rows(np.array(alike, np.int64).reshape(-1, 2)).tolist(), alike, strict=True):
        groups.setdefault(component, set()).update(pair)
    return sorted(sorted(group) for group in groups.values())


def _font_files() -> list[Path]:
    import matplotlib as mpl  # noqa: PLC0415 - only drawing needs it

    return [Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf" for face in FACES]


def _fonts_checksum() -> str:
    digest = hashlib.sha256()
    for path in _font_files():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _characters() -> list[tuple[int, list[int]]]:
    """Return the code points that at least two faces have, with these faces."""
    from fontTools.ttLib import TTFont  # noqa: PLC0415 - only drawing needs it

    faces: dict[int, list[int]] = {}
    for face, path in enumerate(_font_files()):
        with TTFont(path, lazy=True) as font:
            for codepoint in font.getBestCmap():
                faces.setdefault(codepoint, []).append(face)
    return sorted((codepoint, having) for codepoint, having in faces.items() if len(having) > 1)


def _draw(font: Any, character: str) -> Array:
    """Draw a character as uint8 [32, 32]: centred on a common baseline, shifted or shrunk if it does not fit."""
    from PIL import Image, ImageDraw  # noqa: PLC0415 - only drawing needs it

    canvas = SIDE * OVERSAMPLING
    left, top, right, bottom = font.getbbox(character, anchor="ls")
    if max(right - left, bottom - top) > canvas:
        font = font.font_variant(size=int(font.size * canvas / max(right - left, bottom - top)))
        left, top, right, bottom = font.getbbox(character, anchor="ls")
    x = (canvas - left - right) // 2
    y = min(max(BASELINE * OVERSAMPLING, -top), canvas - bottom)
    image = Image.new("L", (canvas, canvas))
    ImageDraw.Draw(image).text((x, y), character, fill=255, font=font, anchor="ls")
    pixels = np.asarray(image, np.float32).reshape(SIDE, OVERSAMPLING, SIDE, OVERSAMPLING).mean((1, 3))
    quantised: Array = np.rint(pixels * (15 / 255)).astype(np.uint8)
    return quantised


def _read(path: Path) -> Glyphs:
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file of glyphs.")
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            arrays = {name: file[name] for name in file.files}
        order = np.lexsort((arrays["face"], arrays["codepoint"]))
        packed, codepoints, faces = (arrays[name][order] for name in ("packed", "codepoint", "face"))
        glyphs = Glyphs(
            np.stack([packed >> 4, packed & 15], axis=2).reshape(-1, SIDE, SIDE),
            codepoints.astype(np.int32),
            faces.astype(np.uint8),
            tuple(str(name) for name in arrays["faces"]),
        )
    except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not a file of glyphs, an .npz with packed [n, 512], codepoint, face and faces: {error}."
        ) from None
    if "checksum" in arrays and str(arrays["checksum"]) != glyphs.checksum:
        raise ValueError(f"{path} does not have the checksum it was written with.")
    if not len(glyphs.images) == len(glyphs.codepoints) == len(glyphs.faces) > 0:
        raise ValueError(f"{path} must have one code point and one face per image, and at least one image.")
    return glyphs


def _write(path: Path, glyphs: Glyphs) -> None:
    """Write the file whole or not at all: another process may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flat = glyphs.images.reshape(len(glyphs), SIDE * SIDE // 2, 2)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            packed=(flat[..., 0] << 4) | flat[..., 1],
            codepoint=glyphs.codepoints,
            face=glyphs.faces,
            faces=np.array(glyphs.face_names),
            checksum=np.array(glyphs.checksum),
        )
