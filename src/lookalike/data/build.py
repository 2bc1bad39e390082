"""Lists of paths or texts -> data sets: what the readers have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lookalike.data.augment import Augmentation
from lookalike.data.folders import checksum, connected, numbered
from lookalike.data.images import ImageFiles, Size, usable
from lookalike.data.parts import Items, Samples, Texts, judged, labelled, searched_in_itself
from lookalike.data.retrieval import RetrievalData

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lookalike.utils.arrays import Array


def labelled_images(
    name: str,
    title: str,
    paths: Sequence[Path],
    classes: Sequence[Any],
    is_training: Sequence[bool],
    *,
    size: Size,
    augment: bool,
    on_error: str,
    progress: bool,
) -> RetrievalData:
    """Images with classes; every image of the test is searched among all others of the test."""
    chosen = usable([[path] for path in paths], on_error, progress=progress)
    images = ImageFiles(paths, size)
    return labelled_items(
        name,
        title,
        images,
        np.array(is_training, bool),
        chosen,
        list(classes),
        Augmentation() if augment else None,
        checksum(images.size, [path.name for path in paths]),
    )


def labelled_items(
    name: str,
    title: str,
    items: Items,
    is_training: Array,
    chosen: Array,
    classes: Sequence[Any],
    augment: Augmentation | None,
    key: str,
) -> RetrievalData:
    """Items with classes; `chosen` says which of them are used."""
    labels = numbered(classes)
    train, test = np.flatnonzero(is_training & chosen), np.flatnonzero(~is_training & chosen)
    _check_enough(title, "images", len(train), len(test))
    part, itself = searched_in_itself(items, test, labels[test])
    counts = {
        "training images": len(train),
        "training classes": len(np.unique(labels[train])),
        "test images": len(test),
        "test classes": len(np.unique(labels[test])),
    }
    return RetrievalData(
        name=name,
        description=f"{title}: {len(train):,} images of {counts['training classes']:,} classes to train, "
        f"{len(test):,} of {counts['test classes']:,} to test",
        checksum=checksum(name, key, labels.numpy(), is_training, chosen),
        train=labelled(items, train, labels[train], augment),
        test=part,
        counts=counts,
        test_exclude=itself,
    )


def paired_images(
    name: str,
    title: str,
    train: Sequence[tuple[Path, Path]],
    test: Sequence[tuple[Path, Path]],
    *,
    query_size: Size,
    reference_size: Size,
    query_crop: float = 1.0,
    augment: Augmentation | None,
    on_error: str,
    progress: bool,
) -> RetrievalData:
    """Pairs of images, query and reference; every query of the test is searched among all its references."""
    rows = [*train, *test]
    chosen = usable(rows, on_error, progress=progress)
    kept = [row for row, use in zip(rows, chosen, strict=True) if use]
    queries, query_ids = _distinct([row[0] for row in kept])
    references, reference_ids = _distinct([row[1] for row in kept])
    query_items = ImageFiles(queries, query_size, crop=query_crop)
    reference_items = ImageFiles(references, reference_size)
    key = checksum(query_items.size, query_crop, reference_items.size, [(q.name, r.name) for q, r in kept])
    number = int(chosen[: len(train)].sum())
    return paired_items(name, title, query_items, reference_items, query_ids, reference_ids, number, augment, key)


def paired_texts(
    name: str, title: str, train: Sequence[tuple[str, str]], test: Sequence[tuple[str, str]]
) -> RetrievalData:
    """Pairs of texts, query and reference; every query of the test is searched among all its references."""
    rows = [*train, *test]
    queries, query_ids = _distinct([row[0] for row in rows])
    references, reference_ids = _distinct([row[1] for row in rows])
    items = Texts(queries), Texts(references)
    return paired_items(name, title, *items, query_ids, reference_ids, len(train), None, checksum(rows))


def paired_items(
    name: str,
    title: str,
    query_items: Items,
    reference_items: Items,
    query_ids: Array,
    reference_ids: Array,
    num_training: int,
    augment: Augmentation | None,
    key: str,
) -> RetrievalData:
    """Pairs of items, those for training first."""
    train, test = slice(num_training), slice(num_training, None)
    _check_enough(title, "pairs", num_training, len(query_ids) - num_training)
    labels = connected(query_ids[train], reference_ids[train])
    searched, answers = np.unique(reference_ids[test], return_inverse=True)
    part, positives = judged(query_items, reference_items, query_ids[test], answers, searched)
    counts = {
        "training pairs": num_training,
        "test queries": len(part.query_ids),
        "test references": len(searched),
    }
    return RetrievalData(
        name=name,
        description=f"{title}: {num_training:,} pairs to train, {counts['test queries']:,} queries among "
        f"{len(searched):,} references to test",
        checksum=checksum(name, key, query_ids, reference_ids, num_training),
        train=Samples(
            query_items=query_items,
            reference_items=reference_items,
            query_ids=query_ids[train],
            reference_ids=reference_ids[train],
            labels=labels if len(torch.unique(labels)) < len(labels) else None,
            pairs=num_training,
            augment=augment,
        ),
        test=part,
        counts=counts,
        test_positives=positives,
    )


def _check_enough(title: str, what: str, training: int, test: int) -> None:
    if min(training, test) < 2:
        raise ValueError(
            f"{title}: at least two {what} are needed to train and two to test, got {training} and {test}."
        )


def _distinct(values: Sequence[Any]) -> tuple[list[Any], Array]:
    """Each value once, in order of appearance, and where it is."""
    places = numbered(values).numpy()
    return list(dict.fromkeys(values)), places
