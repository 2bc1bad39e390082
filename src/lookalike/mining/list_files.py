"""Lists of ids on disk, one per row, as a CSR pair of .npy files: written in bounded memory, read in slices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from lookalike.utils.arrays import save_array, write_array

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from lookalike.utils.arrays import Array
    from lookalike.utils.lists import Lists

OFFSETS, IDS = "offsets.npy", "ids.npy"
ROWS = 1 << 20  # pairs to sort at a time


class ListFile:
    """Lists of ids in a folder, which are read a few rows at a time.

    Args:
        folder: The folder that `write_lists` wrote.
        rows: How many lists it must hold.

    Raises:
        ValueError: The files are damaged.
    """

    def __init__(self, folder: str | Path, rows: int) -> None:
        self.folder = Path(folder)
        self._offsets, self._ids = (NumberFile(self.folder / name) for name in (OFFSETS, IDS))
        if len(self._offsets) != rows + 1 or int(self._offsets.read(rows, rows + 1)[0]) != len(self._ids):
            raise ValueError(f"{self.folder} is damaged: {OFFSETS} and {IDS} do not fit together; write it again.")

    def __len__(self) -> int:
        """Return the number of lists."""
        return len(self._offsets) - 1

    @property
    def num_ids(self) -> int:
        """The number of ids in all lists."""
        return len(self._ids)

    def read(self, first: int, last: int) -> Lists:
        """Return the lists of the rows from `first` to `last`, with offsets that begin at 0."""
        offsets = self._offsets.read(first, last + 1)
        ids = self._ids.read(int(offsets[0]), int(offsets[-1]))
        return torch.from_numpy(offsets - offsets[0]), torch.from_numpy(ids)


class NumberFile:
    """A .npy file of int64 [n], read in slices; nothing of it is mapped.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            try:
                if np.lib.format.read_magic(file) != (1, 0):
                    raise ValueError
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            except ValueError:
                shape, dtype = (), np.dtype(object)
            self._start = file.tell()
        if dtype != np.int64 or len(shape) != 1 or path.stat().st_size != self._start + 8 * shape[0]:
            raise ValueError(f"{path} is damaged: it must hold integers of 64 bits, all of them; write it again.")
        self._length = int(shape[0])

    def __len__(self) -> int:
        """Return how many numbers there are."""
        return self._length

    def read(self, first: int, last: int) -> Array:
        """Read the numbers from `first` to `last`."""
        read = np.fromfile(self.path, np.int64, last - first, offset=self._start + 8 * first)
        if len(read) != last - first:
            raise ValueError(f"{self.path} ends before number {last - 1}: it was truncated while it was read.")
        return read


def write_lists(folder: Path, pairs: Path, rows: int) -> tuple[int, int]:
    """Write the lists of some rows: the ids that are paired with each, without repetitions, in order of appearance.

    Args:
        folder: The new folder to write to.
        pairs: A file of int64 pairs [m, 2]: row and id.
        rows: How many rows there are.

    Returns:
        The number of pairs of one row at most, and the number of ids in one list at most.
    """
    folder.mkdir()
    counts = np.zeros(rows, np.int64)
    for part in _parts(pairs):
        np.add.at(counts, part[:, 0], 1)
    lengths = np.zeros(rows, np.int64)
    with (folder / IDS).open("wb") as file:
        _write_header(file, 0)
        for first, last, part in _partitions(pairs, counts, folder):
            listed = _without_repetitions(part)
            lengths[first:last] = np.bincount(listed[:, 0] - first, minlength=last - first)
            write_array(file, listed[np.argsort(listed[:, 0], kind="stable"), 1])
        total = int(lengths.sum())
        file.seek(0)
        _write_header(file, total)
    with (folder / OFFSETS).open("wb") as file:
        save_array(file, np.concatenate([[0], np.cumsum(lengths)]))
    return int(counts.max()), int(lengths.max())


def _parts(pairs: Path) -> Iterator[Array]:
    """Yield the pairs of a file, int64 [m, 2], a few megabytes at a time."""
    with pairs.open("rb") as file:
        while len(part := np.fromfile(file, np.int64, 2 * ROWS)):
            yield part.reshape(-1, 2)


def _partitions(pairs: Path, counts: Array, folder: Path) -> Iterator[tuple[int, int, Array]]:
    """Yield the pairs of some rows after others: the first row, the one after the last, and int64 [m, 2].

    Pairs keep their order. If they are too many to be sorted at once, they are first divided into files by their row.
    """
    before = np.cumsum(counts) - counts
    starts = np.flatnonzero(np.diff(before // ROWS, prepend=-1))
    ends = [*starts[1:].tolist(), len(counts)]
    if len(starts) == 1:
        yield 0, ends[0], np.fromfile(pairs, np.int64).reshape(-1, 2)
        return
    files = [folder / f"{i}.part" for i in range(len(starts))]
    for part in _parts(pairs):
        homes = np.searchsorted(starts, part[:, 0], side="right") - 1
        order = np.argsort(homes, kind="stable")
        bounds = np.searchsorted(homes[order], np.arange(len(starts) + 1))
        for file, first, last in zip(files, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if last > first:
                with file.open("ab") as opened:
                    write_array(opened, part[order[first:last]])
    for file, first, last in zip(files, starts.tolist(), ends, strict=True):
        yield first, last, np.fromfile(file, np.int64).reshape(-1, 2)
        file.unlink()


def _without_repetitions(pairs: Array) -> Array:
    """Return the first of equal pairs, in order of appearance."""
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))  # stable
    repeated = np.zeros(len(pairs), bool)
    repeated[order[1:]] = (pairs[order[1:]] == pairs[order[:-1]]).all(axis=1)
    return pairs[~repeated]


def _write_header(file: BinaryIO, length: int) -> None:
    """Write the header of a .npy file; NumPy leaves room in it for any length, so that it can be written again."""
    np.lib.format.write_array_header_1_0(file, {"shape": (length,), "fortran_order": False, "descr": "<i8"})
