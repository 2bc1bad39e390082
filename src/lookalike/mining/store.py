"""Embeddings or codes of texts on disk: appended chunk by chunk, so that a killed run loses one chunk at most.

Chunk j of c holds every c-th text from the j-th on. Each chunk is therefore a sample of all texts: the mean of the
first one, by which codes are centred, is that of the corpus and not of its first pages.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.files import room_for, write_text
from lookalike.mining.rows import FileRows

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("lookalike")

CHUNK = 2048  # texts; what a killed run loses, and what the mean is taken from
FORMAT = 1
Array = np.ndarray[Any, Any]


class Store:
    """One row per text in a file, as far as there are any.

    Args:
        folder: Belongs to this store alone.
        n: Number of texts.
        dtype: Of the rows: float32 for embeddings, uint8 for codes.
    """

    def __init__(self, folder: Path, n: int, dtype: type[np.float32 | np.uint8]) -> None:
        self.folder, self.n, self.dtype = folder, n, np.dtype(dtype)
        self.num_chunks = -(-n // CHUNK)
        with room_for(f"the folder {folder}", "choose another one"):
            folder.mkdir(parents=True, exist_ok=True)
        self.done, self.width = self._progress()

    def chunk(self, j: int) -> range:
        """Which texts chunk j holds."""
        return range(j, self.n, self.num_chunks)

    def read(self, j: int) -> Array:
        """A chunk that was appended: [texts, width]."""
        start, stop = (int(self._start(chunk)) * self.width for chunk in (j, j + 1))
        rows = np.fromfile(self._file, self.dtype, count=stop - start, offset=start * self.dtype.itemsize)
        return rows.reshape(-1, self.width)

    def append(self, rows: Array) -> None:
        """Write the next chunk, [texts, width].

        Raises:
            DiskFullError: There is no room; the chunks before are kept.
        """
        before, width = int(self._start(self.done)), rows.shape[1]
        kept = f"{before:,} of {self.n:,} texts are kept in {self.folder}; make room and run the same again to go on"
        with room_for("what was encoded", kept):
            self._file.touch()
            with self._file.open("r+b") as file:
                file.seek(before * width * self.dtype.itemsize)
                file.write(np.ascontiguousarray(rows, self.dtype).data)
                file.truncate()  # what a killed run had begun
                file.flush()
                os.fsync(file.fileno())
            progress = {"format": FORMAT, "chunks": self.done + 1, "width": width}
            write_text(self._note, json.dumps(progress) + "\n")
        self.done, self.width = self.done + 1, width

    def rows(self) -> FileRows:
        """All rows, by the number of their text."""
        return FileRows(self._file, (self.n, self.width), self.dtype, places=self._places)

    @property
    def _file(self) -> Path:
        return self.folder / "rows.bin"

    @property
    def _note(self) -> Path:
        return self.folder / "done.json"

    def _start(self, chunk: Any) -> Any:
        """How many texts stand before a chunk; also of an array of chunks."""
        return chunk * (self.n // self.num_chunks) + np.minimum(chunk, self.n % self.num_chunks)

    def _places(self, ids: Array) -> Array:
        """Where texts stand in the file."""
        places: Array = self._start(ids % self.num_chunks) + ids // self.num_chunks
        return places

    def _progress(self) -> tuple[int, int]:
        """Chunks that are there and the width of a row; 0 and 0 where nothing is."""
        if not self._note.exists():
            return 0, 0
        try:
            noted = json.loads(self._note.read_text(encoding="utf-8"))
            done, width, known = int(noted["chunks"]), int(noted["width"]), noted["format"] == FORMAT
        except (ValueError, KeyError, TypeError):
            done, width, known = 0, 0, False
        size = self._file.stat().st_size if self._file.exists() else 0
        whole = size >= int(self._start(done)) * width * self.dtype.itemsize
        if not known or not whole or not 0 < done <= self.num_chunks or width <= 0:
            logger.warning("what %s holds is damaged and is encoded again.", self.folder)
            return 0, 0
        return done, width
