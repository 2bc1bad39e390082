"""Embeddings by row number from a file that is larger than memory.

Rows are read, not mapped: pages of a mapped file count as memory of the process, and the system maps far more than what
is asked for, up to megabytes around each row.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.utils.arrays import Array


class Rows(Protocol):
    """Embeddings that are read a few at a time."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and their length."""

    def read(self, ids: Array) -> Tensor:
        """Some rows, float32 [len(ids), dim]."""

    def read_range(self, start: int, stop: int) -> Tensor:
        """Rows that follow each other: float32 [stop - start, dim]."""


class ArrayRows:
    """The rows of an array in memory."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape = (int(array.shape[0]), int(array.shape[1]))

    def read(self, ids: Array) -> Tensor:
        """Some rows, float32 [len(ids), dim]."""
        return torch.from_numpy(self.array[ids].astype(np.float32))

    def read_range(self, start: int, stop: int) -> Tensor:
        """Rows that follow each other: float32 [stop - start, dim]."""
        return torch.from_numpy(np.array(self.array[start:stop], np.float32))


class FileRows:
    """The rows of a file.

    Args:
        path: The file.
        shape: Number of rows and their length.
        dtype: Of their values.
        offset: Bytes before the first row.
        places: From ids to rows of the file; by default they are the same.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     np.arange(12, dtype=np.float32).tofile(file.name)
        ...     FileRows(file.name, (4, 3), np.float32).read(np.array([3, 0])).tolist()
        [[9.0, 10.0, 11.0], [0.0, 1.0, 2.0]]
    """

    def __init__(
        self,
        path: str | Path,
        shape: tuple[int, int],
        dtype: Any,
        *,
        offset: int = 0,
        places: Callable[[Array], Array] | None = None,
    ) -> None:
        self.path, self.shape, self.dtype, self.offset, self.places = path, shape, np.dtype(dtype), offset, places
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - for as long as rows are read
        weakref.finalize(self, self._file.close)

    def read(self, ids: Array) -> Tensor:
        """Some rows, float32 [len(ids), dim]; each of them is read once, and neighbours together."""
        rows, inverse = np.unique(ids if self.places is None else self.places(ids), return_inverse=True)
        read = np.empty((len(rows), self.shape[1]), self.dtype)
        firsts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        lasts = np.append(firsts, len(rows))[1:]
        for first, last, row in zip(firsts.tolist(), lasts.tolist(), rows[firsts].tolist(), strict=True):
            self._fill(read[first:last], row)
        return torch.from_numpy(read.astype(np.float32, copy=False)[inverse])

    def read_range(self, start: int, stop: int) -> Tensor:
        """Rows that follow each other, as they stand in the file: float32 [stop - start, dim]."""
        read = np.empty((stop - start, self.shape[1]), self.dtype)
        self._fill(read, start)
        return torch.from_numpy(read.astype(np.float32, copy=False))

    def _fill(self, read: Array, row: int) -> None:
        self._file.seek(self.offset + row * self.shape[1] * self.dtype.itemsize)
        rest = read.reshape(-1).view(np.uint8).data
        while len(rest):  # the system may give less than was asked for
            number = self._file.readinto(rest)
            if not number:
                raise ValueError(f"{self.path} ends before row {row + len(read) - 1}: it was cut while it was read.")
            rest = rest[number:]


def rows_of(array: Array) -> Rows:
    """The rows of an array; of a mapped one, those of its file."""
    if isinstance(array, np.memmap) and array.flags.c_contiguous and array.filename is not None:
        return FileRows(array.filename, (array.shape[0], array.shape[1]), array.dtype, offset=array.offset)
    return ArrayRows(array)
