"""Read the lines of a file that is larger than memory by number.

The first use indexes where each line begins and keeps the index in the cache folder. Later uses map the index into
memory and read single lines from the file. The file itself is not mapped: the system would map far more than a line,
which is slower than reading it and counts as memory.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import weakref
from typing import IO, TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from lookalike.utils.arrays import save_array
from lookalike.utils.files import cache_folder, replacing
from lookalike.utils.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lookalike.utils.arrays import Array

logger = logging.getLogger("lookalike")

FORMAT = 1  # version of the cached index
HEADER = 4  # format, size and time of the file, number of lines; line starts and ids follow
CHUNK_BYTES = 16 << 20


class Found(NamedTuple):
    """The lines in a piece of a file."""

    starts: Array  # int64, from the beginning of the piece
    ids: Array  # int64


class IndexedLines:
    """The texts of a file by the position of their line, and positions by id; `Items`.

    A subclass says what a line is: where the lines of a piece begin and which ids they have, the text of a line, and
    the number that stands for an id.

    Args:
        path: The file.
        progress: Show a progress bar while indexing.

    Raises:
        ValueError: A line looks different; the message names it.
    """

    kind: ClassVar[str]
    """Part of the name of the cached index."""

    def __init__(self, path: Path, *, progress: bool = False) -> None:
        self.path = path
        index = self._load_index()
        if index is None:
            index = self._save_index(self._build_index(progress=progress))
        index = index.view(np.ndarray)  # still mapped, without the overhead of a memmap at every access
        self._num_lines = int(index[3])
        self._starts = index[HEADER : HEADER + self._num_lines + 1]
        ids = index[HEADER + self._num_lines + 1 :]
        self.ids: Array | None = ids if len(ids) else None  # None: 0, 1, 2, ...
        self._order: Array | None = None  # sorts the ids
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._reading = threading.Lock()  # all threads share the position in the file
        weakref.finalize(self, os.close, self._file)

    def __len__(self) -> int:
        """Return the number of lines."""
        return self._num_lines

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path: another process opens the file itself."""
        return type(self), (self.path,)

    def read(self, positions: Array) -> list[str]:
        """Return the texts of these lines, without their ids."""
        first, last = self._starts[positions].tolist(), self._starts[np.asarray(positions) + 1].tolist()
        return [self._text(self._read(start, end)) for start, end in zip(first, last, strict=True)]

    def positions(self, ids: Sequence[Any] | Array) -> Array:
        """Return the positions of the lines with these ids, int64.

        Raises:
            ValueError: No line has one of the ids.
        """
        found, known = self.find(ids)
        if not known.all():
            missing = ids[int(np.flatnonzero(~known)[0])]
            raise ValueError(f"{self.path} has no line with the id {missing}, which another file names.")
        return found

    def find(self, ids: Sequence[Any] | Array) -> tuple[Array, Array]:
        """Return the positions of the lines with these ids, int64, and which ids there are."""
        wanted = self._numbers(ids)
        if self.ids is None:
            return wanted, (wanted >= 0) & (wanted < len(self))
        if self._order is None:
            self._order = np.argsort(self.ids, kind="stable")
        places = np.searchsorted(self.ids, wanted, sorter=self._order).clip(max=len(self) - 1)
        found = self._order[places]
        return found, self.ids[found] == wanted

    def _numbers(self, ids: Sequence[Any] | Array) -> Array:
        """Return the numbers that stand for ids, int64."""
        raise NotImplementedError

    def _text(self, line: bytes) -> str:
        """Return the text of a line."""
        raise NotImplementedError

    def _lines(self, data: bytes, before: int) -> Found:
        """Find the lines of a piece of the file, which ends with one; `before` counts the line ends before it."""
        raise NotImplementedError

    def _read(self, start: int, end: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file, end - start, start)
        with self._reading:
            os.lseek(self._file, start, os.SEEK_SET)
            return os.read(self._file, end - start)

    def _load_index(self) -> Array | None:
        """Map the index of this very file, if the cache folder holds one."""
        if not self._place.exists():
            return None
        try:
            index: Array = np.load(self._place, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            logger.warning("the cached index of %s is damaged; building it again: %s", self.path, error)
            return None
        known = index.ndim == 1 and len(index) > HEADER and index[:3].tolist() == self._identity()
        return index if known and len(index) in (HEADER + index[3] + 1, HEADER + 2 * index[3] + 1) else None

    @property
    def _place(self) -> Path:
        digest = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:16]
        return cache_folder() / f"{self.kind}-{digest}.npy"

    def _identity(self) -> list[int]:
        about = self.path.stat()
        return [FORMAT, about.st_size, about.st_mtime_ns]

    def _save_index(self, index: Array) -> Array:
        """Write the index to the cache folder and map it from there; return it unmapped if it cannot be written."""
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._place) as temporary, temporary.open("wb") as file:
                save_array(file, index)
            mapped: Array = np.load(self._place, mmap_mode="r")
        except OSError as error:
            logger.warning("cannot cache the index of %s, so it will be built again next time: %s", self.path, error)
            return index
        return mapped

    def _build_index(self, *, progress: bool) -> Array:
        """Index the file: int64 [4 + lines + 1], followed by the ids unless they are 0, 1, 2, ..."""
        identity = self._identity()
        found: list[Found] = []
        position = line_ends = num_lines = 0
        in_order = True
        with (
            self.path.open("rb") as file,
            progress_bar(f"indexing {self.path.name} (once)", max(1, identity[1]), shown=progress) as bar,
        ):
            for piece in _whole_lines(file):
                lines = self._lines(piece, line_ends)
                in_order = in_order and bool((lines.ids == np.arange(num_lines, num_lines + len(lines.ids))).all())
                found.append(Found(lines.starts + position, lines.ids))
                position, line_ends = position + len(piece), line_ends + piece.count(b"\n")
                num_lines += len(lines.ids)
                bar.advance(len(piece))
        if num_lines == 0:
            raise ValueError(f"{self.path} is empty.")
        header = np.array([*identity, num_lines], np.int64)
        starts, ids = ([part[i] for part in found] for i in range(2))
        return np.concatenate([header, *starts, np.array([identity[1]]), *([] if in_order else ids)])


def _whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file in pieces of whole lines; the last one gets the end that it may lack."""
    rest = b""
    while chunk := file.read(CHUNK_BYTES):
        whole, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline:
            yield whole + newline
    if rest:
        yield rest + b"\n"
