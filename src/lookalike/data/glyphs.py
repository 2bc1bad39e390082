"""Glyphs: images of characters in several faces; those of the twelve DejaVu faces come with the package.

The class of an image is its code point; its views are the faces. The package has the images and not the fonts: they
take less room, and no other version of FreeType draws them differently.
"""

import hashlib
import zipfile
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from lookalike.utils.arrays import Array
from lookalike.utils.components import connected_rows

SIDE = 32  # pixels
DEJAVU = Path(__file__).with_name("dejavu.npz")  # `python -m benchmarks.prepare.dejavu` draws it


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


def load_glyphs(path: str | Path | None = None) -> Glyphs:
    """Read glyphs from a file; without a path, those of DejaVu, which come with the package.

    A file of glyphs is an `.npz` archive of `packed`, uint8 `[n, 512]` (32 x 32 pixels of 4 bits, high nibble first),
    `codepoint`, `face` and the names `faces`. Draw other fonts into such a file to train on them.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a file of glyphs.
    """
    return _read(DEJAVU if path is None else Path(path))


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
