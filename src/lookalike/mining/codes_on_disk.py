"""Codes of one side on disk: a file per block of rows, read a few megabytes at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lookalike.mining.cells import Cell, write_cell
from lookalike.search.pages import default_rows

APART = 1 << 13  # bytes of a file that are read in the time it takes to find a code

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
        write_cell(self.path(rows), codes.contiguous().numpy().data.cast("B"))

    def read(self, rows: range) -> Tensor:
        """Read codes of rows that follow each other, uint8 [len(rows), width]."""
        codes = torch.empty(len(rows), self.width, dtype=torch.uint8)
        self._fill(codes, rows)
        return codes

    def take(self, ids: Tensor) -> Tensor:
        """Read the codes of some rows in any order, uint8 [len(ids), width]."""
        wanted, inverse = torch.unique(ids, return_inverse=True)
        codes = torch.empty(len(wanted), self.width, dtype=torch.uint8)
        blocks = wanted // self.block
        for block in torch.unique(blocks).tolist():
            here = blocks == block
            first = block * self.block
            rows, places = range(first, min(first + self.block, self.n)), wanted[here] - first
            if len(places) * APART < len(rows) * self.width:
                codes[here] = self._pick(rows, places)
            else:
                codes[here] = self.read(rows)[places]
        return codes[inverse]

    def pages(self, rows: range, device: torch.device) -> Iterator[tuple[int, Tensor]]:
        """Yield the codes of rows that follow each other, as many as suit a device, with the number of the first.

        Two buffers take turns: codes are overwritten when those after the next are asked for.
        """
        step = min(default_rows(self.width, device), max(1, len(rows)))
        locked = device.type == "cuda"
        buffers = [
            torch.empty(step, self.width, dtype=torch.uint8, pin_memory=locked)
            for _ in range(min(2, -(-len(rows) // step)))
        ]
        for number, start in enumerate(range(rows.start, rows.stop, step)):
            codes = buffers[number % 2][: rows.stop - start]
            self._fill(codes, range(start, start + len(codes)))
            yield start, codes

    def _pick(self, rows: range, places: Tensor) -> Tensor:
        """Read a few codes of a block, one by one."""
        codes = torch.empty(len(places), self.width, dtype=torch.uint8)
        with self.path(rows).open("rb") as file:
            for code, place in zip(codes.numpy(), places.tolist(), strict=True):
                file.seek(place * self.width)
                if file.readinto(code.data) < self.width:
                    raise ValueError(f"{file.name} was truncated while it was read; run the same command to resume.")
        return codes

    def _fill(self, codes: Tensor, rows: range) -> None:
        """Read codes of rows that follow each other into a tensor, from as many files as they are in."""
        for first in range(rows.start - rows.start % self.block, rows.stop, self.block):
            start, stop = max(first, rows.start), min(first + self.block, rows.stop)
            rest = codes[start - rows.start : stop - rows.start].numpy().data.cast("B")
            with self.path(range(first, min(first + self.block, self.n))).open("rb", buffering=0) as file:
                file.seek((start - first) * self.width)
                while len(rest):  # the system may return less than was requested
                    number = file.readinto(rest)
                    if not number:
                        raise ValueError(
                            f"{file.name} was truncated while it was read; run the same command to resume."
                        )
                    rest = rest[number:]
