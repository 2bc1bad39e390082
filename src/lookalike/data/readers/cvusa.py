"""CVUSA: street panoramas, searched for among aerial images of the same places, centred and aligned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.data.paper import CROSS_VIEW
from lookalike.data.registry import DataSet
from lookalike.data.roots import FolderRoot, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.image_files import Size
    from lookalike.data.retrieval import RetrievalData

ROOT = FolderRoot(
    "CVUSA",
    """
    splits/train-19zl.csv and splits/val-19zl.csv (bingmap/19/N.jpg,streetview/panos/N.jpg,...)
    bingmap/19/ with the aerial images and streetview/panos/ with the panoramas
    """,
)
OFFICIAL = {"training pairs": 35_532, "test queries": 8_884, "test references": 8_884}


def read(
    root: Path,
    *,
    query_size: Size = (112, 616),
    reference_size: Size = (384, 384),
    augment: bool = True,
    on_error: str = "stop",
    progress: bool = False,
) -> RetrievalData:
    """Read the folder that holds `splits`; panoramas are queries, aerial images references.

    `paired_images` explains the options. Training augments both views of a place alike, which requires square aerial
    images.

    Raises:
        FileNotFoundError: A list or its first pair of images is missing.
    """
    from lookalike.data.augment import Augmentation
    from lookalike.data.build import paired_images

    parts = []
    for split in ("train", "val"):
        rows = read_rows(ROOT.find(root, f"splits/{split}-19zl.csv", f"{split}-19zl.csv"), 2, separator=",")
        for first in rows[0][:2]:
            ROOT.find(root, first.strip())
        parts.append([(root / row[1].strip(), root / row[0].strip()) for row in rows])
    return paired_images(
        "cvusa",
        "CVUSA",
        *parts,
        query_size=query_size,
        reference_size=reference_size,
        augment=Augmentation(cross_view=True) if augment else None,
        on_error=on_error,
        progress=progress,
    )


DATA_SETS = (
    DataSet(
        "cvusa",
        "CVUSA: street panoramas and aerial images, 44,416 pairs",
        read,
        CROSS_VIEW,
        root=ROOT,
        official=OFFICIAL,
    ),
)
