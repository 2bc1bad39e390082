"""In-shop Clothes Retrieval (DeepFashion): photographs of clothes, searched for in a gallery."""

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
    "InShop",
    """
    Eval/list_eval_partition.txt (a count, a heading, then image_name item_id evaluation_status)
    img/MEN/ and img/WOMEN/ with the images, as Img/img.zip of the benchmark holds them
    """,
)
OFFICIAL = {
    "training images": 25_882,
    "training classes": 3_997,
    "query images": 14_218,
    "gallery images": 12_612,
    "test classes": 3_985,
}


def read(
    root: Path, *, size: Size = 384, augment: bool = True, on_error: str = "stop", progress: bool = False
) -> RetrievalData:
    """Read the folder that holds `Eval` and `img`; `labelled_images` explains the options.

    Raises:
        FileNotFoundError: The list or its first image is missing.
        ValueError: The list assigns an image to an unknown part.
    """
    import numpy as np

    from lookalike.data.augment import Augmentation
    from lookalike.data.build import numbered
    from lookalike.data.fingerprints import checksum
    from lookalike.data.image_files import ImageFiles, usable
    from lookalike.data.parts import Selection, TestItems, labelled
    from lookalike.data.retrieval import RetrievalData

    listed = ROOT.find(root, "Eval/list_eval_partition.txt", "list_eval_partition.txt")
    rows = read_rows(listed, 3, skip=2)
    status = np.array([row[2] for row in rows])
    if unknown := set(status) - {"train", "query", "gallery"}:
        raise ValueError(f"{listed}: expected train, query or gallery in the third column, got {str(unknown.pop())!r}.")
    first = ROOT.find(root, rows[0][0], f"Img/{rows[0][0]}")
    base = root if first == root / rows[0][0] else root / "Img"
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
        test=TestItems(
            query=Selection(images, query),
            reference=Selection(images, gallery),
            query_labels=labels[query],
            reference_labels=labels[gallery],
        ),
        counts=counts,
    )


DATA_SETS = (
    DataSet(
        "inshop",
        "In-shop Clothes Retrieval: photographs, 7,982 classes, query and gallery",
        read,
        PRODUCTS,
        root=ROOT,
        official=OFFICIAL,
    ),
)
