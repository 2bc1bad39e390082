"""A mining run: what every cell of the grid does, in whichever process it is done."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import torch

from lookalike.hashing import ScalarHasher, SignHasher
from lookalike.hashing.scheme import FARTHEST
from lookalike.mining.cell_contents import Near, content_of, part_of
from lookalike.mining.cells import Cell, Grid, Stage, checksum_of, is_whole, read_cell, write_cell
from lookalike.mining.codes_on_disk import CodeFiles
from lookalike.mining.pipeline import Part, joined_parts, sampler
from lookalike.mining.scoring import CodeScores, DecodedScores, FloatScores
from lookalike.negatives.positives import least_similar_positives
from lookalike.negatives.spaces import space_of
from lookalike.search import Neighbours, search_device
from lookalike.search.pages import Page
from lookalike.search.streaming import streamed_topk
from lookalike.utils.lists import Lists, joined_lists, row_numbers, take_lists
from lookalike.utils.machine import checked_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

    from lookalike.hashing import Scheme
    from lookalike.mining.pipeline import Pipeline
    from lookalike.mining.rows import Rows
    from lookalike.mining.scoring import Scorer
    from lookalike.negatives.spaces import Space

SAMPLE = 8192  # rows that the mean is computed from
KEY_BITS = 40  # of the id in a key
WRITTEN = "checksum of rows"


class Side(Protocol):
    """One side of a run: the queries, or the references."""

    @property
    def floats(self) -> Rows | None:
        """Its embeddings, once they are encoded; None if only codes are kept."""

    def encode(self, rows: range, advance: Callable[[float], None]) -> dict[str, Tensor]:
        """Encode a block of rows, and return what the cell should keep."""

    def holds(self, rows: range, *, read: bool = True) -> bool:
        """Return whether the embeddings of a block are all there and, if they are `read`, as they were encoded."""

    def blocks(self, rows: range) -> Iterator[tuple[slice, Tensor]]:
        """Yield embeddings, float32, or codes, uint8, of the rows, and which of them they are."""

    def name_row(self, row: int) -> str:
        """Say which row this is, in an error."""


class Answers(Protocol):
    """The positives of each query."""

    def read(self, first: int, last: int) -> Lists:
        """Return those of the queries from `first` to `last`."""


@dataclass(frozen=True)
class AnswersInMemory:
    """Positives of each query, as a CSR pair."""

    lists: Lists

    def read(self, first: int, last: int) -> Lists:
        """Return those of the queries from `first` to `last`."""
        return take_lists(self.lists, torch.arange(first, last))


class Writer(Protocol):
    """Writes the rows of a part, in a file of its own."""

    def write(self, part: Part, path: Path) -> int:
        """Write rows, and return their number."""


@dataclass(frozen=True)
class Run:
    """Everything that cells need. It can be pickled, so that any process can do any cell.

    Args:
        folder: Where cells leave their files.
        grid: The cells.
        dim: Length of the embeddings; None until texts are encoded.
        sides: "query" and "reference"; one object if the queries are searched in themselves.
        pipeline: From neighbours to negatives.
        positives: The positives of each query; None with labels, whose hardest positives are found in bits.
        labels: int64 [n], where the queries are searched in themselves: rows that share one are not candidates.
        exclude: Further references that are never negatives of a query.
        device: Where to search; by default on a GPU, where a process has one.
        writer: Writes the rows of each finished cell beside it.
        finished: Where finished cells leave their files, which depend on more settings.
        scalar: Makes and reads codes of several bits per dimension; None for signs.
    """

    folder: Path
    finished: Path
    grid: Grid
    sides: dict[str, Side]
    pipeline: Pipeline
    positives: Answers | None
    labels: Tensor | None
    exclude: Lists | None
    device: str | None
    writer: Writer | None = None
    scalar: ScalarHasher | None = None

    def path(self, cell: Cell) -> Path:
        """Return the file that a cell leaves."""
        return (self.finished if cell.stage == "finish" else self.folder) / cell.name

    def missing(self, stage: Stage) -> list[Cell]:
        """List the cells of a stage that are not done; files that are damaged are removed."""
        missing = []
        for cell in self.grid.cells(stage):
            path = self.path(cell)
            if not path.exists():
                missing.append(cell)
            elif not (is_whole(path) and self._embedded(cell) and self._written(cell)):
                path.unlink(missing_ok=True)
                missing.append(cell)
        return missing

    def _embedded(self, cell: Cell) -> bool:
        """Return whether the embeddings of an encoded block can still be read; hashing, to come, reads them anyway."""
        if cell.stage != "encode" or not self.pipeline.search.keeps_floats:
            return True
        hashed = Cell("hash", cell.side, cell.rows)
        return self.sides[cell.side].holds(cell.rows, read=not self.lacks(hashed))

    def _written(self, cell: Cell) -> bool:
        """Return whether the rows of a finished cell are there, as they were written beside it."""
        if cell.stage != "finish" or self.writer is None:
            return True
        found = read_cell(self.path(cell)) or {}
        return WRITTEN in found and checksum_of(self.rows_path(cell)) == int(found[WRITTEN])

    def lacks(self, cell: Cell) -> bool:
        """Return whether a cell is not done, without reading its file."""
        return not self.path(cell).exists()

    def do(self, cell: Cell, advance: Callable[[float], None] = lambda _: None) -> None:
        """Do a cell: leave its file, whatever was there before."""
        {"encode": self._encode, "hash": self._hash, "search": self._search, "finish": self._finish}[cell.stage](
            cell, advance
        )

    def parts(self) -> Iterator[Part]:
        """Yield what finished cells found, in order.

        Raises:
            RuntimeError: A cell's file disappeared or was damaged since.
        """
        for cell in self.finishes:
            found = read_cell(self.path(cell))
            if found is None:
                raise RuntimeError(f"{self.path(cell)} was removed or damaged; run the same command again to resume.")
            yield part_of(cell.rows.start, found)

    def _encode(self, cell: Cell, advance: Callable[[float], None]) -> None:
        write_cell(self.path(cell), self.sides[cell.side].encode(cell.rows, advance))

    def _hash(self, cell: Cell, advance: Callable[[float], None]) -> None:
        codes = torch.empty(len(cell.rows), self._bits // 8, dtype=torch.uint8)
        for rows, x in self.sides[cell.side].blocks(cell.rows):
            if x.dtype == torch.uint8:
                codes[rows] = x
            else:
                hashed, finite = self._hasher.encode_flagged(x)
                if not bool(finite.all()):
                    row = cell.rows[rows][int((~finite).nonzero()[0])]
                    raise ValueError(self.sides[cell.side].name_row(row))
                codes[rows] = hashed
            advance(len(x))
        self._codes(cell.side).write(cell.rows, codes)

    def _search(self, cell: Cell, advance: Callable[[float], None]) -> None:
        """Find the nearest references of a query block among those of a column.

        Distances that were found in other columns bound the search. They are kept in a file that is only a hint: it
        makes the answer of a cell shorter, never another one once all columns are merged. It knows which columns it
        holds, because a cell that is done twice must not count twice.
        """
        k, bits = min(self.pipeline.shortlist, self.grid.references), self._bits
        near = Near.read(self._near(cell.rows), len(cell.rows), k)
        reference = self._codes("reference")

        device = search_device(torch.device(checked_device(self.device)), bits, k, self._scheme)

        def pages() -> Iterator[Page]:
            for first, codes in reference.pages(cell.columns, device):
                yield Page(first, codes, self._labels(range(first, first + len(codes))))
                advance(len(codes) * len(cell.rows))

        found = streamed_topk(
            self._codes("query").read(cell.rows),
            pages(),
            k,
            query_labels=self._labels(cell.rows),
            exclude=self._left_out(cell.rows),
            device=device,
            limits=None if near is None else near.distances[:, -1],
            scheme=self._scheme,
        )
        distances, indices = found.distances.cpu(), found.indices.cpu()
        there, farthest = indices >= 0, bits if self._scheme is None else FARTHEST
        ids = indices[there]
        write_cell(
            self.path(cell),
            {
                "counts": there.sum(1, dtype=torch.int32),
                "distances": distances[there].to(torch.int16 if farthest < 1 << 15 else torch.int32),
                "indices": ids.to(torch.int32) if self.grid.references < 1 << 31 else ids,
            },
        )
        if len(cell.columns) < self.grid.references:
            more = Near(distances.masked_fill(~there, farthest), frozenset([cell.columns.start]))
            (more if near is None else near.joined(more)).write(self._near(cell.rows))

    def _finish(self, cell: Cell, advance: Callable[[float], None]) -> None:
        rows, pipeline = cell.rows, self.pipeline
        found = self._found(rows)
        positives = self._hardest(rows) if self.positives is None else self.positives.read(rows.start, rows.stop)
        block = rows.start // self.grid.block
        draws = sampler(pipeline.selection.seed, block)
        parts = []
        for part in pipeline.parts(rows.start, found, positives, self._scorer(rows), draws):
            parts.append(part)
            advance(len(part.indices))
        part = joined_parts(parts)
        self.finished.mkdir(parents=True, exist_ok=True)
        content = content_of(part)
        if self.writer is not None:
            content["rows"] = torch.tensor([self.writer.write(part, self.rows_path(cell))])
            content[WRITTEN] = torch.tensor([checksum_of(self.rows_path(cell)) or 0])
        write_cell(self.path(cell), content)

    def _scorer(self, rows: range) -> Scorer:
        """Return what scores references for a block of queries."""
        pipeline, reference = self.pipeline, self._codes("reference")
        queries, floats = (cast("Rows", self.sides[side].floats) for side in ("query", "reference"))
        if pipeline.search.keeps_floats:
            return FloatScores(rows.start, queries, floats, pipeline.similarity)
        if pipeline.decodes and self.scalar is not None:
            return DecodedScores(rows.start, queries, reference, self.scalar)
        return CodeScores(self._space, self._codes("query").read(rows), reference)

    @property
    def finishes(self) -> list[Cell]:
        """The cells of queries that are finished, in order."""
        return self.grid.cells("finish")

    def rows_path(self, cell: Cell) -> Path:
        """Return the file of the rows of a finished cell."""
        return self.finished / f"{cell.name}.parquet"

    def _found(self, rows: range) -> Neighbours:
        """Merge what all columns found: keys (distance, id) have no ties, so the order of columns does not matter."""
        k = min(self.pipeline.shortlist, self.grid.references)
        keys = None
        for cell in self.grid.searches(rows):
            found = read_cell(self.path(cell))
            if found is None:
                self._search(cell, lambda _: None)
                found = read_cell(self.path(cell))
                if found is None:
                    raise RuntimeError(f"{self.path(cell)} cannot be read back; check the disk.")
            more = torch.full((len(rows), k), _NO_KEY)
            more[torch.arange(k) < found["counts"][:, None]] = (found["distances"].long() << KEY_BITS) | found[
                "indices"
            ]
            keys = more if keys is None else torch.cat([keys, more], dim=1).sort(dim=1).values[:, :k]
        if keys is None:
            keys = torch.full((len(rows), k), _NO_KEY)
        there = keys != _NO_KEY
        distances = (keys >> KEY_BITS).masked_fill(~there, -1).int()
        return Neighbours(distances, (keys & ((1 << KEY_BITS) - 1)).masked_fill(~there, -1))

    def _hardest(self, rows: range) -> Lists:
        """Find the positive of each row that is farthest in bits, as a list of at most one."""
        none = torch.zeros(len(rows) + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
        if self.labels is None:
            return none
        ids = torch.isin(self.labels, torch.unique(self.labels[rows.start : rows.stop])).nonzero().flatten()
        codes, labels = self._codes("reference").take(ids), self.labels[ids]
        these = torch.searchsorted(ids, torch.arange(rows.start, rows.stop))  # and not all that share their labels
        hardest = least_similar_positives(self._space, codes[these], labels[these], codes, labels, these)
        there = hardest >= 0
        return torch.cat([none[0][:1], there.cumsum(0)]), ids[hardest[there]]

    def _labels(self, rows: range) -> Tensor | None:
        """Return the labels of rows that are searched in themselves; without labels, every row is its own class."""
        if self.labels is not None:
            return self.labels[rows.start : rows.stop]
        return torch.arange(rows.start, rows.stop) if self.grid.itself else None

    def _left_out(self, rows: range) -> Lists | None:
        """Return what is never a negative of some queries: positives, and excluded references; ascending."""
        lists = [] if self.positives is None else [self.positives.read(rows.start, rows.stop)]
        if self.exclude is not None:
            lists.append(take_lists(self.exclude, torch.arange(rows.start, rows.stop)))
        if not lists:
            return None
        offsets, ids = lists[0] if len(lists) == 1 else joined_lists(*lists)
        owners = row_numbers((offsets, ids))
        order = np.lexsort((ids.numpy(), owners.numpy()))
        return offsets, ids[torch.from_numpy(order)]

    def _near(self, rows: range) -> Path:
        return self.folder / f"near-{rows.start:012}"

    def _codes(self, side: str) -> CodeFiles:
        side = "reference" if self.grid.itself else side
        n = self.grid.references if side == "reference" else self.grid.queries
        return CodeFiles(self.folder, side, n, self._bits // 8, self.grid.block)

    @property
    def _bits(self) -> int:
        return self.pipeline.search.length

    @property
    def _scheme(self) -> Scheme | None:
        return None if self.scalar is None else self.scalar.scheme

    @property
    def _space(self) -> Space:
        return space_of(self._scheme)

    @cached_property
    def _hasher(self) -> ScalarHasher | SignHasher:
        """Center both sides by a part of the mean of the references: codes are comparable only from one origin."""
        if self.scalar is not None:
            return self.scalar
        floats = self.sides["reference"].floats
        if floats is None:
            raise RuntimeError("codes are hashed where they are encoded, if no floats are kept")
        n, dim = floats.shape
        sample = floats.read(np.linspace(0, n - 1, min(SAMPLE, n)).astype(np.int64))
        hasher = SignHasher(dim, self._bits, center=self.pipeline.search.center)
        # A row that is not finite is found, and named, when it is hashed.
        hasher.set_mean(torch.nan_to_num(sample.mean(0, dtype=torch.float64)), len(sample))
        return hasher


_NO_KEY = torch.iinfo(torch.int64).max
