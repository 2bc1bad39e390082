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

from lookalike.hashing import ScalarHasher, SignHasher
from lookalike.mining import SAMPLED_TEXTS
from lookalike.mining.cells import STAGES
from lookalike.mining.engines import Engine
from lookalike.mining.rescoring import list_scores
from lookalike.mining.rows import FileRows
from lookalike.negatives.spaces import space_of
from lookalike.search import load_kernel, search_device
from lookalike.search.pages import default_rows
from lookalike.utils.machine import checked_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from lookalike.hashing import Scheme
    from lookalike.mining import Search
    from lookalike.mining.cells import Cell, Grid
    from lookalike.mining.fitting import Fitting
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

    def each(
        self,
        run: Run | Fitting,  # noqa: ARG002
        cells: Sequence[Cell],  # noqa: ARG002
        advance: Callable[[float], None],  # noqa: ARG002
    ) -> Iterator[Cell]:
        """Do no cell."""
        return iter(())

    def measured(self, run: Run, console: Console) -> Estimate:
        """Estimate the cost of a run, and print it."""
        grid, search = run.grid, run.pipeline.search
        k = min(run.pipeline.shortlist, grid.references)
        encoding = _encoding(run) if grid.encodes else None
        dim = encoding[1] if encoding else run.sides["reference"].floats.shape[1]  # type: ignore[union-attr]
        rows = grid.references + (0 if grid.itself else grid.queries)
        hasher, width = _hasher(dim, search), search.length // 8
        kept = (4 * dim if search.keeps_floats else width) if grid.encodes else 0
        disk = {
            "encode": rows * kept,
            "hash": rows * width,
            "search": found_bytes(grid, k) + hint_bytes(grid, k),
            "finish": grid.queries * run.pipeline.selection.num_negatives * 12,
        }
        rates = {
            "encode": encoding[0] if encoding else math.inf,
            "hash": _hashing(hasher),
            "search": _searching(run, hasher, k),
            "finish": _scoring(run, hasher, k),
        }
        stages = []
        if search.is_scalar and encoding:
            stages.append(StageEstimate("fit", 1, min(SAMPLED_TEXTS, grid.references), encoding[0], 8 * dim * dim))
        for stage in STAGES:
            cells = grid.cells(stage)
            if cells:
                amount = sum(cell.size for cell in cells)
                stages.append(StageEstimate(stage, len(cells), amount, rates[stage], disk[stage]))
        block = min(grid.block, grid.queries)
        page = default_rows(width, _device(run, hasher)) * width
        labels = 0 if run.labels is None else 8 * len(run.labels)
        answer = block * k * 12
        unpacked = hasher.scheme.dims * (page // width) if isinstance(hasher, ScalarHasher) else 0
        estimate = Estimate(stages, labels + block * width + 2 * page + unpacked + 3 * answer)
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


def _hasher(dim: int, search: Search) -> SignHasher | ScalarHasher:
    """Return a hasher of random embeddings: encoding, comparing and decoding take as long for others."""
    if not search.is_scalar:
        return SignHasher(dim, search.length)
    hasher = ScalarHasher(dim, search.length)
    hasher.update(torch.randn(ROWS, dim, generator=torch.Generator().manual_seed(0)))
    return hasher


def _hashing(hasher: SignHasher | ScalarHasher) -> float:
    x = torch.randn(ROWS, hasher.dim)
    return _rate(lambda: hasher.encode(x), ROWS)


def _searching(run: Run, hasher: SignHasher | ScalarHasher, k: int) -> float:
    grid, device = run.grid, _device(run, hasher)
    load_kernel()
    references = min(grid.references, 1 << 18)
    queries = max(1, min(grid.queries, grid.block, PAIRS // references // (1 if device.type == "cuda" else 16)))
    generator = torch.Generator().manual_seed(0)
    query, reference = (
        torch.randint(0, 256, (n, hasher.bits // 8), dtype=torch.uint8, generator=generator).to(device)
        for n in (queries, references)
    )
    topk = space_of(_scheme(hasher)).topk

    def search() -> None:
        topk(query, reference, min(k, references))[1].cpu()

    return _rate(search, queries * references)


def _scoring(run: Run, hasher: SignHasher | ScalarHasher, k: int) -> float:
    """Return queries per second: whose candidates are read from a file, as most of the time goes there, or decoded."""
    if run.pipeline.search.keeps_floats:
        return _rescoring(run, hasher.dim, k)
    if not run.pipeline.decodes or not isinstance(hasher, ScalarHasher):
        return math.inf
    codes = hasher.encode(torch.randn(QUERIES * k, hasher.dim))
    return _rate(lambda: hasher.decode(codes), QUERIES)


def _rescoring(run: Run, dim: int, k: int) -> float:
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


def _scheme(hasher: SignHasher | ScalarHasher) -> Scheme | None:
    return hasher.scheme if isinstance(hasher, ScalarHasher) else None


def _device(run: Run, hasher: SignHasher | ScalarHasher) -> torch.device:
    k = min(run.pipeline.shortlist, run.grid.references)
    return search_device(torch.device(checked_device(run.device)), hasher.bits, k, _scheme(hasher))


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
