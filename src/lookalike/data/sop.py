"""Stanford Online Products: photographs of products, a class each; half of the classes train, half test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.data.build import labelled_images
from lookalike.data.folders import opened_root, required, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.images import Size
    from lookalike.data.retrieval import RetrievalData

LAYOUT = """
Ebay_train.txt and Ebay_test.txt (image_id class_id super_class_id path)
bicycle_final/ to toaster_final/ with the images, as Stanford_Online_Products.zip holds them
"""
OFFICIAL = {"training images": 59_551, "training classes": 11_318, "test images": 60_502, "test classes": 11_316}


def sop(
    root: str | Path | None, *, size: Size = 384, augment: bool = True, on_error: str = "stop", progress: bool = False
) -> RetrievalData:
    """Stanford Online Products, from the folder that holds `Ebay_train.txt`.

    Every test image is searched among all others of the test.

    Args:
        root: The folder.
        size: Height and width the images are brought to, or one number for both.
        augment: Augment in training.
        on_error: "stop" at an image that cannot be read, or "skip": decode all of them now, once, and leave those out.
        progress: Show a bar where that takes long.

    Raises:
        FileNotFoundError: A list or the images are not there.
    """
    folder = opened_root("SOP", root, LAYOUT)
    paths: list[Path] = []
    classes: list[str] = []
    is_training: list[bool] = []
    for split in ("train", "test"):
        rows = rows_of(required("SOP", folder, f"Ebay_{split}.txt", LAYOUT), 4, skip=1)
        required("SOP", folder, rows[0][3], LAYOUT)
        paths += [folder / row[3] for row in rows]
        classes += [row[1] for row in rows]
        is_training += [split == "train"] * len(rows)
    is_official = len(paths) == OFFICIAL["training images"] + OFFICIAL["test images"]
    title = "Stanford Online Products" if is_official else f"{folder.name}, laid out as SOP"
    return labelled_images(
        "sop",
        title,
        paths,
        classes,
        is_training,
        size=size,
        augment=augment,
        on_error=on_error,
        progress=progress,
    )
