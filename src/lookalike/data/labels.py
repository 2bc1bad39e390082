"""Load labels, numbers or text, from a NumPy file or from the lines of a text file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lookalike.data.embeddings import holds_objects
from lookalike.data.table_files import read_lines

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.utils.arrays import Array


def load_labels(path: Path, n: int) -> Array:
    """Read one label per embedding and number them: integers `[n]`, equal for equal labels.

    Args:
        path: A `.npy` file of numbers or text, or a text file with one label per line.
        n: The number of embeddings.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It holds something else, or another number of labels.
    """
    return load_named_labels(path, n)[0]


def load_named_labels(path: Path, n: int) -> tuple[Array, list[str]]:
    """Read labels as `load_labels` does; return the numbers and, for each number, the label as it was written.

    Args:
        path: A `.npy` file of numbers or text, or a text file with one label per line.
        n: The number of embeddings.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It holds something else, or another number of labels.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of labels.")
    if path.suffix == ".npy" and holds_objects(path):
        raise ValueError(
            f"{path} holds Python objects, which are never unpickled here; save text with "
            "numpy.save(path, labels.astype(str))."
        )
    values = _read(path)
    if values.ndim != 1 or len(values) != n:
        raise ValueError(f"{path} must hold one label per embedding, {n}, got the shape {list(values.shape)}.")
    names, numbered = np.unique(values, return_inverse=True)
    return numbered, list(map(str, names))


def _read(path: Path) -> Array:
    is_array = path.suffix == ".npy"
    unreadable = (ValueError, OSError, EOFError) if is_array else (OSError,)  # `read_lines` says which line is wrong
    try:
        if is_array:
            array: Array = np.load(path, allow_pickle=False)
            return array
        return np.array([line.strip() for _, line in read_lines(path)])
    except unreadable as error:
        raise ValueError(f"{path} cannot be read as labels ({error}): a .npy file, or one label per line.") from None
