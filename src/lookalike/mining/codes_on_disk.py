"""Codes of one side on disk: a file per block of rows, read a few megabytes at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from lookalike.mining.cells import Cell, write_cell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor


@dataclass(frozen=True)
class CodeFiles:
    """The codes of one side, as far as its rows are hashed.

    Args:
        folder: Where the files are.
        side: "query" or "reference".
        n: Number of rows.
        width: Bytes per code.
        block: Rows per file.
    """

    folder: Path
    side: str
    n: int
    width: int
    block: int

    def path(self, rows: range) -> Path:
        """Return the file of a block of rows."""
        return self.folder / Cell("hash", self.side, rows).name

    def write(self, rows: range, codes: Tensor) -> None:
        """Write the codes of a block, uint8 [len(rows), width]."""
        write_cell(self.path(rows), memoryview(codes.contiguous().numpy()).cast("B"))

    def read(self, rows: range) -> Tensor:
        """Read codes of rows that follow each other, uint8 [len(rows), width]."""
        codes = np.empty((len(rows), self.width), np.uint8)
        for first in range(rows.start - rows.start % self.block, rows.stop, self.block):
            start, stop = max(first, rows.start), min(first + self.block, rows.stop)
            part = codes[start - rows.start : stop - rows.start]
            with self.path(range(first, min(first + self.block, self.n))).open("rb", buffering=0) as file:
                file.seek((start - first) * self.width)
                _fill(part, file)
        return torch.from_numpy(codes)

    def take(self, ids: Tensor) -> Tensor:
        """Read the codes of some rows in any order, uint8 [len(ids), width]."""
        wanted, inverse = torch.unique(ids, return_inverse=True)
        codes = torch.empty(len(wanted), self.width, dtype=torch.uint8)
        blocks = wanted // self.block
        for block in torch.unique(blocks).tolist():
            here = blocks == block
            first = block * self.block
            whole = self.read(range(first, min(first + self.block, self.n)))
            codes[here] = whole[wanted[here] - first]
        return codes[inverse]

    def pages(self, rows: range, page: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the codes of rows that follow each other, `page` at a time, with the number of the first."""
        for start in range(rows.start, rows.stop, page):
            yield start, self.read(range(start, min(start + page, rows.stop)))


def _fill(part: np.ndarray, file) -> None:  # type: ignore[no-untyped-def, type-arg]
    rest = part.reshape(-1).data
    while len(rest):  # the system may return less than was requested
        number = file.readinto(rest)
        if not number:
            raise ValueError(f"{file.name} was truncated while it was read; run the same command again to resume.")
        rest = rest[number:]
