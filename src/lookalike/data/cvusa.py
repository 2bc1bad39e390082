"""CVUSA: panoramas from the street, searched for among aerial images of the same places, centred and aligned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.data.augment import Augmentation
from lookalike.data.build import paired_images
from lookalike.data.folders import opened_root, required, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.images import Size
    from lookalike.data.retrieval import RetrievalData

LAYOUT = """
splits/train-19zl.csv and splits/val-19zl.csv (bingmap/19/N.jpg,streetview/panos/N.jpg,...)
bingmap/19/ with the aerial images and streetview/panos/ with the panoramas
"""
OFFICIAL = {"training pairs": 35_532, "test queries": 8_884, "test references": 8_884}
STREET, AERIAL = (112, 616), (384, 384)  # as in the paper


def cvusa(
    root: str | Path | None,
    *,
    query_size: Size = STREET,
    reference_size: Size = AERIAL,
    augment: bool = True,
    on_error: str = "stop",
    progress: bool = False,
) -> RetrievalData:
    """CVUSA, from the folder that holds `splits`; the query is the panorama, the reference the aerial image.

    Args:
        root: The folder.
        query_size: Height and width of panoramas.
        reference_size: Height and width of aerial images; square, where they are augmented.
        augment: Augment in training, both views of a place alike.
        on_error: "stop" at an image that cannot be read, or "skip": decode all of them now, once, and leave those out.
        progress: Show a bar where that takes long.

    Raises:
        FileNotFoundError: A list or the images are not there.
    """
    folder = opened_root("CVUSA", root, LAYOUT)
    parts = []
    for split in ("train", "val"):
        listed = required("CVUSA", folder, [f"splits/{split}-19zl.csv", f"{split}-19zl.csv"], LAYOUT)
        rows = rows_of(listed, 2, separator=",")
        for first in rows[0][:2]:
            required("CVUSA", folder, first.strip(), LAYOUT)
        parts.append([(folder / row[1].strip(), folder / row[0].strip()) for row in rows])
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
