"""The cache of encoded texts: chunk by chunk, whatever stops a process.

The cache holds texts in chunks. Chunk j of c holds every c-th text from the j-th on, so each chunk is a sample of all
texts, and the mean of the first one, by which codes are centred, estimates that of the whole corpus. `Store` writes a
chunk before the note that has its checksum, and replaces the note as a whole. Whatever stops a process, and whatever
happens to the files afterwards, a chunk that is read back is the one that was written; one that does not match its
checksum counts as missing. Reading therefore needs no lock. Writing does: one process at a time.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import zlib
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from lookalike.mining.rows import FileRows
from lookalike.utils.files import FULL, DiskFullError, UnwritableError, remove_leftovers, room_for, writable, write_text
from lookalike.utils.locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lookalike.utils.arrays import Array

logger = logging.getLogger("lookalike")

NOTE = "done.json"
FORMAT = 2  # 1 had no checksums
STORE = re.compile(r"(document|query)-[0-9a-f]{24}")  # names of a store's folder
STATISTICS = re.compile(r"statistics-[0-9a-f]{24}-.*")  # names of files that codes depend on


class Store:
    """The cache of one list of texts: one row per text, as far as they are encoded.

    A context that releases what `claim` holds.

    Args:
        folder: Belongs to this store alone; `claim` creates it.
        n: Number of texts.
        dtype: The type of the rows: float32 for embeddings, uint8 for codes.
    """

    CHUNK: ClassVar = 2048  # texts: what a killed run loses, and what the mean is taken from

    def __init__(self, folder: Path, n: int, dtype: type[np.float32 | np.uint8]) -> None:
        self.folder, self.n, self.dtype = folder, n, np.dtype(dtype)
        self.num_chunks = -(-n // self.CHUNK)
        self._held = ExitStack()
        self._claimed = self._warned = False
        self._checksums: list[int | None] = []
        self.width = 0
        self._load_note()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    @property
    def kept(self) -> int:
        """Number of texts on disk."""
        return sum(len(self.chunk(j)) for j, checksum in enumerate(self._checksums) if checksum is not None)

    @property
    def is_full(self) -> bool:
        """Whether every chunk was written and the file is as long as all of them; `read` finds out about damage."""
        try:
            size = self._file.stat().st_size
        except OSError:
            return False
        return None not in self._checksums and size >= self.n * self.width * self.dtype.itemsize

    def chunk(self, j: int) -> range:
        """Return the numbers of the texts in chunk j."""
        return range(j, self.n, self.num_chunks)

    def read(self, j: int) -> Array | None:
        """Read a chunk, [texts, width]; None if it is missing or damaged."""
        if self._checksums[j] is None:
            return None
        start, stop = (int(self._start(chunk)) * self.width * self.dtype.itemsize for chunk in (j, j + 1))
        try:
            whole = self._file.stat().st_size >= stop
            rows = np.fromfile(self._file, np.uint8, count=stop - start, offset=start) if whole else None
        except OSError:
            rows = None
        if rows is None or zlib.crc32(rows.data) != self._checksums[j]:
            self._checksums[j] = None
            self._warn("is damaged; what is missing is encoded again")
            return None
        return rows.view(self.dtype).reshape(-1, self.width)

    def claim(self) -> None:
        """Become the one process that writes, and find the chunks that another one has written in the meantime.

        Raises:
            FolderInUseError: Another process is writing; the message names it.
            UnwritableError: The folder cannot be written to.
        """
        if self._claimed:
            return
        with self._writing("choose another cache folder"):
            with writable(self.folder.parent):
                self.folder.parent.mkdir(parents=True, exist_ok=True)
            self._held.enter_context(locked(self.folder))
            remove_leftovers(self._note)
        self._claimed = True
        self._load_note()

    def write(self, j: int, rows: Array) -> None:
        """Write a chunk, [texts, width]; call `claim` first.

        Raises:
            DiskFullError: There is no room; the other chunks stay.
            UnwritableError: The folder cannot be written to.
        """
        if rows.shape[1] != self.width:
            self._checksums, self.width = [None] * self.num_chunks, rows.shape[1]
        data = np.ascontiguousarray(rows, self.dtype).data.cast("B")
        kept = f"{self.kept:,} of {self.n:,} texts are kept in {self.folder}; make room and run it again to resume"
        with self._writing(kept):
            self._file.touch()
            with self._file.open("r+b") as file:
                file.seek(int(self._start(j)) * self.width * self.dtype.itemsize)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            checksums = [*self._checksums[:j], zlib.crc32(data), *self._checksums[j + 1 :]]
            note = {"format": FORMAT, "width": self.width, "checksums": checksums}
            write_text(self._note, json.dumps(note) + "\n")
        self._checksums = checksums

    def rows(self) -> FileRows:
        """Return all rows, by the number of their text."""
        return FileRows(self._file, (self.n, self.width), self.dtype, places=self._places)

    @property
    def _file(self) -> Path:
        return self.folder / "rows.bin"

    @property
    def _note(self) -> Path:
        return self.folder / NOTE

    def _start(self, chunk: Any) -> Any:
        """Count the texts before a chunk, or before each of an array of chunks."""
        return chunk * (self.n // self.num_chunks) + np.minimum(chunk, self.n % self.num_chunks)

    def _places(self, ids: Array) -> Array:
        """Map numbers of texts to rows of the file."""
        places: Array = self._start(ids % self.num_chunks) + ids // self.num_chunks
        return places

    def _load_note(self) -> None:
        """Learn which chunks should be there; `read` finds out whether they are."""
        self._checksums, self.width = [None] * self.num_chunks, 0
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            width, checksums = note["width"], note["checksums"]
            known = note["format"] == FORMAT and isinstance(checksums, list) and len(checksums) == self.num_chunks
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            known = False
        if not known or not isinstance(width, int) or width <= 0:
            self._warn("is damaged, or was written by another version, and is encoded again")
            return
        self._checksums, self.width = checksums, width

    def _warn(self, what: str) -> None:
        """Log once that something has to be encoded again."""
        if not self._warned:
            logger.warning("%s %s.", self.folder, what)
        self._warned = True

    @contextmanager
    def _writing(self, then: str) -> Iterator[None]:
        """Report in one sentence that a file cannot be written, and what to do `then` if the disk is full."""
        with room_for("encoded texts", then):
            try:
                yield
            except (DiskFullError, UnwritableError):
                raise
            except OSError as error:
                if error.errno in FULL:
                    raise
                raise UnwritableError(
                    f"{self.folder} cannot be written to ({error}); delete it or choose another cache folder."
                ) from error


def remove_stores(folder: Path, *, only_empty: bool = False) -> None:
    """Remove stores and statistics from a folder, or only stores without a single chunk, and nothing else."""
    for path in folder.iterdir():
        if STORE.fullmatch(path.name) and not (only_empty and (path / NOTE).exists()):
            shutil.rmtree(path, ignore_errors=True)
        elif STATISTICS.fullmatch(path.name) and not only_empty:
            path.unlink(missing_ok=True)
