"""VIGOR: panoramas of four cities, searched for among aerial images that cover the cities without gaps.

The panorama is off the centre of its aerial image, an aerial image may have several panoramas, and three further ones
show the place near their border: these semi-positives are neither positives nor negatives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lookalike.data.augment import Augmentation
from lookalike.data.cvusa import AERIAL
from lookalike.data.folders import checksum, opened_root, required, rows_of
from lookalike.data.images import ImageFiles, Size, usable
from lookalike.data.parts import Samples, Test
from lookalike.data.retrieval import RetrievalData

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.utils.arrays import Array

LAYOUT = """
splits/CITY/satellite_list.txt, same_area_balanced_train.txt, same_area_balanced_test.txt and pano_label_balanced.txt
CITY/satellite/ and CITY/panorama/ with the images; the cities are Chicago, NewYork, SanFrancisco and Seattle
"""
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
STREET = (384, 768)


class _Part(NamedTuple):
    """What the lists of some cities say."""

    aerial: list[Path]
    street: list[Path]
    labels: Array  # int64 [street, 4]: the aerial image of each panorama, then its semi-positives


def vigor_same(root: str | Path | None, **options: Any) -> RetrievalData:
    """VIGOR, training and test in the same four cities; options as in `vigor`."""
    return vigor(root, cross=False, **options)


def vigor_cross(root: str | Path | None, **options: Any) -> RetrievalData:
    """VIGOR, training in New York and Seattle, test in Chicago and San Francisco; options as in `vigor`."""
    return vigor(root, cross=True, **options)


def vigor(
    root: str | Path | None,
    *,
    cross: bool,
    hit_rate: bool = False,
    query_size: Size = STREET,
    reference_size: Size = AERIAL,
    augment: bool = True,
    on_error: str = "stop",
    progress: bool = False,
) -> RetrievalData:
    """VIGOR, from the folder that holds `splits` and the cities.

    Pairs are a panorama and its aerial image; their label is the aerial image. `train_exclude` names the pairs of
    which one is a semi-positive of the other.

    Args:
        root: The folder.
        cross: Train in two cities and test in the two others; otherwise both in all four.
        hit_rate: Leave semi-positives out of the test: R@1 is then what VIGOR calls the hit rate. Published R@k count
            them as wrong.
        query_size: Height and width of panoramas.
        reference_size: Height and width of aerial images; square, where they are augmented.
        augment: Augment in training, both views of a place alike.
        on_error: "stop" at an image that cannot be read, or "skip": decode all of them now, once, and leave out the
            panoramas concerned and, of the test, the aerial images.
        progress: Show a bar where that takes long.

    Raises:
        FileNotFoundError: A list or the images are not there.
        ValueError: A list names an aerial image that `satellite_list.txt` does not.
    """
    folder = opened_root("VIGOR", root, LAYOUT)
    if cross:
        train, test = (_read(folder, CROSS[part], "pano_label_balanced") for part in ("train", "test"))
    else:
        train, test = (_read(folder, CITIES, f"same_area_balanced_{part}") for part in ("train", "test"))
    counts = {
        "aerial images": len({*train.aerial, *test.aerial}),
        "street images": len({*train.street, *test.street}),
        "training pairs": len(train.street),
        "test queries": len(test.street),
        "test references": len(test.aerial),
    }
    train, test = (_without_unreadable(part, on_error, progress=progress) for part in (train, test))
    sizes = ImageFiles(train.street, query_size), ImageFiles(train.aerial, reference_size)
    labels = torch.from_numpy(train.labels[:, 0])
    name = "vigor-cross" if cross else "vigor-same"
    data = RetrievalData(
        name=name,
        description=f"VIGOR, {'cross' if cross else 'same'}: {len(train.street):,} pairs of "
        f"{len(torch.unique(labels)):,} aerial images to train, {len(test.street):,} panoramas among "
        f"{len(test.aerial):,} aerial images to test",
        checksum=checksum(name, hit_rate, *(items.size for items in sizes), train.labels, test.labels),
        train=Samples(
            query_items=sizes[0],
            reference_items=sizes[1],
            query_ids=np.arange(len(train.street)),
            reference_ids=train.labels[:, 0],
            labels=labels,
            pairs=len(train.street),
            augment=Augmentation(cross_view=True) if augment else None,
        ),
        test=Test(
            query_items=ImageFiles(test.street, query_size),
            reference_items=ImageFiles(test.aerial, reference_size),
            query_ids=np.arange(len(test.street)),
            reference_ids=np.arange(len(test.aerial)),
            query_labels=torch.from_numpy(test.labels[:, 0]),
            reference_labels=torch.arange(len(test.aerial)),
        ),
        counts={
            **counts,
            "training pairs": len(train.street),
            "test queries": len(test.street),
            "test references": len(test.aerial),
        },
        train_exclude=semi_positive_pairs(train.labels),
    )
    return replace(data, test_exclude=torch.from_numpy(test.labels[:, 1:])) if hit_rate else data


def semi_positive_pairs(labels: Array) -> tuple[Tensor, Tensor]:
    """Of each pair, those it is no negative of: its panorama sees their aerial image, or theirs sees its own.

    Args:
        labels: int64 `[n, 4]`: the aerial image of each panorama, then its semi-positives, -1 for none.

    Returns:
        Offsets, int64 `[n + 1]`, and ids, ascending for each pair: what `exclude` of the search takes.

    Examples:
        >>> import numpy as np
        >>> offsets, ids = semi_positive_pairs(np.array([[0, 1, -1, -1], [1, 5, 6, 7], [1, 8, 9, -1]]))
        >>> offsets.tolist(), ids.tolist()
        ([0, 2, 3, 4], [1, 2, 0, 0])
    """
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


def _read(folder: Path, cities: tuple[str, ...], list_name: str) -> _Part:
    aerial: list[Path] = []
    street: list[Path] = []
    labels: list[list[int]] = []
    for city in cities:
        images = [
            required("VIGOR", folder, [f"{city}/{kind}", f"{other}/{city}"], LAYOUT)
            for kind, other in (("satellite", "satellite"), ("panorama", "ground"))
        ]
        listed = required("VIGOR", folder, f"splits/{city}/satellite_list.txt", LAYOUT)
        names = [row[0] for row in rows_of(listed, 1)]
        places = {name: len(aerial) + i for i, name in enumerate(names)}
        aerial += [images[0] / name for name in names]
        path = required("VIGOR", folder, f"splits/{city}/{list_name}.txt", LAYOUT)
        for row in rows_of(path, 13):
            try:
                labels.append([places[row[column]] for column in (1, 4, 7, 10)])
            except KeyError as error:
                raise ValueError(f"{path} names {error}, which is not in {listed}.") from None
            street.append(images[1] / row[0])
    return _Part(aerial, street, np.array(labels, np.int64))


def _without_unreadable(part: _Part, on_error: str, *, progress: bool) -> _Part:
    """Without images that cannot be read, where these are to be skipped; semi-positives among them become -1."""
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
