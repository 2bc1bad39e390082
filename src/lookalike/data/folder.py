"""A folder of images per class, as users bring it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.data.build import labelled_images
from lookalike.data.folders import is_test, opened_root

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.images import Size
    from lookalike.data.retrieval import RetrievalData

LAYOUT = """
CLASS/IMAGE.jpg, as many classes as there are, in folders as deep as you like
or train/CLASS/IMAGE.jpg and test/CLASS/IMAGE.jpg
"""
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
TEST_NAMES = ("test", "val", "valid", "validation")


def folder(
    root: str | Path | None,
    *,
    test_share: float = 0.5,
    size: Size = 384,
    augment: bool = True,
    on_error: str = "stop",
    progress: bool = False,
) -> RetrievalData:
    """Images in a folder per class; the class is the path of the folder.

    With folders `train` and `test` (or `val`) these are the parts; otherwise `test_share` of the classes test, decided
    by their names alone. Every image of the test is searched among all others of the test.

    Args:
        root: The folder.
        test_share: Share of classes to test on, where there are no such folders.
        size: Height and width the images are brought to, or one number for both.
        augment: Augment in training.
        on_error: "stop" at an image that cannot be read, or "skip": decode all of them now, once, and leave those out.
        progress: Show a bar where that takes long.

    Raises:
        FileNotFoundError: There is no such folder, or there are no images in it.
    """
    base = opened_root("folder", root, LAYOUT)
    parts = [base / name for name in TEST_NAMES if (base / name).is_dir()]
    is_split = (base / "train").is_dir() and bool(parts)
    paths: list[Path] = []
    classes: list[str] = []
    training: list[bool] = []
    for part in [base / "train", parts[0]] if is_split else [base]:
        found = sorted(path for path in part.rglob("*") if path.suffix.lower() in SUFFIXES and path.parent != part)
        if not found:
            raise FileNotFoundError(f"{part} has no images in folders below it: expected CLASS/IMAGE.jpg.")
        names = [path.parent.relative_to(part).as_posix() for path in found]
        paths, classes = paths + found, classes + names
        training += [part.name == "train" if is_split else not is_test(name, test_share) for name in names]
    return labelled_images(
        "folder",
        base.name,
        paths,
        classes,
        training,
        size=size,
        augment=augment,
        on_error=on_error,
        progress=progress,
    )
