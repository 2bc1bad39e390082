"""Draw the glyphs that come with the package, in the twelve DejaVu faces that matplotlib brings.

python -m benchmarks.prepare.dejavu (with lookalike[bench]; takes a minute, prints the checksum of the images)
"""

import zipfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw, ImageFont

from lookalike.data.glyphs import DEJAVU, SIDE, Glyphs
from lookalike.utils.arrays import Array
from lookalike.utils.files import replacing
from lookalike.utils.progress import progress_bar

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
OVERSAMPLING = 4  # draw larger and average, which hides hinting: it differs between versions of FreeType
EM = 26  # pixels per em, which leaves room for accents and descenders
BASELINE = 24  # rows from the top


def main() -> None:
    """Draw the glyphs and write them into the package."""
    glyphs = draw_glyphs(progress=True)
    write_glyphs(DEJAVU, glyphs)
    print(f"Written: {DEJAVU}, {DEJAVU.stat().st_size:,} bytes, checksum {glyphs.checksum}")


def draw_glyphs(*, progress: bool = False) -> Glyphs:
    """Draw every code point that at least two faces have, in all of these faces."""
    fonts = [open_font(face) for face in range(len(FACES))]
    characters = _characters()
    images, codepoints, faces = [], [], []
    with progress_bar("drawing glyphs (once)", len(characters), shown=progress) as bar:
        for codepoint, face_ids in characters:
            drawn = [(face, image) for face in face_ids if (image := draw(fonts[face], chr(codepoint))).any()]
            if len(drawn) > 1:
                images += [image for _, image in drawn]
                faces += [face for face, _ in drawn]
                codepoints += [codepoint] * len(drawn)
            bar.advance(1)
    return Glyphs(np.stack(images), np.array(codepoints, np.int32), np.array(faces, np.uint8), FACES)


def open_font(face: int) -> Any:
    """Open a face, by its position in `FACES`, in the size to draw it in."""
    return ImageFont.truetype(str(_font_files()[face]), EM * OVERSAMPLING, layout_engine=ImageFont.Layout.BASIC)


def write_glyphs(path: Path, glyphs: Glyphs) -> None:
    """Write a file of glyphs, compressed with LZMA: half the size that NumPy's own compression gives."""
    flat = glyphs.images.reshape(len(glyphs), SIDE * SIDE // 2, 2)
    arrays = {
        "packed": (flat[..., 0] << 4) | flat[..., 1],
        "codepoint": glyphs.codepoints,
        "face": glyphs.faces,
        "faces": np.array(glyphs.face_names),
        "checksum": np.array(glyphs.checksum),
    }
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")  # with a fixed date: the same glyphs give the same file
            info.compress_type = zipfile.ZIP_LZMA
            with archive.open(info, "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _font_files() -> list[Path]:
    return [Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf" for face in FACES]


def _characters() -> list[tuple[int, list[int]]]:
    """Return the code points that at least two faces have, with these faces."""
    faces: dict[int, list[int]] = {}
    for face, path in enumerate(_font_files()):
        with TTFont(path, lazy=True) as font:
            for codepoint in font.getBestCmap():
                faces.setdefault(codepoint, []).append(face)
    return sorted((codepoint, having) for codepoint, having in faces.items() if len(having) > 1)


def draw(font: Any, character: str) -> Array:
    """Draw a character as uint8 [32, 32]: centred on a common baseline, shifted or shrunk if it does not fit."""
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


if __name__ == "__main__":
    main()
