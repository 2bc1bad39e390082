"""Your own images, a folder per class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.data.paper import PRODUCTS
from lookalike.data.registry import DataSet
from lookalike.data.roots import FolderRoot

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.image_files import Size
    from lookalike.data.retrieval import RetrievalData

ROOT = FolderRoot(
    "folder",
    """
    CLASS/IMAGE.jpg, with any number of classes, nested as deep as you like
    or train/CLASS/IMAGE.jpg and test/CLASS/IMAGE.jpg
    """,
)
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
TEST_NAMES = ("test", "val", "valid", "validation")


def read(
    root: Path,
    *,
    test_share: float = 0.5,
    size: Size = 384,
    augment: bool = True,
    on_error: str = "stop",
    progress: bool = False,
) -> RetrievalData:
    """Read images from a folder per class; the class is the path of the folder.

    Folders `train` and `test` (or `val`) define the split. Without them, `test_share` of the classes are held out for
    the test, by their names alone. `labelled_images` explains the other options.

    Raises:
        FileNotFoundError: There are no images in folders below the root.
    """
    from lookalike.data.build import labelled_images
    from lookalike.data.fingerprints import training_rows

    test_folder = next((root / name for name in TEST_NAMES if (root / name).is_dir()), None)
    is_split = (root / "train").is_dir() and test_folder is not None
    paths: list[Path] = []
    classes: list[str] = []
    training: list[bool] = []
    for part in [root / "train", test_folder] if is_split and test_folder else [root]:
        found = sorted(path for path in part.rglob("*") if path.suffix.lower() in SUFFIXES and path.parent != part)
        if not found:
            raise FileNotFoundError(f"{part} has no images in folders below it: expected CLASS/IMAGE.jpg.")
        names = [path.parent.relative_to(part).as_posix() for path in found]
        paths, classes = paths + found, classes + names
        training += [part.name == "train"] * len(found) if is_split else training_rows(names, test_share)
    return labelled_images(
        "folder", root.name, paths, classes, training, size=size, augment=augment, on_error=on_error, progress=progress
    )


DATA_SETS = (DataSet("folder", "your images, a folder per class", read, PRODUCTS, root=ROOT),)
