"""Read texts by number from a file of `id<TAB>text` lines that is larger than memory.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.utils.files import cache_folder, replacing
from lookalike.utils.progress import progress_bar

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.utils.arrays import Array

logger = logging.getLogger("lookalike")

FORMAT = 1  # version of the cached index
HEADER = 4  # format, size and time of the file, number of lines; line starts and ids follow
CHUNK_BYTES = 16 << 20
LONGEST_ID = 18  # digits


class Lines:
    """The texts of a file by the position of their line; `Items`.

    Args:
        path: A file of `id<TAB>text` lines. Ids are whole numbers in any order.
        progress: Show a progress bar while indexing.

    Raises:
        ValueError: A line looks different; the message names it.

    Examples:
        >>> import os, tempfile
        >>> from pathlib import Path
        >>> os.environ["LOOKALIKE_CACHE"] = folder = tempfile.mkdtemp()
        >>> path = Path(folder, "collection.tsv")
        >>> _ = path.write_text("7\\tseven\\n3\\tthree\\n")
        >>> lines = Lines(path)
        >>> lines.read(lines.positions([3]))
        ['three']
        >>> del os.environ["LOOKALIKE_CACHE"]
    """

    def __init__(self, path: Path, *, progress: bool = False) -> None:
        self.path = path
        index = _load_index(path)
        if index is None:
            index = _save_index(path, _build_index(path, progress=progress))
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
        return Lines, (self.path,)

    def read(self, positions: Array) -> list[str]:
        """Return the texts of these lines, without their ids."""
        first, last = self._starts[positions].tolist(), self._starts[np.asarray(positions) + 1].tolist()
        lines = [self._read(start, end) for start, end in zip(first, last, strict=True)]
        return [line.rstrip(b"\r\n").partition(b"\t")[2].decode("utf-8", errors="replace") for line in lines]

    def _read(self, start: int, end: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file, end - start, start)
        with self._reading:
            os.lseek(self._file, start, os.SEEK_SET)
            return os.read(self._file, end - start)

    def positions(self, ids: Any) -> Array:
        """Return the positions of the lines with these ids, int64.

        Raises:
            ValueError: No line has one of the ids.
        """
        wanted = np.asarray(ids, np.int64)
        if self.ids is None:
            found, known = wanted, (wanted >= 0) & (wanted < len(self))
        else:
            if self._order is None:
                self._order = np.argsort(self.ids, kind="stable")
            places = np.searchsorted(self.ids, wanted, sorter=self._order).clip(max=len(self) - 1)
            found = self._order[places]
            known = self.ids[found] == wanted
        if not known.all():
            raise ValueError(f"{self.path} has no line with the id {wanted[~known][0]}, which another file names.")
        return found


def _load_index(path: Path) -> Array | None:
    """Map the index of this very file, if the cache folder holds one."""
    place = _place(path)
    if not place.exists():
        return None
    try:
        index: Array = np.load(place, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        logger.warning("the cached index of %s is damaged; building it again: %s", path, error)
        return None
    known = index.ndim == 1 and len(index) > HEADER and index[:3].tolist() == _identity(path)
    return index if known and len(index) in (HEADER + index[3] + 1, HEADER + 2 * index[3] + 1) else None


def _place(path: Path) -> Path:
    return cache_folder() / f"lines-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}.npy"


def _identity(path: Path) -> list[int]:
    about = path.stat()
    return [FORMAT, about.st_size, about.st_mtime_ns]


def _save_index(path: Path, index: Array) -> Array:
    """Write the index to the cache folder and map it from there; return it unmapped if it cannot be written."""
    place = _place(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as temporary, temporary.open("wb") as file:
            np.save(file, index)
        mapped: Array = np.load(place, mmap_mode="r")
    except OSError as error:
        logger.warning("cannot cache the index of %s, so it will be built again next time: %s", path, error)
        return index
    return mapped


def _build_index(path: Path, *, progress: bool) -> Array:
    """Index a file: int64 [4 + lines + 1], followed by the ids unless they are 0, 1, 2, ..."""
    identity = _identity(path)
    starts: list[Array] = []
    ids: list[Array] = []
    position = num_lines = 0
    in_order = True
    with (
        path.open("rb") as file,
        progress_bar(f"indexing {path.name} (once)", max(1, identity[1]), shown=progress) as bar,
    ):
        rest = b""
        while chunk := file.read(CHUNK_BYTES):
            bar.advance(len(chunk))
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            if newline:
                _append(path, whole + newline, position, num_lines, starts, ids)
                position, num_lines = position + len(whole) + 1, num_lines + len(starts[-1])
                in_order = in_order and ids[-1][0] == num_lines - len(ids[-1]) and bool((np.diff(ids[-1]) == 1).all())
        if rest:
            _append(path, rest + b"\n", position, num_lines, starts, ids)
            num_lines += 1
            in_order = in_order and ids[-1][0] == num_lines - 1
    if not starts:
        raise ValueError(f"{path} is empty.")
    header = np.array([*identity, num_lines], np.int64)
    return np.concatenate([header, *starts, np.array([identity[1]]), *([] if in_order else ids)])


def _append(path: Path, data: bytes, position: int, num_lines: int, starts: list[Array], ids: list[Array]) -> None:
    """Find where the lines of `data` begin, and their ids."""
    text = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    first = np.concatenate([[0], ends[:-1] + 1])
    numbers, place = np.zeros(len(first), np.int64), first.copy()
    for _ in range(LONGEST_ID):
        digits = text[place].astype(np.int64) - ord("0")
        going = (digits >= 0) & (digits <= 9)
        if not going.any():
            break
        numbers = np.where(going, numbers * 10 + digits, numbers)
        place += going  # lines whose number has ended stop here: their next character is not a digit
    wrong = (text[place] != ord("\t")) | (place == first)
    if wrong.any():
        line = int(np.flatnonzero(wrong)[0])
        shown = data[first[line] : ends[line]][:60].decode("utf-8", errors="replace")
        raise ValueError(f"{path}, line {num_lines + line + 1}: expected a number, a tab and a text, got {shown!r}.")
    starts.append(first + position)
    ids.append(numbers)
