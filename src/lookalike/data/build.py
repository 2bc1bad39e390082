"""Build data sets from lists of paths or texts, for the readers and for users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.data.augment import Augmentation
from lookalike.data.explicit import numbered_negatives
from lookalike.data.fingerprints import checksum, training_rows
from lookalike.data.image_files import ImageFiles, Size, usable
from lookalike.data.parts import Items, Selection, Texts, TrainingItems, judged, labelled, searched_in_itself
from lookalike.data.retrieval import RetrievalData
from lookalike.utils.components import connected_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
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
    """Make a data set of images with classes; the test searches every image among all others.

    Args:
        name: Name of the data set.
        title: What its description and its errors call it.
        paths: The images.
        classes: The class of each.
        is_training: Whether to train on each.
        size: Height and width to resize the images to, or one number for both.
        augment: Augment images in training.
        on_error: "stop" at an image that cannot be read, or "skip": decode all images once, now, and leave out those
            that fail.
        progress: Show a progress bar for that.

    Raises:
        ValueError: There are too few images.
    """
    chosen = usable([[path] for path in paths], on_error, progress=progress)
    images = ImageFiles(paths, size)
    key = checksum(images.size, [path.name for path in paths])
    augmentation = Augmentation() if augment else None
    return labelled_items(name, title, images, np.array(is_training, bool), chosen, list(classes), augmentation, key)


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
    """Make a data set of the `chosen` items, each with a class; `key` is a checksum of the items."""
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
    """Make a data set of pairs of images; the test searches every query among all references of the test.

    Args:
        name: Name of the data set.
        title: As in `labelled_images`.
        train: Pairs of a query and a reference to train on.
        test: Pairs to test on.
        query_size: Height and width to resize queries to, or one number for both.
        reference_size: Likewise for references.
        query_crop: Fraction of the height of a query to keep, around its middle.
        augment: How to augment images in training.
        on_error: As in `labelled_images`; "skip" leaves out pairs with an image that fails.
        progress: Show a progress bar for that.

    Raises:
        ValueError: There are too few pairs.
    """
    rows = [*train, *test]
    chosen = usable(rows, on_error, progress=progress)
    kept = [row for row, use in zip(rows, chosen, strict=True) if use]
    queries, query_ids = _distinct([row[0] for row in kept])
    references, reference_ids = _distinct([row[1] for row in kept])
    query_items = ImageFiles(queries, query_size, crop=query_crop)
    reference_items = ImageFiles(references, reference_size)
    key = checksum(query_items.size, query_crop, reference_items.size, [(q.name, r.name) for q, r in kept])
    query, reference = Selection(query_items, query_ids), Selection(reference_items, reference_ids)
    return paired_items(name, title, query, reference, int(chosen[: len(train)].sum()), augment, key)


def paired_texts(
    name: str,
    title: str,
    train: Sequence[tuple[str, str]],
    test: Sequence[tuple[str, str]],
    *,
    negatives: Sequence[Sequence[str]] | None = None,
) -> RetrievalData:
    """Make a data set of pairs of texts; the test searches every query among all references of the test.

    Args:
        name: Name of the data set.
        title: What its description and its errors call it.
        train: Pairs of a query and a reference to train on.
        test: Pairs to test on.
        negatives: Explicit negatives of each training pair, which may have different numbers of them.

    Raises:
        ValueError: There are too few pairs, or there is not one list of negatives per training pair.

    Examples:
        >>> pairs = [("one", "1"), ("two", "2")]
        >>> data = paired_texts("numbers", "numbers", pairs, pairs, negatives=[["7", "2"], ["8"]])
        >>> data.train.num_negatives, data.train.negatives(torch.tensor([0]), seed=0)
        (2, ['7', '2'])
    """
    rows = [*train, *test]
    queries, query_ids = _distinct([row[0] for row in rows])
    references, reference_ids = _distinct([row[1] for row in rows])
    key, items = checksum(rows), None
    if negatives is not None:
        if len(negatives) != len(train):
            raise ValueError(
                f"negatives must be a list for each of the {len(train)} training pairs, got {len(negatives)}."
            )
        references, items = numbered_negatives(references, negatives)
        key = checksum(rows, [list(own) for own in negatives])
    query, reference = Selection(Texts(queries), query_ids), Selection(Texts(references), reference_ids)
    return paired_items(name, title, query, reference, len(train), None, key, items)


def split_texts(
    name: str,
    title: str,
    pairs: Sequence[tuple[str, str]],
    test_share: float,
    splits: Sequence[str] | None = None,
    *,
    negatives: Sequence[Sequence[str]] | None = None,
) -> RetrievalData:
    """Make a data set of pairs of texts, split by `splits`, or else by the texts of the references.

    The explicit `negatives` of pairs to test on are ignored.

    Raises:
        ValueError: There are too few pairs, or `test_share` is not between 0 and 1.
    """
    training = training_rows([reference for _, reference in pairs], test_share, splits)
    train, test = (
        [pair for pair, is_train in zip(pairs, training, strict=True) if is_train == t] for t in (True, False)
    )
    if negatives is not None:
        negatives = [own for own, is_train in zip(negatives, training, strict=True) if is_train]
    return paired_texts(name, title, train, test, negatives=negatives)


def paired_items(
    name: str,
    title: str,
    query: Selection,
    reference: Selection,
    num_training: int,
    augment: Augmentation | None,
    key: str,
    negatives: Array | None = None,
) -> RetrievalData:
    """Make a data set of pairs, of which the first `num_training` train; `key` is a checksum of the items.

    `negatives` are explicit ones of the training pairs, numbers of items of the reference `[num_training, m]`.
    """
    train, test = slice(num_training), slice(num_training, None)
    _check_enough(title, "pairs", num_training, len(query) - num_training)
    labels = pair_labels(query.ids[train], reference.ids[train])
    searched, answers = np.unique(reference.ids[test], return_inverse=True)
    part, positives = judged(query.items, Selection(reference.items, searched), query.ids[test], answers)
    counts = {
        "training pairs": num_training,
        "test queries": len(part.query),
        "test references": len(searched),
    }
    explicit = ""
    if negatives is not None and negatives.shape[1]:
        counts["negatives per pair"] = negatives.shape[1]
        explicit = f" with {negatives.shape[1]} negative{'s' if negatives.shape[1] > 1 else ''} each"
    return RetrievalData(
        name=name,
        description=f"{title}: {num_training:,} pairs{explicit} to train, {counts['test queries']:,} queries among "
        f"{len(searched):,} references to test",
        checksum=checksum(name, key, query.ids, reference.ids, num_training),
        train=TrainingItems(
            query=Selection(query.items, query.ids[train]),
            reference=Selection(reference.items, reference.ids[train]),
            labels=labels if len(torch.unique(labels)) < len(labels) else None,
            pairs=num_training,
            negative_items=negatives if explicit else None,
            augment=augment,
        ),
        test=part,
        counts=counts,
        test_positives=positives,
    )


def pair_labels(query_ids: Array, reference_ids: Array) -> Tensor:
    """Label pairs so that pairs which share a query or a reference, directly or through others, have the same label.

    Two questions with the same answer, or two answers to one question, are not negatives of each other.

    Examples:
        >>> import numpy as np
        >>> pair_labels(np.array([0, 0, 1, 2]), np.array([5, 6, 6, 7])).tolist()
        [0, 0, 0, 3]
    """
    return torch.from_numpy(connected_rows(np.stack([query_ids, -1 - reference_ids], axis=1)))


def numbered(names: Iterable[Any]) -> Tensor:
    """Number names from 0 in order of appearance, int64 `[n]`."""
    numbers: dict[Any, int] = {}
    return torch.tensor([numbers.setdefault(name, len(numbers)) for name in names], dtype=torch.int64)


def _check_enough(title: str, what: str, training: int, test: int) -> None:
    if min(training, test) < 2:
        raise ValueError(
            f"{title}: at least two {what} are needed to train and two to test, got {training} and {test}."
        )


def _distinct(values: Sequence[Any]) -> tuple[list[Any], Array]:
    """Return each value once, in order of appearance, and the position of every value among them."""
    places = numbered(values).numpy()
    return list(dict.fromkeys(values)), places
