"""Compute the checksum of a data set, and decide by name alone which of its classes are held out for the test."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

TRAINING = {"train", "training", ""}  # values of a column `split`; all others are the test


def checksum(*parts: Any) -> str:
    """Return the checksum of lists, arrays and settings; runs are comparable if they were trained on equal ones."""
    value = 0
    for part in parts:
        raw = np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
        value = zlib.crc32(raw, value)
    return f"{value:08x}"


def is_held_out(name: str, share: float) -> bool:
    """Return whether a class belongs to the test, from its name alone, so that adding classes moves no others."""
    return zlib.crc32(name.encode()) < share * 2**32


def training_rows(names: Sequence[Any], test_share: float, splits: Sequence[Any] | None = None) -> list[bool]:
    """Return for each row whether to train on it.

    Args:
        names: The class or reference of each row. Rows with the same name go to the same side.
        test_share: Fraction of the names to hold out; ignored if there are `splits`.
        splits: The column `split`, if the table has one.

    Raises:
        ValueError: `test_share` is not between 0 and 1.
    """
    if splits is not None:
        return [str(split or "").lower() in TRAINING for split in splits]
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must be between 0 and 1, got {test_share}.")
    return [not is_held_out(str(name), test_share) for name in names]
