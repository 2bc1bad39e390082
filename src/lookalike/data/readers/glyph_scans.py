"""Scans of characters: the built-in data sets, which come with the package, and files of glyphs from other fonts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lookalike.data.registry import DataSet
from lookalike.data.roots import FileRoot

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.retrieval import RetrievalData


def read_drawn(
    *,
    paired: bool,
    merge_identical: bool = True,
    progress: bool = False,  # noqa: ARG001 - every reader takes it
) -> RetrievalData:
    """Read the DejaVu glyphs, which come with the package; `glyph_scans` explains the options."""
    from lookalike.data.scans import glyph_scans

    return glyph_scans(paired=paired, merge_identical=merge_identical)


def read_file(
    root: Path,
    *,
    paired: bool = False,
    merge_identical: bool = True,
    progress: bool = False,  # noqa: ARG001 - every reader takes it
) -> RetrievalData:
    """Read a file of glyphs, degraded more than the built-in ones; `glyph_scans` explains the options.

    Raises:
        ValueError: The file holds something else.
    """
    from lookalike.data.scans import POOR, glyph_scans

    return glyph_scans(root, paired=paired, merge_identical=merge_identical, degradation=POOR)


LABELLED = DataSet(
    "glyphs",
    "scans of characters, labelled: built in, no download",
    read_drawn,
    {  # few classes, so small batches: in a large batch, random negatives are hard enough
        "settings": {"epochs": 10, "pairs_per_batch": 32},
        "model": {"encoder": "convnet", "width": 24, "dim": 256},
    },
    fixed={"paired": False},
)
DATA_SETS = (
    LABELLED,
    replace(
        LABELLED,
        name="glyphs-paired",
        description="scans of characters, a pair of faces each: built in, no download",
        fixed={"paired": True},
    ),
    DataSet(
        "FILE.npz",
        "scans of characters in your fonts: the path of a file of glyphs",
        read_file,
        {  # for many classes, as in Chinese and Japanese; a GPU helps
            "settings": {"epochs": 12, "pairs_per_batch": 64},
            "model": {"encoder": "convnet", "width": 32, "dim": 256},
        },
        root=FileRoot((".npz",), "file of glyphs"),
        suffix=".npz",
    ),
)
