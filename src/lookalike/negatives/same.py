"""Pairs of samples that are the same: read them from files or arrays, and make each two count as one label.

Imports no torch.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.negatives.marks import Data, Marks, as_pairs, read_marks
from lookalike.utils.checks import checked_positive
from lookalike.utils.components import connected_rows
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from lookalike.utils.arrays import Array

__all__ = ["Marks", "merge_labels", "read_same"]

SEPARATORS = {".csv": ",", ".tsv": "\t"}
KINDS = "a .jsonl file of marks, a .csv or .tsv file of two columns, or a .npy file [m, 2]"


def read_same(source: Any, samples: int, checksum: str | None = None, *, references: int | None = None) -> Array:
    """Read pairs of samples that are the same.

    A pair of a sample with itself says nothing and is left out; so are repetitions, in either order.

    Args:
        source: A file of marks (.jsonl), a .csv or .tsv file of two columns of ids, with or without a header, a .npy
            file `[m, 2]`, or the pairs themselves: an array, a tensor or a list.
        samples: Number of samples; ids are below it.
        checksum: Checksum of the data set, for files of marks, which may hold one.
        references: Where the first of two is a query and the second a row of a separate reference: how many rows that
            has. Such a pair may have the same number twice.

    Returns:
        Ids, int64 `[m, 2]`, ascending.

    Raises:
        FileNotFoundError: There is no such file.
        TypeError: Ids are not integers.
        ValueError: The shape is not `[m, 2]`, an id is out of range, or the file is damaged or of other data.

    Examples:
        >>> read_same([[940, 12], [12, 940], [7, 7]], samples=1000).tolist()
        [[12, 940]]
    """
    rows = None if references is None else checked_positive("references", references)
    data = Data(checked_positive("samples", samples), rows, None, checksum)
    if not isinstance(source, (str, os.PathLike)):
        return _canonical(_checked(source, "same", data), data)
    path = Path(source)
    suffix = path.suffix.lower()
    if suffix not in {".jsonl", ".npy", *SEPARATORS}:
        raise ValueError(f"{path} must be {KINDS}.")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of pairs that are the same; expected {KINDS}.")
    if suffix == ".jsonl":
        marked = read_marks(path)
        data.check_equal(marked.data, str(path))
        return _canonical(as_pairs(marked.pairs), data)
    if suffix == ".npy":
        return _canonical(_checked(_loaded(path), str(path), data), data)
    return _canonical(_columns(path, data), data)


def merge_labels(labels: Any, same: Any, n: int) -> Array:
    """Return labels in which samples that are the same, directly or through others, have one label.

    With labels, the labels of the two become one, with all of their samples; a merged label is the smallest of those
    that it is made of, and no other changes.

    Args:
        labels: Integers `[n]`, or None: every sample has a label of its own.
        same: Pairs of ids, `[m, 2]`, as `read_same` returns them.
        n: Number of samples.

    Returns:
        int64 `[n]`.

    Raises:
        TypeError: Labels or ids are not integers.
        ValueError: There is not one label per sample, or an id is out of range.

    Examples:
        >>> merge_labels([5, 5, 7, 9], [[1, 2]], 4).tolist()
        [5, 5, 5, 9]
        >>> merge_labels(None, [[0, 3], [3, 2]], 4).tolist()
        [0, 1, 0, 0]
    """
    own = np.arange(n) if labels is None else _integers(labels, "labels").astype(np.int64)
    if own.shape != (n,):
        raise ValueError(f"labels must have one label per sample, {n}, got the shape {list(own.shape)}.")
    pairs = _checked(same, "same", Data(n)) if n else np.empty((0, 2), np.int64)
    if not len(pairs):
        return own
    joined = own[pairs]  # [m, 2] labels
    rows = connected_rows(joined)
    smallest = joined.min(axis=1)
    np.minimum.at(smallest, rows, joined.min(axis=1))
    touched, places = np.unique(joined, return_index=True)
    merged = smallest[rows[places // 2]]  # the new label of each of those
    position = np.minimum(np.searchsorted(touched, own), len(touched) - 1)
    return np.where(touched[position] == own, merged[position], own)


def merge_both(labels: Any, reference_labels: Any, same: Any, n: int, m: int) -> tuple[Any, Any]:
    """Return the labels of n queries and m references with those that are the same as one label.

    Args:
        labels: Integers `[n]`, or None: every query has a label of its own.
        reference_labels: Integers `[m]`, or None: those of the queries.
        same: What `read_same` reads, or None, which changes nothing: pairs of samples or, with `reference_labels`, of
            a query and a reference.
        n: Number of queries.
        m: Number of references.
    """
    if same is None:
        return labels, reference_labels
    if reference_labels is None:
        return merge_labels(labels, read_same(same, n), n), None
    query = np.arange(n) if labels is None else _integers(labels, "labels")
    both = np.concatenate([query, _integers(reference_labels, "reference_labels")])
    pairs = read_same(same, n, references=m) + np.array([0, n])
    merged = merge_labels(both, pairs, n + m)
    return merged[:n], merged[n:]


def _integers(values: Any, name: str) -> Array:
    """Convert an array, a tensor or a list of integers."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of integers, got rows of different lengths.") from None
    if array.size == 0:
        array = array.astype(np.int64)  # NumPy makes floats of an empty list
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got {array.dtype}.")
    return array


def _checked(values: Any, name: str, data: Data) -> Array:
    """Return pairs of ids as int64 [m, 2]."""
    pairs = _integers(values, name)
    if pairs.size == 0:
        return np.empty((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(f"{name} must have the shape [m, 2], two ids per pair, got {list(pairs.shape)}.")
    wrong = (pairs < 0) | (pairs >= np.array([data.samples, data.references or data.samples]))
    if wrong.any():
        row = int(wrong.any(axis=1).argmax())
        data.check_range(int(pairs[row, 0]), int(pairs[row, 1]), f"{name}, pair {row}")
    return pairs.astype(np.int64)


def _canonical(pairs: Array, data: Data) -> Array:
    """Leave out self pairs and repetitions, and sort, so that equal marks are equal arrays."""
    if data.references is None:
        pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    unique: Array = np.unique(pairs, axis=0)
    return unique


def _loaded(path: Path) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as pairs ({first_line(error)}); expected integers [m, 2].") from None
    return array


def _columns(path: Path, data: Data) -> Array:
    """Read two columns of ids; the first line may be a header."""
    pairs: list[list[int]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=SEPARATORS[path.suffix.lower()])
            for row in reader:
                place = f"{path}, line {reader.line_num}"
                fields = [field.strip() for field in row]
                if not any(fields):
                    continue
                if len(fields) != 2:
                    raise ValueError(f"{place}: expected two ids, got {len(fields)} fields.")
                if all(_is_integer(field) for field in fields):
                    pairs.append([int(field) for field in fields])
                    data.check_range(int(fields[0]), int(fields[1]), place)
                elif reader.line_num > 1 or any(_is_integer(field) for field in fields):  # no header
                    raise ValueError(f"{place}: expected two ids such as 12 and 940, got {fields[0]!r}, {fields[1]!r}.")
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as two columns of ids ({first_line(error)}).") from None
    return np.array(pairs, np.int64).reshape(-1, 2)


def _is_integer(field: str) -> bool:
    return field.removeprefix("-").isdecimal() and field.isascii()
