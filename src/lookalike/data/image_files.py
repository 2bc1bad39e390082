"""Read images from files: decoded with Pillow, converted to RGB, resized, several at a time."""

from __future__ import annotations

import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from lookalike.data.fingerprints import checksum
from lookalike.utils.checks import checked_positive
from lookalike.utils.files import cache_folder, write_text
from lookalike.utils.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.utils.arrays import Array

logger = logging.getLogger("lookalike")

KEPT_BYTES = 2 << 30  # smaller sets are decoded once and stay in memory
THREADS = min(16, os.cpu_count() or 1)
ON_ERROR = ("stop", "skip")
DAMAGE = (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError)  # what Pillow raises

Size = int | tuple[int, int]


class ImageFiles:
    """Images by their position in a list of files; `Items`.

    Args:
        paths: The files.
        size: Height and width to resize the images to, or one number for both.
        crop: Fraction of the height to keep, around the middle, before resizing.
        kept_bytes: Keep decoded images in memory if all of them take no more than this.
    """

    def __init__(self, paths: Sequence[Path], size: Size, *, crop: float = 1.0, kept_bytes: int = KEPT_BYTES) -> None:
        self.paths, self.crop = list(paths), crop
        self.size = checked_size(size)
        if not 0 < crop <= 1:
            raise ValueError(f"crop must be the fraction of the height to keep, above 0 and at most 1, got {crop}.")
        self._keeps = len(self.paths) * 3 * self.size[0] * self.size[1] <= kept_bytes
        self._kept: Tensor | None = None
        self._decoded = np.zeros(len(self.paths), bool)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.paths)

    def read(self, ids: Array) -> Tensor:
        """Return images by number, uint8 `[n, 3, height, width]`.

        Raises:
            ValueError: An image is missing or cannot be decoded; the message names its path.
        """
        if not self._keeps:
            return self._read(ids)
        if self._kept is None:
            self._kept = torch.empty((len(self), 3, *self.size), dtype=torch.uint8)
        absent = np.unique(ids[~self._decoded[ids]])
        if len(absent):
            self._kept[torch.from_numpy(absent)] = self._read(absent)
            self._decoded[absent] = True
        return self._kept[torch.from_numpy(ids)]

    def _read(self, ids: Array) -> Tensor:
        images = torch.empty((len(ids), 3, *self.size), dtype=torch.uint8)
        with ThreadPoolExecutor(THREADS, "lookalike-images") as pool:
            decode = partial(read_image, size=self.size, crop=self.crop)
            for i, image in enumerate(pool.map(decode, [self.paths[i] for i in ids.tolist()])):
                images[i] = torch.from_numpy(image)
        return images


def read_image(path: Path, size: tuple[int, int], crop: float = 1.0) -> Array:
    """Read an image as uint8 `[3, height, width]`.

    Raises:
        ValueError: It is missing or cannot be decoded; the message names its path.
    """
    try:
        with Image.open(path) as image:
            return to_array(image, size, crop)
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such image.") from None
    except DAMAGE as error:
        raise ValueError(
            f"{path} cannot be read as an image: {error}; on_error='skip' leaves such images out."
        ) from None


def to_array(image: Any, size: tuple[int, int], crop: float = 1.0) -> Array:
    """Turn a Pillow image upright according to its EXIF data, and resize it: uint8 `[3, height, width]`."""
    upright = ImageOps.exif_transpose(image).convert("RGB")
    margin = upright.height * (1 - crop) / 2
    box = (0, margin, upright.width, upright.height - margin)
    resized = upright.resize(size[::-1], Image.Resampling.BILINEAR, box)
    return np.ascontiguousarray(np.asarray(resized).transpose(2, 0, 1))


def checked_size(size: Size) -> tuple[int, int]:
    """Return height and width.

    Raises:
        ValueError: `size` is neither a number nor two.
    """
    if not isinstance(size, int) and not (isinstance(size, (tuple, list)) and len(size) == 2):
        raise ValueError(f"size must be a number of pixels, or height and width, got {size!r}.")
    height, width = (size, size) if isinstance(size, int) else size
    return checked_positive("height", height), checked_positive("width", width)


def usable(paths: Sequence[Sequence[Path]], on_error: str, *, progress: bool = False) -> Array:
    """Return which rows of images to use, bool `[n]`.

    Args:
        paths: One or more images per row.
        on_error: "stop" uses all rows; "skip" decodes all images and uses the rows without a bad one.
        progress: Show a progress bar.

    Raises:
        ValueError: `on_error` is something else.
    """
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error must be 'stop' or 'skip', got {on_error!r}.")
    chosen = np.ones(len(paths), bool)
    if on_error == "stop":
        return chosen
    bad = unreadable([path for row in paths for path in row], progress=progress)
    for i, row in enumerate(paths):
        chosen[i] = not any(path in bad for path in row)
    for path in sorted(bad):
        logger.warning("%s cannot be read as an image and is left out.", path)
    return chosen


def unreadable(paths: Sequence[Path], *, progress: bool = False) -> set[Path]:
    """Return the images that are missing or cannot be decoded.

    The first call decodes every image and remembers the bad ones in the cache folder; later calls try only those again.
    """
    names = sorted({str(path) for path in paths})
    cached = cache_folder() / f"unreadable-{checksum(names)}.json"
    suspects = names
    if cached.exists():
        try:
            suspects = json.loads(cached.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            logger.warning("%s is damaged; decoding all images again.", cached)
    bad = []
    with (
        ThreadPoolExecutor(THREADS, "lookalike-images") as pool,
        progress_bar("decoding every image (once)", len(suspects), shown=progress) as bar,
    ):
        for name, works in zip(suspects, pool.map(_decodes, suspects), strict=True):
            if not works:
                bad.append(name)
            bar.advance(1)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_text(cached, json.dumps(bad))
    except OSError as error:
        logger.warning("cannot remember which images are unreadable: %s", error)
    return {Path(name) for name in bad}


def _decodes(name: str) -> bool:
    try:
        with Image.open(name) as image:
            image.draft("RGB", (64, 64))  # for JPEG: reads the whole file, computes little of it
            image.load()
    except DAMAGE:
        return False
    return True
