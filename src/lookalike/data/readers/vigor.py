"""VIGOR: panoramas of four cities, searched for among aerial images that cover the cities without gaps.

A panorama is off the centre of its aerial image, and an aerial image may have several panoramas. Three more aerial
images show the place near their border: these semi-positives are neither positives nor negatives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from lookalike.data.paper import CROSS_VIEW
from lookalike.data.registry import DataSet
from lookalike.data.roots import FolderRoot, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.data.image_files import Size
    from lookalike.data.retrieval import RetrievalData
    from lookalike.utils.arrays import Array
    from lookalike.utils.lists import Lists

ROOT = FolderRoot(
    "VIGOR",
    """
    splits/CITY/satellite_list.txt, pano_label_balanced.txt, same_area_balanced_train.txt, same_area_balanced_test.txt
    CITY/satellite/ and CITY/panorama/ with the images; the cities are Chicago, NewYork, SanFrancisco and Seattle
    """,
)
CITIES = ("Chicago", "NewYork", "SanFrancisco", "Seattle")
CROSS = {"train": ("NewYork", "Seattle"), "test": ("Chicago", "SanFrancisco")}
OFFICIAL_SAME = {
    "aerial images": 90_618,
    "street images": 105_214,
    "training pairs": 52_609,
    "test queries": 52_605,
    "test references": 90_618,
}
OFFICIAL_CROSS = {**OFFICIAL_SAME, "training pairs": 51_520, "test queries": 53_694, "test references": 46_563}


class _Part(NamedTuple):
    """The contents of some cities' lists."""

    aerial: list[Path]
    street: list[Path]
    labels: Array  # int64 [street, 4]: the aerial image of each panorama, then its semi-positives


def read(
    root: Path,
    *,
    cross: bool,
    query_size: Size = (384, 768),
    reference_size: Size = (384, 384),
    hit_rate: bool = False,
    augment: bool = True,
    on_error: str = "stop",
    progress: bool = False,
) -> RetrievalData:
    """Read the folder that holds `splits` and the cities; panoramas are queries, aerial images references.

    The label of a pair is its aerial image. `train_exclude` lists the pairs of which one is a semi-positive of the
    other. `paired_images` explains the options not described here; training augments both views of a place alike, which
    requires square aerial images.

    Args:
        root: The folder.
        cross: Train in New York and Seattle and test in Chicago and San Francisco; otherwise use all four.
        query_size: Height and width of panoramas.
        reference_size: Height and width of aerial images.
        hit_rate: Exclude semi-positives from the test, which makes R@1 what VIGOR calls the hit rate. Published R@k
            count them as wrong.
        augment: Augment images in training.
        on_error: "skip" leaves out bad aerial images of the test as well, and the panoramas of bad aerial images.
        progress: Show a progress bar.

    Raises:
        FileNotFoundError: A list or the images of a city are missing.
        ValueError: A list names an aerial image that `satellite_list.txt` does not.
    """
    import numpy as np
    import torch

    from lookalike.data.augment import Augmentation
    from lookalike.data.fingerprints import checksum
    from lookalike.data.image_files import ImageFiles
    from lookalike.data.parts import Selection, TestItems, TrainingItems
    from lookalike.data.retrieval import RetrievalData
    from lookalike.utils.lists import make_lists

    if cross:
        train, test = (_read_cities(root, CROSS[part], "pano_label_balanced") for part in ("train", "test"))
    else:
        train, test = (_read_cities(root, CITIES, f"same_area_balanced_{part}") for part in ("train", "test"))
    images = {
        "aerial images": len({*train.aerial, *test.aerial}),
        "street images": len({*train.street, *test.street}),
    }
    train, test = (_without_unreadable(part, on_error, progress=progress) for part in (train, test))
    street, aerial = ImageFiles(train.street, query_size), ImageFiles(train.aerial, reference_size)
    labels = torch.from_numpy(train.labels[:, 0])
    name = "vigor-cross" if cross else "vigor-same"
    semi_positives = [[i for i in row if i >= 0] for row in test.labels[:, 1:].tolist()]
    return RetrievalData(
        name=name,
        description=f"VIGOR, {'cross' if cross else 'same'}: {len(train.street):,} pairs of "
        f"{len(torch.unique(labels)):,} aerial images to train, {len(test.street):,} panoramas among "
        f"{len(test.aerial):,} aerial images to test",
        checksum=checksum(name, hit_rate, street.size, aerial.size, train.labels, test.labels),
        train=TrainingItems(
            query=Selection(street, np.arange(len(street))),
            reference=Selection(aerial, train.labels[:, 0]),
            labels=labels,
            pairs=len(street),
            augment=Augmentation(cross_view=True) if augment else None,
        ),
        test=TestItems(
            query=Selection(ImageFiles(test.street, query_size), np.arange(len(test.street))),
            reference=Selection(ImageFiles(test.aerial, reference_size), np.arange(len(test.aerial))),
            query_labels=torch.from_numpy(test.labels[:, 0]),
            reference_labels=torch.arange(len(test.aerial)),
        ),
        counts={
            **images,
            "training pairs": len(train.street),
            "test queries": len(test.street),
            "test references": len(test.aerial),
        },
        train_exclude=semi_positive_pairs(train.labels),
        test_exclude=make_lists(semi_positives) if hit_rate else None,
    )


def semi_positive_pairs(labels: Array) -> Lists:
    """List the pairs that are not negatives of each pair: one's panorama sees the other's aerial image.

    Args:
        labels: int64 `[n, 4]`: the aerial image of each panorama, then its semi-positives, -1 for none.

    Returns:
        A CSR pair `(offsets, ids)`, the ids of each pair ascending.

    Examples:
        >>> import numpy as np
        >>> offsets, ids = semi_positive_pairs(np.array([[0, 1, -1, -1], [1, 5, 6, 7], [1, 8, 9, -1]]))
        >>> offsets.tolist(), ids.tolist()
        ([0, 2, 3, 4], [1, 2, 0, 0])
    """
    import numpy as np
    import torch

    n = len(labels)
    by_aerial = np.argsort(labels[:, 0], kind="stable")
    aerial = labels[by_aerial, 0]
    semi = labels[:, 1:].ravel()
    first, last = (np.searchsorted(aerial, semi, side=side) for side in ("left", "right"))
    lengths = last - first
    seeing = np.repeat(np.repeat(np.arange(n), labels.shape[1] - 1), lengths)
    seen = by_aerial[np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())]
    both = np.unique(np.concatenate([seeing * n + seen, seen * n + seeing]))
    both = both[both // n != both % n]
    offsets = np.searchsorted(both // n, np.arange(n + 1))
    return torch.from_numpy(offsets.astype(np.int64)), torch.from_numpy(both % n)


def _read_cities(root: Path, cities: tuple[str, ...], list_name: str) -> _Part:
    import numpy as np

    aerial: list[Path] = []
    street: list[Path] = []
    labels: list[list[int]] = []
    for city in cities:
        aerial_folder = ROOT.find(root, f"{city}/satellite", f"satellite/{city}")
        street_folder = ROOT.find(root, f"{city}/panorama", f"ground/{city}")
        listed = ROOT.find(root, f"splits/{city}/satellite_list.txt")
        names = [row[0] for row in read_rows(listed, 1)]
        positions = {name: len(aerial) + i for i, name in enumerate(names)}
        aerial += [aerial_folder / name for name in names]
        path = ROOT.find(root, f"splits/{city}/{list_name}.txt")
        for row in read_rows(path, 13):
            try:
                labels.append([positions[row[column]] for column in (1, 4, 7, 10)])
            except KeyError as error:
                raise ValueError(f"{path} names {error}, which is not in {listed}.") from None
            street.append(street_folder / row[0])
    return _Part(aerial, street, np.array(labels, np.int64))


def _without_unreadable(part: _Part, on_error: str, *, progress: bool) -> _Part:
    """Leave out images that cannot be read, if `on_error` says so; semi-positives among them become -1."""
    import numpy as np

    from lookalike.data.image_files import usable

    chosen = usable([[path] for path in [*part.aerial, *part.street]], on_error, progress=progress)
    if chosen.all():
        return part
    aerial, street = chosen[: len(part.aerial)], chosen[len(part.aerial) :]
    renumbered = np.where(aerial, np.cumsum(aerial) - 1, -1)
    street &= aerial[part.labels[:, 0]]
    return _Part(
        [path for path, use in zip(part.aerial, aerial, strict=True) if use],
        [path for path, use in zip(part.street, street, strict=True) if use],
        renumbered[part.labels[street]],
    )


ABOUT_SAME = "VIGOR: panoramas off centre, training and test in the same four cities"
ABOUT_CROSS = "VIGOR, training in two cities, test in two others"
SAME = DataSet("vigor-same", ABOUT_SAME, read, CROSS_VIEW, root=ROOT, official=OFFICIAL_SAME, fixed={"cross": False})
DATA_SETS = (
    SAME,
    replace(SAME, name="vigor-cross", description=ABOUT_CROSS, official=OFFICIAL_CROSS, fixed={"cross": True}),
)
