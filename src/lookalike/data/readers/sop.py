"""Stanford Online Products: photographs of products; half of the classes train, half test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.data.paper import PRODUCTS
from lookalike.data.registry import DataSet
from lookalike.data.roots import FolderRoot, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.image_files import Size
    from lookalike.data.retrieval import RetrievalData

ROOT = FolderRoot(
    "SOP",
    """
    Ebay_train.txt and Ebay_test.txt (image_id class_id super_class_id path)
    bicycle_final/ to toaster_final/ with the images, as Stanford_Online_Products.zip holds them
    """,
)
OFFICIAL = {"training images": 59_551, "training classes": 11_318, "test images": 60_502, "test classes": 11_316}


def read(
    root: Path, *, size: Size = 384, augment: bool = True, on_error: str = "stop", progress: bool = False
) -> RetrievalData:
    """Read the folder that holds `Ebay_train.txt`; `labelled_images` explains the options.

    Raises:
        FileNotFoundError: A list or the first image of a list is missing.
    """
    from lookalike.data.build import labelled_images

    paths: list[Path] = []
    classes: list[str] = []
    is_training: list[bool] = []
    for split in ("train", "test"):
        rows = read_rows(ROOT.find(root, f"Ebay_{split}.txt"), 4, skip=1)
        ROOT.find(root, rows[0][3])
        paths += [root / row[3] for row in rows]
        classes += [row[1] for row in rows]
        is_training += [split == "train"] * len(rows)
    is_official = len(paths) == OFFICIAL["training images"] + OFFICIAL["test images"]
    title = "Stanford Online Products" if is_official else f"{root.name}, laid out as SOP"
    return labelled_images(
        "sop", title, paths, classes, is_training, size=size, augment=augment, on_error=on_error, progress=progress
    )


DATA_SETS = (
    DataSet(
        "sop", "Stanford Online Products: photographs, 22,634 classes", read, PRODUCTS, root=ROOT, official=OFFICIAL
    ),
)
