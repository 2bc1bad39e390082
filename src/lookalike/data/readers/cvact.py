"""CVACT: panoramas of Canberra, searched for among aerial images; it has a validation set and a large test set."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from lookalike.data.paper import CROSS_VIEW
from lookalike.data.registry import DataSet
from lookalike.data.roots import FolderRoot
from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.image_files import Size
    from lookalike.data.retrieval import RetrievalData

logger = logging.getLogger("lookalike")

ROOT = FolderRoot(
    "CVACT",
    """
    ACT_data.mat (panoIds, trainSet, valSet)
    ANU_data_small/streetview/ID_grdView.jpg and ANU_data_small/satview_polish/ID_satView_polish.jpg
    ANU_data_test/streetview/ and ANU_data_test/satview_polish/ likewise, for the test set
    """,
)
STREET_NAME, AERIAL_NAME = "_grdView.jpg", "_satView_polish.jpg"
MISSING_SHARE = 0.01  # fraction of pairs that may be missing, because the archives lack some


def read(
    root: Path,
    *,
    split: str,
    validation: bool = False,
    query_size: Size = (112, 616),
    reference_size: Size = (384, 384),
    crop: float = 1.0,
    augment: bool = True,
    on_error: str = "stop",
    progress: bool = False,
) -> RetrievalData:
    """Read the folder that holds `ACT_data.mat`; panoramas are queries, aerial images references.

    `split` says what to test on: "val", as listed, or "test", all pairs in `ANU_data_test`; with
    `validation`, the best epoch is then chosen on "val". `crop` is the fraction of a panorama's height to keep, around
    the horizon; some published code keeps 0.5. `paired_images` explains the other
    options. Training augments both views of a place alike, which requires square aerial images.

    Raises:
        FileNotFoundError: The list or too many images are missing.
        ImportError: SciPy, which reads the list, is not installed.
        ValueError: The validation set would be both validation and test.
    """
    from lookalike.data.augment import Augmentation
    from lookalike.data.build import paired_images
    from lookalike.data.validation import validated_on

    if validation and split == "val":
        raise ValueError("cvact is tested on its validation set: validation=true is an option of cvact-test.")
    listed = _read_mat(ROOT.find(root, "ACT_data.mat"))
    train = _pairs(root, "ANU_data_small", listed["train"])

    def tested_on(part: str) -> RetrievalData:
        is_val = part == "val"
        test = _pairs(root, "ANU_data_small", listed["val"]) if is_val else _pairs(root, "ANU_data_test", None)
        return paired_images(
            "cvact" if is_val else "cvact-test",
            f"CVACT, {part}",
            train,
            test,
            query_size=query_size,
            query_crop=crop,
            reference_size=reference_size,
            augment=Augmentation(cross_view=True) if augment else None,
            on_error=on_error,
            progress=progress,
        )

    return validated_on(tested_on(split), tested_on("val")) if validation else tested_on(split)


def _read_mat(path: Path) -> dict[str, list[str]]:
    """Read the ids of the pairs to train and to validate on."""
    import numpy as np

    scipy_io = optional_import("scipy.io", "reading ACT_data.mat", "scipy")
    mat = scipy_io.loadmat(path, squeeze_me=True, struct_as_record=False)
    try:
        ids = np.atleast_1d(mat["panoIds"])
        positions = {  # MATLAB counts from 1
            split: np.atleast_1d(getattr(mat[f"{split}Set"], f"{split}Ind")).astype(np.int64) - 1
            for split in ("train", "val")
        }
        return {split: [str(ids[i]).strip() for i in chosen.tolist()] for split, chosen in positions.items()}
    except (KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} must hold panoIds, trainSet.trainInd and valSet.valInd: {error}.") from None


def _pairs(root: Path, part: str, ids: list[str] | None) -> list[tuple[Path, Path]]:
    """Return the pairs with these ids whose images both exist; without ids, all pairs."""
    street = ROOT.find(root, f"{part}/streetview")
    aerial = ROOT.find(root, f"{part}/satview_polish")
    found = {path.name.removesuffix(STREET_NAME) for path in street.iterdir() if path.name.endswith(STREET_NAME)}
    found &= {path.name.removesuffix(AERIAL_NAME) for path in aerial.iterdir() if path.name.endswith(AERIAL_NAME)}
    chosen = sorted(found) if ids is None else [each for each in ids if each in found]
    missing = [] if ids is None else [each for each in ids if each not in found]
    if not chosen or len(missing) > MISSING_SHARE * len(chosen):
        example = missing[0] if missing else "ID"
        raise FileNotFoundError(
            f"{len(missing)} pairs are missing below {root / part}, such as streetview/{example}{STREET_NAME} or "
            f"satview_polish/{example}{AERIAL_NAME}: unpack all parts of the archive."
        )
    if missing:
        example = str(street / f"{missing[0]}{STREET_NAME}")
        total = len(missing) + len(chosen)
        logger.warning("%d of %d pairs of CVACT are missing and left out, such as %s.", len(missing), total, example)
    return [(street / f"{each}{STREET_NAME}", aerial / f"{each}{AERIAL_NAME}") for each in chosen]


VALIDATION = DataSet(
    "cvact",
    "CVACT: street panoramas and aerial images of Canberra, tested on its validation set",
    read,
    CROSS_VIEW,
    root=ROOT,
    official={"training pairs": 35_532, "test queries": 8_884, "test references": 8_884},
    fixed={"split": "val"},
)
TEST = replace(
    VALIDATION,
    name="cvact-test",
    description="CVACT, tested on its test set of 92,802 pairs",
    official={"training pairs": 35_532, "test queries": 92_802, "test references": 92_802},
    fixed={"split": "test"},
)
DATA_SETS = (VALIDATION, TEST)
