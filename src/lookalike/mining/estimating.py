"""Estimate what a run costs before it starts: cells, memory, disk, and time from rates that are measured here."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.table import Table

from lookalike.hashing import SignHasher
from lookalike.mining.cells import STAGES
from lookalike.mining.engines import Engine
from lookalike.mining.rescoring import list_scores
from lookalike.mining.rows import FileRows
from lookalike.search import hamming_topk, load_kernel, search_device
from lookalike.search.pages import default_rows
from lookalike.utils.machine import checked_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from lookalike.mining.cells import Cell, Grid
    from lookalike.mining.run import Run

TEXTS = 64  # to encode, of each side
ROWS = 8192  # to hash
PAIRS = 1 << 31  # to compare
QUERIES = 256  # to rescore
PATIENCE = 0.2  # seconds that each measurement should take at least
DISTANCE = 2  # bytes


@dataclass(frozen=True)
class StageEstimate:
    """The cost of one stage."""

    stage: str
    cells: int
    amount: int
    rate: float  # per second, in one process on this machine
    disk: int  # bytes that its cells leave

    @property
    def seconds(self) -> float:
        """Time in one process."""
        return self.amount / self.rate


@dataclass(frozen=True)
class Estimate:
    """The cost of a run."""

    stages: list[StageEstimate]
    memory: int
    """Bytes of one process besides Python, libraries and the model."""

    @property
    def seconds(self) -> float:
        """Time in one process."""
        return sum(each.seconds for each in self.stages)

    @property
    def disk(self) -> int:
        """Bytes on disk while it runs, besides the output."""
        return sum(each.disk for each in self.stages)

    def show(self, console: Console) -> None:
        """Print a table and a line."""
        table = Table("stage", "cells", "amount", "per second", "time", "disk")
        for column in table.columns[1:]:
            column.justify = "right"
        for each in self.stages:
            unit = "pairs" if each.stage == "search" else "rows"
            amounts = (f"{each.cells:,}", f"{each.amount:,} {unit}", f"{each.rate:,.0f}")
            table.add_row(each.stage, *amounts, spoken_time(each.seconds), spoken_size(each.disk))
        console.print(table)
        console.print(
            f"For one process: {spoken_time(self.seconds)}, {spoken_size(self.disk)} of disk while it runs, and "
            f"{spoken_size(self.memory)} of memory besides Python, libraries and the model. Nothing was mined.",
            highlight=False,
        )


@dataclass(frozen=True)
class DryRun(Engine):
    """Does no cell: it measures how long a few rows take, and estimates the rest."""

    def each(self, run: Run, cells: Sequence[Cell], advance: Callable[[float], None]) -> Iterator[Cell]:  # noqa: ARG002
        """Do no cell."""
        return iter(())

    def measured(self, run: Run, console: Console) -> Estimate:
        """Estimate the cost of a run, and print it."""
        grid, search = run.grid, run.pipeline.search
        k = min(run.pipeline.shortlist, grid.references)
        encoding = _encoding(run) if grid.encodes else None
        dim = encoding[1] if encoding else run.sides["reference"].floats.shape[1]  # type: ignore[union-attr]
        rows = grid.references + (0 if grid.itself else grid.queries)
        kept = (4 * dim if search.rescore else search.bits // 8) if grid.encodes else 0
        disk = {
            "encode": rows * kept,
            "hash": rows * search.bits // 8,
            "search": found_bytes(grid, k) + hint_bytes(grid, k),
            "finish": grid.queries * run.pipeline.selection.num_negatives * 12,
        }
        rates = {
            "encode": encoding[0] if encoding else math.inf,
            "hash": _hashing(dim, search.bits),
            "search": _searching(run, k),
            "finish": _rescoring(run, dim, k) if search.rescore else math.inf,
        }
        stages = []
        for stage in STAGES:
            cells = grid.cells(stage)
            if cells:
                amount = sum(cell.size for cell in cells)
                stages.append(StageEstimate(stage, len(cells), amount, rates[stage], disk[stage]))
        block = min(grid.block, grid.queries)
        page = default_rows(search.bits // 8, _device(run)) * search.bits // 8
        labels = 0 if run.labels is None else 8 * len(run.labels)
        answer = block * k * 12
        estimate = Estimate(stages, labels + block * search.bits // 8 + 2 * page + 3 * answer)
        estimate.show(console)
        return estimate


def found_bytes(grid: Grid, k: int) -> int:
    """Return the size of what all searches find; of a later column, a query keeps what is nearer than what it has."""
    columns = len(grid.searches(range(0)))
    neighbour = DISTANCE + (4 if grid.references < 1 << 31 else 8)
    return round(grid.queries * k * neighbour * (1 + math.log(columns)))


def hint_bytes(grid: Grid, k: int) -> int:
    """Return the size of the distances that bound the searches of further columns."""
    return grid.queries * k * DISTANCE if len(grid.searches(range(0))) > 1 else 0


def _encoding(run: Run) -> tuple[float, int]:
    """Return texts per second, and the length of an embedding."""
    seconds, texts, dim = 0.0, 0, 0
    for side in run.sides.values():
        source: Any = side
        number = min(TEXTS, len(source.texts))
        sample = source.texts.take(np.linspace(0, len(source.texts) - 1, number).astype(np.int64))
        source.encoder.encode(source.kind, sample[:1], source.prompt, lambda _: None)  # loads what is loaded lazily
        began = time.perf_counter()
        dim = source.encoder.encode(source.kind, sample, source.prompt, lambda _: None).shape[1]
        seconds += (time.perf_counter() - began) * len(source.texts) / number
        texts += len(source.texts)
    return texts / seconds, dim


def _hashing(dim: int, bits: int) -> float:
    hasher, x = SignHasher(dim, bits), torch.randn(ROWS, dim)
    return _rate(lambda: hasher.encode(x), ROWS)


def _searching(run: Run, k: int) -> float:
    grid, bits, device = run.grid, run.pipeline.search.bits, _device(run)
    load_kernel()
    references = min(grid.references, 1 << 18)
    queries = max(1, min(grid.queries, grid.block, PAIRS // references // (1 if device.type == "cuda" else 16)))
    generator = torch.Generator().manual_seed(0)
    query, reference = (
        torch.randint(0, 256, (n, bits // 8), dtype=torch.uint8, generator=generator).to(device)
        for n in (queries, references)
    )

    def search() -> None:
        hamming_topk(query, reference, min(k, references)).indices.cpu()

    return _rate(search, queries * references)


def _rescoring(run: Run, dim: int, k: int) -> float:
    """Return queries per second, whose candidates are read from a file, as most of the time goes there."""
    rng = np.random.default_rng(0)
    with ExitStack() as stack:
        if run.grid.encodes:
            file = stack.enter_context(NamedTemporaryFile(dir=run.folder))
            n = min(run.grid.references, QUERIES * k)
            rng.standard_normal((n, dim), np.float32).tofile(file.name)
            queries: Any = FileRows(file.name, (n, dim), np.float32)
            reference: Any = queries
        else:
            queries, reference = run.sides["query"].floats, run.sides["reference"].floats
        numbers = rng.integers(0, queries.shape[0], QUERIES)
        ids = rng.integers(0, reference.shape[0], (QUERIES, k))
        return _rate(lambda: list_scores(queries, reference, numbers, ids), QUERIES)


def _rate(do: Callable[[], Any], amount: int) -> float:
    """Return the amount per second, from the fastest of several times."""
    do()
    fastest, began = math.inf, time.perf_counter()
    while time.perf_counter() - began < PATIENCE or fastest == math.inf:
        start = time.perf_counter()
        do()
        fastest = min(fastest, time.perf_counter() - start)
    return amount / max(fastest, 1e-9)


def _device(run: Run) -> torch.device:
    bits, k = run.pipeline.search.bits, min(run.pipeline.shortlist, run.grid.references)
    return search_device(torch.device(checked_device(run.device)), bits, k)


def spoken_time(seconds: float) -> str:
    """Say a time in the unit that suits it.

    Examples:
        >>> spoken_time(0.2), spoken_time(50), spoken_time(1000), spoken_time(90_000)
        ('under 1 s', '50 s', '17 min', '25 h')
    """
    if seconds < 1:
        return "under 1 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.0f} h"


def spoken_size(size: float) -> str:
    """Say a number of bytes in the unit that suits it.

    Examples:
        >>> spoken_size(900), spoken_size(2.5e6), spoken_size(3e9)
        ('1 kB', '2 MB', '3.0 GB')
    """
    if size < 1e6:
        return f"{math.ceil(size / 1e3)} kB"
    return (
        f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB" if size < 1e12 else f"{size / 1e12:,.1f} TB"
    )
