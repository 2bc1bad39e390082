"""In-shop Clothes Retrieval (DeepFashion): photographs of clothes, searched for in a gallery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lookalike.data.augment import Augmentation
from lookalike.data.folders import checksum, numbered, opened_root, required, rows_of
from lookalike.data.images import ImageFiles, Size, usable
from lookalike.data.parts import Test, labelled
from lookalike.data.retrieval import RetrievalData

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = """
Eval/list_eval_partition.txt (a count, a heading, then image_name item_id evaluation_status)
img/MEN/ and img/WOMEN/ with the images, as Img/img.zip of the benchmark holds them
"""
OFFICIAL = {
    "training images": 25_882,
    "training classes": 3_997,
    "query images": 14_218,
    "gallery images": 12_612,
    "test classes": 3_985,
}


def inshop(
    root: str | Path | None, *, size: Size = 384, augment: bool = True, on_error: str = "stop", progress: bool = False
) -> RetrievalData:
    """In-shop Clothes Retrieval, from the folder that holds `Eval` and `img`.

    Args:
        root: The folder.
        size: Height and width the images are brought to, or one number for both.
        augment: Augment in training.
        on_error: "stop" at an image that cannot be read, or "skip": decode all of them now, once, and leave those out.
        progress: Show a bar where that takes long.

    Raises:
        FileNotFoundError: The list or the images are not there.
        ValueError: The list has rows of another kind.
    """
    folder = opened_root("InShop", root, LAYOUT)
    listed = required("InShop", folder, ["Eval/list_eval_partition.txt", "list_eval_partition.txt"], LAYOUT)
    rows = rows_of(listed, 3, skip=2)
    status = np.array([row[2] for row in rows])
    if unknown := set(status) - {"train", "query", "gallery"}:
        raise ValueError(f"{listed}: expected train, query or gallery in the third column, got {str(unknown.pop())!r}.")
    first = required("InShop", folder, [rows[0][0], f"Img/{rows[0][0]}"], LAYOUT)
    base = folder if first == folder / rows[0][0] else folder / "Img"
    paths = [base / row[0] for row in rows]
    chosen = usable([[path] for path in paths], on_error, progress=progress)
    labels = numbered(row[1] for row in rows)
    train, query, gallery = (np.flatnonzero((status == part) & chosen) for part in ("train", "query", "gallery"))
    images = ImageFiles(paths, size)
    counts = {
        "training images": len(train),
        "training classes": len(np.unique(labels[train])),
        "query images": len(query),
        "gallery images": len(gallery),
        "test classes": len(np.unique(labels[np.append(query, gallery)])),
    }
    return RetrievalData(
        name="inshop",
        description=f"In-shop Clothes: {len(train):,} images of {counts['training classes']:,} classes to train, "
        f"{len(query):,} queries among {len(gallery):,} images of {counts['test classes']:,} others to test",
        checksum=checksum("inshop", images.size, rows, chosen),
        train=labelled(images, train, labels[train], Augmentation() if augment else None),
        test=Test(
            query_items=images,
            reference_items=images,
            query_ids=query,
            reference_ids=gallery,
            query_labels=labels[query],
            reference_labels=labels[gallery],
        ),
        counts=counts,
    )
