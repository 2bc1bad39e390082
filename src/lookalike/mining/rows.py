"""Embeddings by row number from a file that is larger than memory."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]

RESIDENT_BYTES = 64 << 20  # of a mapped file, after which its pages are given back
AROUND_BYTES = 64 << 10  # that the system maps along with a row


class Rows(Protocol):
    """Embeddings that are read a few at a time."""

    def __len__(self) -> int:
        """Number of rows."""

    def read(self, ids: Array) -> Tensor:
        """Some rows, float32 [len(ids), dim]."""


class MappedRows:
    """The rows of an array; pages of a mapped one are given back after they were read.

    They stay in the system's cache as long as there is room, but never count as memory of this process.

    Args:
        array: Floats `[n, dim]`, mapped or not.
        places: From ids to rows of the array; by default they are the same.
    """

    def __init__(self, array: Array, places: Callable[[Array], Array] | None = None) -> None:
        self.array, self.places = array, places
        self._plain = np.asarray(array)  # indexing a memmap itself is slower
        self._resident = 0

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.array)

    @property
    def dim(self) -> int:
        """Length of a row."""
        return int(self.array.shape[1])

    def read(self, ids: Array) -> Tensor:
        """Some rows, float32 [len(ids), dim]."""
        rows = ids if self.places is None else self.places(ids)
        read = np.empty((len(rows), self.dim), np.float32)
        step = max(1, RESIDENT_BYTES // (AROUND_BYTES + self.array.strides[0]))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            if self.array.dtype == np.float32:
                np.take(self._plain, part, axis=0, out=read[start : start + step], mode="clip")  # else it is buffered
            else:
                read[start : start + step] = self._plain[part]
            self._give_back(min(step, len(rows) - start) * (AROUND_BYTES + self.array.strides[0]))
        return torch.from_numpy(read)

    def read_range(self, start: int, stop: int) -> Tensor:
        """Rows that follow each other, as they stand in the file: float32 [stop - start, dim]."""
        read = np.array(self.array[start:stop], np.float32)
        self._give_back((stop - start) * self.array.strides[0])
        return torch.from_numpy(read)

    def _give_back(self, touched: int) -> None:
        self._resident += touched
        base = self.array.base
        if self._resident >= RESIDENT_BYTES and isinstance(base, mmap.mmap) and hasattr(base, "madvise"):
            base.madvise(mmap.MADV_DONTNEED)
            self._resident = 0
