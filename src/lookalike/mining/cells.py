"""Cells: the units of work of a mining run. Each leaves one file: whole, with a checksum, or not there at all."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Literal

import safetensors.torch
from safetensors import SafetensorError

from lookalike.utils.files import replacing, room_for, writable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

Stage = Literal["encode", "hash", "search", "finish"]
STAGES: tuple[Stage, ...] = ("encode", "hash", "search", "finish")  # each needs all cells of the one before
BLOCK = 1 << 17
FEWEST = 1 << 10  # rows of a block
POSITIVES = 1 << 23  # of the queries of a block, if each had as many as the one with the most
CHECKSUM = 4  # bytes at the end of a file
READ = 1 << 20  # bytes at a time
RESUME = "what is complete is kept; make room and run it again to resume"  # after the disk was full


@dataclass(frozen=True)
class Cell:
    """One unit of work: rows of a side to encode or hash, queries and references to compare, or queries to finish."""

    stage: Stage
    side: str  # "query" or "reference"; of a search or a finish, "query"
    rows: range
    columns: range = range(0)  # references to search in
    place: int = 0  # among the cells of its stage, which engines share out by it

    @property
    def name(self) -> str:
        """A name that no other cell has."""
        columns = f"-{self.columns.start:012}" if self.stage == "search" else ""
        return f"{self.stage}-{self.side}-{self.rows.start:012}{columns}"

    @property
    def size(self) -> int:
        """How much work it is: rows, or pairs of a query and a reference."""
        return len(self.rows) * (len(self.columns) if self.stage == "search" else 1)


@dataclass(frozen=True)
class Grid:
    """How the rows of both sides are divided into cells; a matter of their numbers alone, never of the machine.

    Args:
        queries: Number of queries.
        references: Number of references.
        itself: Whether the queries are the references.
        encodes: Whether rows have to be encoded before they can be hashed.
        block: Rows that are encoded, hashed and finished together.
        column: Blocks of references that a query block is compared with in one cell.

    Examples:
        >>> grid = Grid(queries=5, references=9, itself=False, encodes=False, block=4)
        >>> [(cell.rows, cell.columns) for cell in grid.cells("search")]
        [(range(0, 4), range(0, 9)), (range(4, 5), range(0, 9))]
    """

    queries: int
    references: int
    itself: bool
    encodes: bool
    block: int
    column: int = field(default_factory=lambda: Grid.COLUMN)

    COLUMN: ClassVar = 64

    def cells(self, stage: Stage) -> list[Cell]:
        """List the cells of a stage in the order in which one process does them."""
        if stage == "encode" and not self.encodes:
            return []
        if stage in ("encode", "hash"):
            sides = [("reference", self.references)] + [("query", self.queries)] * (not self.itself)
            found = [Cell(stage, side, rows) for side, n in sides for rows in ranges(n, self.block)]
        elif stage == "search":  # column by column: what a query found in one bounds the search of the next
            found = [
                Cell(stage, "query", rows, columns)
                for columns in ranges(self.references, self.column * self.block)
                for rows in ranges(self.queries, self.block)
            ]
        else:
            found = [Cell(stage, "query", rows) for rows in ranges(self.queries, self.block)]
        return [Cell(c.stage, c.side, c.rows, c.columns, place) for place, c in enumerate(found)]

    def searches(self, rows: range) -> list[Cell]:
        """List the searches of the queries of a finish."""
        return [Cell("search", "query", rows, columns) for columns in ranges(self.references, self.column * self.block)]


def default_block(queries: int, most_positives: int = 1) -> int:
    """Return the rows of a block: more where there are so many queries that blocks would be too many files.

    Fewer where some query has hundreds of positives, to make up for which every query gets that many more candidates.
    """
    block = BLOCK if queries < 1 << 24 else 4 * BLOCK
    while block > FEWEST and block * most_positives > POSITIVES:
        block //= 2
    return block


def ranges(n: int, step: int) -> Iterator[range]:
    """Divide range(n)."""
    return (range(start, min(start + step, n)) for start in range(0, n, step))


def write_cell(path: Path, content: dict[str, Tensor] | bytes | memoryview) -> None:
    """Write what a cell computed: tensors by name, or bytes; whole or not at all.

    Raises:
        DiskFullError: There is no room; other cells stay.
        UnwritableError: The folder cannot be written to.
    """
    data = safetensors.torch.save(content) if isinstance(content, dict) else content
    with writable(path.parent), room_for(path.name, RESUME):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.write(data)
            file.write(zlib.crc32(data).to_bytes(CHECKSUM, "little"))


def read_cell(path: Path) -> dict[str, Tensor] | None:
    """Read the tensors that a cell left; None if the file is missing or damaged."""
    try:
        data = memoryview(path.read_bytes())
        content, checksum = data[:-CHECKSUM], data[-CHECKSUM:]
        if zlib.crc32(content).to_bytes(CHECKSUM, "little") != checksum:
            return None
        return safetensors.torch.load(bytes(content))
    except (OSError, SafetensorError, ValueError):
        return None


def is_whole(path: Path) -> bool:
    """Return whether a cell left its file and the file has its checksum."""
    try:
        size = path.stat().st_size - CHECKSUM
        with path.open("rb") as file:
            checksum = _checksum(file, size)
            return size >= 0 and file.read(CHECKSUM) == checksum.to_bytes(CHECKSUM, "little")
    except OSError:
        return False


def checksum_of(path: Path) -> int | None:
    """Return the checksum of a file that a cell left beside its own; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return _checksum(file, path.stat().st_size)
    except OSError:
        return None


def _checksum(file: BinaryIO, size: int) -> int:
    checksum = 0
    for start in range(0, size, READ):
        checksum = zlib.crc32(file.read(min(READ, size - start)), checksum)
    return checksum
