"""Engines do the cells of a run: one after another in this process, by hand in several processes, or on Ray."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lookalike.mining import Selection
    from lookalike.mining.cells import Cell
    from lookalike.mining.fitting import Fitting
    from lookalike.mining.run import Run


class Engine(ABC):
    """Does cells of one stage, those it owns, in any order. Cells may be done twice: their files come out the same."""

    @abstractmethod
    def each(self, run: Run | Fitting, cells: Sequence[Cell], advance: Callable[[float], None]) -> Iterator[Cell]:
        """Do cells, and yield each when its file is there; `advance` by the size of each, in as many steps as known."""

    def owns(self, run: Run, cell: Cell) -> bool:  # noqa: ARG002
        """Return whether it is this engine that has to do a cell."""
        return True

    def connected(self) -> AbstractContextManager[None]:
        """Hold whatever the engine needs to do cells."""
        return nullcontext()


@dataclass(frozen=True)
class InProcess(Engine):
    """Does one cell after another in this process."""

    def each(self, run: Run | Fitting, cells: Sequence[Cell], advance: Callable[[float], None]) -> Iterator[Cell]:
        """Do cells, and yield each when its file is there."""
        for cell in cells:
            run.do(cell, advance)
            yield cell


@dataclass(frozen=True)
class Shard(Engine):
    """Does every n-th cell in this process; other processes, started by hand, do the others.

    Args:
        number: Which share, from 1 to `of`.
        of: Number of shares.

    Examples:
        >>> Shard.parse("3/16")
        Shard(number=3, of=16)
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise ValueError(f"a shard has a number from 1 to that of all shards, got {self.number} of {self.of}.")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read "3/16".

        Raises:
            ValueError: It is something else.
        """
        number, slash, of = text.partition("/")
        if slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of):
            return cls(int(number), int(of))
        raise ValueError(f"a shard is written as 3/16, the third of sixteen, got {text!r}.")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def each(self, run: Run | Fitting, cells: Sequence[Cell], advance: Callable[[float], None]) -> Iterator[Cell]:
        """Do cells, and yield each when its file is there."""
        yield from InProcess().each(run, cells, advance)

    def owns(self, run: Run, cell: Cell) -> bool:
        """Return whether a cell is in this shard's share.

        If there are enough query blocks, a shard searches all columns of its own, so that it can finish them.
        """
        by_rows = cell.stage in ("search", "finish") and len(run.grid.cells("finish")) >= self.of
        share = cell.rows.start // run.grid.block if by_rows else cell.place
        return share % self.of == self.number - 1


@dataclass(frozen=True)
class Merge(Engine):
    """Finishes the queries that shards have searched, as far as they have not; every other cell is theirs."""

    def each(self, run: Run | Fitting, cells: Sequence[Cell], advance: Callable[[float], None]) -> Iterator[Cell]:
        """Do cells, and yield each when its file is there."""
        return InProcess().each(run, cells, advance)

    def owns(self, run: Run, cell: Cell) -> bool:  # noqa: ARG002
        """Return whether a cell is of the last stage."""
        return cell.stage == "finish"


def checked_engine(engine: Engine | None, output: Path | None, selection: Selection, *, force: bool) -> Engine:
    """Return the engine, by default this process, unless it cannot do what is asked for.

    Raises:
        TypeError: It is no engine.
        ValueError: Processes could not share the work; says why.
    """
    if engine is None or isinstance(engine, InProcess):
        return InProcess()
    if not isinstance(engine, Engine):
        raise TypeError(f"engine must be InProcess(), Shard(3, 16), Merge() or OnRay(), got {engine!r}.")
    if output is None:
        raise ValueError("several processes share work through files beside the output; give an output.")
    if selection.sampling_strategy == "random" and selection.seed is None:
        raise ValueError("several processes can only draw random negatives from a seed; give one.")
    if force and isinstance(engine, Shard):
        raise ValueError("a shard cannot begin anew, because others may be at work; remove the output and its .cache.")
    return engine
