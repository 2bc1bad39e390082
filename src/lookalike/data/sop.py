"""Stanford Online Products: photographs of products, a class each; half of the classes train, half test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lookalike.data.augment import Augmentation
from lookalike.data.folders import checksum, numbered, opened_root, required, rows_of
from lookalike.data.images import ImageFiles, Size, usable
from lookalike.data.parts import labelled, searched_in_itself
from lookalike.data.retrieval import RetrievalData

if TYPE_CHECKING:
    from pathlib import Path

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
    chosen = usable([[path] for path in paths], on_error, progress=progress)
    labels, training = numbered(classes), np.array(is_training)
    train, test = np.flatnonzero(training & chosen), np.flatnonzero(~training & chosen)
    images = ImageFiles(paths, size)
    part, itself = searched_in_itself(images, test, labels[test])
    counts = {
        "training images": len(train),
        "training classes": len(np.unique(labels[train])),
        "test images": len(test),
        "test classes": len(np.unique(labels[test])),
    }
    return RetrievalData(
        name="sop",
        description=f"Stanford Online Products: {counts['training images']:,} images of "
        f"{counts['training classes']:,} classes to train, {counts['test images']:,} of "
        f"{counts['test classes']:,} others to test",
        checksum=checksum("sop", images.size, [row.as_posix()[len(str(folder)) :] for row in paths], classes, chosen),
        train=labelled(images, train, labels[train], Augmentation() if augment else None),
        test=part,
        counts=counts,
        test_exclude=itself,
    )
