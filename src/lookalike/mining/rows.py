"""Rows of embeddings that are read a few at a time: in memory, in a file, in several files, at unit length.

Rows are read, not mapped: pages of a mapped file count as memory of the process, and the system maps far more than was
requested, up to megabytes around each row.
"""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lookalike.utils.arrays import Array


class Located(NamedTuple):
    """Where rows of float32 are."""

    files: Array  # int64 [n], numbers of open files; -1 for memory
    places: Array  # int64 [n], bytes before the row, or its address


class Rows(Protocol):
    """Embeddings that are read a few at a time."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and their length."""

    def read(self, ids: Array) -> Tensor:
        """Read the rows of some ids: float32 [len(ids), dim]."""

    def read_range(self, start: int, stop: int) -> Tensor:
        """Read rows that follow each other: float32 [stop - start, dim]."""

    def locate(self, ids: Array) -> Located | None:
        """Say where the rows of some ids are; None if they are not float32 as they are."""


class ArrayRows:
    """Rows of an array in memory."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape = (int(array.shape[0]), int(array.shape[1]))

    def read(self, ids: Array) -> Tensor:
        """Read the rows of some ids: float32 [len(ids), dim]."""
        return torch.from_numpy(self.array[ids].astype(np.float32))

    def read_range(self, start: int, stop: int) -> Tensor:
        """Read rows that follow each other: float32 [stop - start, dim]."""
        return torch.from_numpy(np.array(self.array[start:stop], np.float32))

    def locate(self, ids: Array) -> Located | None:
        """Say where in memory the rows of some ids are; None if they are not float32, one after another."""
        if self.array.dtype != np.float32 or not self.array.flags.c_contiguous:
            return None
        return Located(np.full(len(ids), -1), self.array.ctypes.data + ids * self.array.strides[0])


class FileRows:
    """Rows of a file.

    Args:
        path: The file.
        shape: Number of rows and their length.
        dtype: The type of their values.
        offset: Bytes before the first row.
        places: Maps ids to rows of the file; by default they are the same.

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
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - stays open until the object goes
        weakref.finalize(self, self._file.close)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the open file: another process opens its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_file"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(  # type: ignore[misc]
            state["path"], state["shape"], state["dtype"], offset=state["offset"], places=state["places"]
        )

    def read(self, ids: Array) -> Tensor:
        """Read the rows of some ids, each once and neighbours together: float32 [len(ids), dim]."""
        rows, inverse = np.unique(ids if self.places is None else self.places(ids), return_inverse=True)
        read = np.empty((len(rows), self.shape[1]), self.dtype)
        firsts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        lasts = np.append(firsts, len(rows))[1:]
        for first, last, row in zip(firsts.tolist(), lasts.tolist(), rows[firsts].tolist(), strict=True):
            self._fill(read[first:last], row)
        return torch.from_numpy(read.astype(np.float32, copy=False)[inverse])

    def read_range(self, start: int, stop: int) -> Tensor:
        """Read rows that follow each other in the file: float32 [stop - start, dim]."""
        read = np.empty((stop - start, self.shape[1]), self.dtype)
        self._fill(read, start)
        return torch.from_numpy(read.astype(np.float32, copy=False))

    def locate(self, ids: Array) -> Located | None:
        """Say where in the file the rows of some ids are; None if they are not float32."""
        if self.dtype != np.float32:
            return None
        rows = ids if self.places is None else self.places(ids)
        places = self.offset + rows * (self.shape[1] * self.dtype.itemsize)
        return Located(np.full(len(ids), self._file.fileno()), places)

    def _fill(self, read: Array, row: int) -> None:
        place = self.offset + row * self.shape[1] * self.dtype.itemsize
        rest = read.reshape(-1).view(np.uint8).data
        while len(rest):  # the system may return less than was requested
            number = self._read_into(rest, place)
            if not number:
                raise ValueError(
                    f"{self.path} ends before row {row + len(read) - 1}: it was truncated while it was read."
                )
            rest, place = rest[number:], place + number

    def _read_into(self, buffer: memoryview, place: int) -> int:
        if hasattr(os, "preadv"):  # threads do not share a position
            return os.preadv(self._file.fileno(), [buffer], place)
        self._file.seek(place)
        return self._file.readinto(buffer) or 0


class ShardRows:
    """Rows of several sources, one after another: ids count on from one to the next.

    Args:
        shards: The sources, in order; rows of all have the same length.

    Raises:
        ValueError: There are none, or rows of two differ in length.

    Examples:
        >>> import numpy as np
        >>> rows = ShardRows([ArrayRows(np.eye(2)), ArrayRows(np.full((1, 2), 7.0))])
        >>> rows.shape, rows.read(np.array([2, 1])).tolist(), rows.read_range(1, 3).tolist()
        ((3, 2), [[7.0, 7.0], [0.0, 1.0]], [[0.0, 1.0], [7.0, 7.0]])
    """

    def __init__(self, shards: Sequence[Rows]) -> None:
        widths = {shard.shape[1] for shard in shards}
        if len(widths) != 1:
            raise ValueError(f"shards must hold rows of one length, got {sorted(widths) or 'no shards'}.")
        self.shards = list(shards)
        self.starts = np.cumsum([0, *(shard.shape[0] for shard in self.shards)])
        self.shape = (int(self.starts[-1]), widths.pop())

    def read(self, ids: Array) -> Tensor:
        """Read the rows of some ids: float32 [len(ids), dim]."""
        ids = np.asarray(ids)
        homes = self.homes(ids)
        read = torch.empty(len(ids), self.shape[1])
        for home in np.unique(homes).tolist():
            places = np.flatnonzero(homes == home)
            read[torch.from_numpy(places)] = self.shards[home].read(ids[places] - self.starts[home])
        return read

    def read_range(self, start: int, stop: int) -> Tensor:
        """Read rows that follow each other: float32 [stop - start, dim]."""
        parts = [torch.empty(0, self.shape[1])]
        for shard, first in zip(self.shards, self.starts.tolist(), strict=False):
            low, high = max(start - first, 0), min(stop - first, shard.shape[0])
            if low < high:
                parts.append(shard.read_range(low, high))
        return torch.cat(parts)

    def locate(self, ids: Array) -> Located | None:
        """Say where the rows of some ids are; None if those of a shard cannot be located."""
        if any(shard.locate(ids[:0]) is None for shard in self.shards):
            return None
        homes = self.homes(ids)
        located = Located(np.empty(len(ids), np.int64), np.empty(len(ids), np.int64))
        for home in np.unique(homes).tolist():
            these = homes == home
            part: Any = self.shards[home].locate(ids[these] - self.starts[home])
            located.files[these], located.places[these] = part
        return located

    def homes(self, ids: Array) -> Array:
        """Return the number of the shard that holds each id."""
        return np.searchsorted(self.starts, ids, side="right") - 1


class UnitRows:
    """Rows of another source at unit length, whose dot products are cosines."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.shape = rows, rows.shape

    def read(self, ids: Array) -> Tensor:
        """Read the rows of some ids: float32 [len(ids), dim]."""
        return normalize(self.rows.read(ids), dim=1)

    def read_range(self, start: int, stop: int) -> Tensor:
        """Read rows that follow each other: float32 [stop - start, dim]."""
        return normalize(self.rows.read_range(start, stop), dim=1)

    def locate(self, ids: Array) -> Located | None:  # noqa: ARG002 - as of other rows
        """Return None: no file holds these rows."""
        return None


def rows_of(array: Array) -> Rows:
    """Return the rows of an array; those of a mapped one are read from its file.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     mapped = np.memmap(file, np.float32, "w+", shape=(4, 2))
        ...     mapped[:] = [[0, 0], [1, 1], [2, 2], [3, 3]]
        ...     rows_of(mapped[2:]).read_range(0, 2).tolist()
        [[2.0, 2.0], [3.0, 3.0]]
    """
    place = _place_in_file(array)
    if place is None:
        return ArrayRows(array)
    file, offset = place
    return FileRows(file, (array.shape[0], array.shape[1]), array.dtype, offset=offset)


def _place_in_file(array: Array) -> tuple[Path, int] | None:
    """Return the file of a mapped array and where in it the array begins; None if it is not one piece of a file.

    A slice of a mapped array keeps the `offset` of the whole, so the address of its first row tells where it begins.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(array, np.memmap) or not isinstance(base, mmap.mmap) or array.filename is None:
        return None
    if not array.flags.c_contiguous or array.mode == "c":  # whose changes are not in the file
        return None
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY  # of the map in the file
    address = np.frombuffer(base, np.uint8).ctypes.data
    return Path(array.filename), start + array.ctypes.data - address
