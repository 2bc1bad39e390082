"""CVACT: panoramas of Canberra, searched for among aerial images; a validation set and a large test set."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.data.augment import Augmentation
from lookalike.data.build import paired_images
from lookalike.data.cvusa import AERIAL, STREET
from lookalike.data.folders import opened_root, required
from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.images import Size
    from lookalike.data.retrieval import RetrievalData

logger = logging.getLogger("lookalike")

LAYOUT = """
ACT_data.mat (panoIds, trainSet, valSet)
ANU_data_small/streetview/ID_grdView.jpg and ANU_data_small/satview_polish/ID_satView_polish.jpg
ANU_data_test/streetview/ and ANU_data_test/satview_polish/ likewise, for the test set
"""
OFFICIAL = {"training pairs": 35_532, "test queries": 8_884, "test references": 8_884}
OFFICIAL_TEST = {"training pairs": 35_532, "test queries": 92_802, "test references": 92_802}
STREET_NAME, AERIAL_NAME = "_grdView.jpg", "_satView_polish.jpg"
MISSING_SHARE = 0.01  # of the pairs may be missing: the archives lack some


def cvact(
    root: str | Path | None,
    *,
    split: str = "val",
    query_size: Size = STREET,
    reference_size: Size = AERIAL,
    crop: float = 1.0,
    augment: bool = True,
    on_error: str = "stop",
    progress: bool = False,
) -> RetrievalData:
    """CVACT, from the folder that holds `ACT_data.mat`; the query is the panorama, the reference the aerial image.

    Args:
        root: The folder.
        split: What to test on: "val", as listed, or "test", all pairs of `ANU_data_test`.
        query_size: Height and width of panoramas.
        reference_size: Height and width of aerial images; square, where they are augmented.
        crop: Share of a panorama's height that is kept, around the horizon: 0.5 in some published code.
        augment: Augment in training, both views of a place alike.
        on_error: "stop" at an image that cannot be read, or "skip": decode all of them now, once, and leave those out.
        progress: Show a bar where that takes long.

    Raises:
        FileNotFoundError: The list or the images are not there.
        ImportError: SciPy, which reads the list, is not installed.
    """
    if split not in ("val", "test"):
        raise ValueError(f"split must be 'val' or 'test', got {split!r}.")
    folder = opened_root("CVACT", root, LAYOUT)
    listed = _read_mat(required("CVACT", folder, "ACT_data.mat", LAYOUT))
    train = _pairs(folder, "ANU_data_small", listed["train"])
    test = _pairs(
        folder, f"ANU_data_{'small' if split == 'val' else 'test'}", listed["val"] if split == "val" else None
    )
    return paired_images(
        "cvact" if split == "val" else "cvact-test",
        f"CVACT, {split}",
        train,
        test,
        query_size=query_size,
        query_crop=crop,
        reference_size=reference_size,
        augment=Augmentation(cross_view=True) if augment else None,
        on_error=on_error,
        progress=progress,
    )


def cvact_test(root: str | Path | None, **options: Any) -> RetrievalData:
    """CVACT with its large test set, as `cvact(root, split="test")`."""
    return cvact(root, split="test", **options)


def _read_mat(path: Path) -> dict[str, list[str]]:
    """The ids of the pairs to train and to validate on."""
    mat = optional_import("scipy.io", "reading ACT_data.mat", "scipy").loadmat(
        path, squeeze_me=True, struct_as_record=False
    )
    try:
        ids = np.atleast_1d(mat["panoIds"])
        places = {
            split: np.atleast_1d(getattr(mat[f"{split}Set"], f"{split}Ind")).astype(np.int64)
            - 1  # MATLAB counts from 1
            for split in ("train", "val")
        }
        return {split: [str(ids[place]).strip() for place in chosen.tolist()] for split, chosen in places.items()}
    except (KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} must hold panoIds, trainSet.trainInd and valSet.valInd: {error}.") from None


def _pairs(folder: Path, part: str, ids: list[str] | None) -> list[tuple[Path, Path]]:
    """The pairs with these ids of which both images are there; by default all there are."""
    street = required("CVACT", folder, f"{part}/streetview", LAYOUT)
    aerial = required("CVACT", folder, f"{part}/satview_polish", LAYOUT)
    there = {path.name.removesuffix(STREET_NAME) for path in street.iterdir() if path.name.endswith(STREET_NAME)}
    there &= {path.name.removesuffix(AERIAL_NAME) for path in aerial.iterdir() if path.name.endswith(AERIAL_NAME)}
    chosen = sorted(there) if ids is None else [each for each in ids if each in there]
    missing = [] if ids is None else [each for each in ids if each not in there]
    if not chosen or len(missing) > MISSING_SHARE * len(chosen):
        example = missing[0] if missing else "ID"
        raise FileNotFoundError(
            f"{len(missing)} pairs are missing below {folder / part}, such as streetview/{example}{STREET_NAME} or "
            f"satview_polish/{example}{AERIAL_NAME}: unpack all parts of the archive."
        )
    if missing:
        logger.warning(
            "%d of %d pairs of CVACT are missing and left out, such as %s.",
            len(missing),
            len(ids or ()),
            street / f"{missing[0]}{STREET_NAME}",
        )
    return [(street / f"{each}{STREET_NAME}", aerial / f"{each}{AERIAL_NAME}") for each in chosen]
