"""Read texts by number from a file of `id<TAB>text` lines that is larger than memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.data.indexed_lines import Found, IndexedLines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.utils.arrays import Array

LONGEST_ID = 18  # digits


class Lines(IndexedLines):
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

    kind = "lines"

    def _numbers(self, ids: Sequence[Any] | Array) -> Array:
        return np.asarray(ids, np.int64)

    def _text(self, line: bytes) -> str:
        return line.rstrip(b"\r\n").partition(b"\t")[2].decode("utf-8", errors="replace")

    def _lines(self, data: bytes, before: int) -> Found:
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
            raise ValueError(
                f"{self.path}, line {before + line + 1}: expected a number, a tab and a text, got {shown!r}."
            )
        return Found(first, numbers)
