"""Checks of the labels that samplers are given, and what users should know about them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.utils.tensors import checked_integers

if TYPE_CHECKING:
    from lookalike.utils.arrays import Array

logger = logging.getLogger("lookalike")


def compact_labels(labels: Any, pairs: int | None) -> Array:
    """Return the labels as int32 [n], renumbered where their values are too large to count by."""
    values = checked_integers("labels", labels).cpu()
    if pairs is not None and len(values) != pairs:
        raise ValueError(f"labels must have one label per pair, {pairs}, got {len(values)}.")
    numbers = values.numpy()
    if numbers.min(initial=0) < 0 or numbers.max(initial=0) >= 2 * len(numbers):  # not worth an array of counts
        numbers = np.unique(numbers, return_inverse=True)[1]
    return numbers.astype(np.int32)


def check_positives(labels: Array) -> None:
    """Report samples that are the only one of their label.

    Raises:
        ValueError: All are.
    """
    if len(labels) == 0:
        raise ValueError("there are no labels: give one per sample.")
    alone = int((np.bincount(labels) == 1).sum())
    if alone == len(labels):
        raise ValueError(
            f"all {alone} labels are different, so that no sample has a positive: for a data set of pairs give "
            "pairs=how many, for two augmented views of each sample self_pairs=True."
        )
    if alone:
        logger.warning(
            "%d of %d samples are the only one of their label: without a positive they are left out. "
            "self_pairs=True pairs each with itself, for two augmented views.",
            alone,
            len(labels),
        )
