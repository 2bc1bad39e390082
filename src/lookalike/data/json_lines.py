"""Read texts by number from a .jsonl file that is larger than memory: BEIR's `corpus.jsonl` and `queries.jsonl`."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.data.indexed_lines import Found, IndexedLines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.utils.arrays import Array

SHOWN = 60  # characters of a line, in errors


class JsonLines(IndexedLines):
    """The texts of a file by the position of their line; `Items`. The title comes first, if there is one.

    Args:
        path: A file of objects with `_id` and `text`, and perhaps `title`, one on each line that is not blank.
        progress: Show a progress bar while indexing.

    Raises:
        ValueError: A line looks different, the message names it; or two lines have the same id.
    """

    kind = "json-lines"

    def _build_index(self, *, progress: bool) -> Array:
        index = super()._build_index(progress=progress)
        ids = index[-int(index[3]) :]
        order = np.argsort(ids, kind="stable")
        repeated = np.flatnonzero(np.diff(ids[order]) == 0)
        if len(repeated):
            row = int(order[repeated[0] + 1])
            with self.path.open("rb") as file:
                file.seek(int(index[4 + row]))
                name = json.loads(file.readline())["_id"]
            raise ValueError(f"{self.path} has two lines with the _id {name!r}: remove one of them.")
        return index

    def _numbers(self, ids: Sequence[Any] | Array) -> Array:
        return np.array([_hashed(name) for name in ids], np.int64)

    def _text(self, line: bytes) -> str:
        row = json.loads(line)
        return f"{row.get('title') or ''} {row['text']}".strip()

    def _lines(self, data: bytes, before: int) -> Found:
        starts, ids = [], []
        start = 0
        for number, line in enumerate(data.split(b"\n")[:-1], before + 1):
            if line.strip():
                starts.append(start)
                ids.append(_hashed(self._checked_id(line, number)))
            start += len(line) + 1
        return Found(np.array(starts, np.int64), np.array(ids, np.int64))

    def _checked_id(self, line: bytes, number: int) -> str:
        try:
            row = json.loads(line)
        except ValueError:  # which includes bytes that are not UTF-8
            row = None
        if (
            not isinstance(row, dict)
            or not isinstance(row.get("_id"), str)
            or not isinstance(row.get("text"), str)
            or not isinstance(row.get("title"), str | None)
        ):
            shown = line[:SHOWN].decode("utf-8", errors="replace").strip()
            raise ValueError(
                f'{self.path}, line {number}: expected {{"_id": "...", "text": "..."}} with texts, and perhaps a '
                f"title, got {shown!r}."
            )
        return str(row["_id"])


def _hashed(name: str) -> int:
    """Return the 64 bits that stand for an id: among a hundred million ids, two share them once in 3,700 times."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)
