"""One pool of processes for all cells: the longest begin first, and a process prefers data that it has loaded."""

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path
from typing import NamedTuple

from benchmarks.quality.cells import Cell
from benchmarks.quality.worker import Outcome, work
from lookalike.training.interruptions import Request, stop_requests

CONTEXT = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
BETWEEN_LOOKS = 0.5  # seconds, at signals and the deadline
GRACE = 25  # seconds between asking a process to save and killing it
LOADED_FIRST = 0.5  # of the longest cell's time: shorter ones wait, even if their data are loaded


class Pool(NamedTuple):
    """Where and how to train cells."""

    inputs: Path
    """The folder of inputs."""
    runs: Path
    """The folder of the runs."""
    jobs: int
    """Processes."""
    limit: float | None = None
    """Seconds after which running cells are saved and stopped; Ctrl-C and SIGTERM do the same."""


def trained(cells: list[Cell], pool: Pool, began: float) -> Iterator[tuple[Cell, Outcome]]:
    """Yield cells with their outcomes, as they end; `began` is the time on the monotonic clock to count from."""
    deadline = float("inf") if pool.limit is None else began + pool.limit
    waiting = sorted(cells, key=lambda cell: (cell.turn, -cell.seconds))
    logs = pool.runs / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    workers = [_Worker(pool, logs / f"{i}.log") for i in range(min(pool.jobs, len(cells)))]
    try:
        with stop_requests() as request:
            while True:
                if _is_over(request, deadline):
                    waiting.clear()
                for worker in workers:
                    if worker.cell is None and waiting:
                        worker.begin(take_next(waiting, worker.loaded))
                busy = {worker.connection: worker for worker in workers if worker.cell is not None}
                if not busy:
                    break
                for ended in connection.wait(list(busy), BETWEEN_LOOKS):
                    yield busy[ended].end()  # type: ignore[index]  # wait returns what it was given
                if _is_over(request, deadline):
                    for worker in workers:
                        worker.stop()
    finally:
        for worker in workers:
            worker.dismiss()
        for worker in workers:
            worker.close()


def _is_over(request: Request, deadline: float) -> bool:
    return request.number is not None or time.monotonic() > deadline


def take_next(waiting: list[Cell], loaded: set[str]) -> Cell:
    """Take the first cell, or one of its turn that is not much shorter and whose data a process has loaded.

    Args:
        waiting: Cells, turn after turn, the longest first; the one that is returned is removed.
        loaded: The sources that were loaded.
    """
    first = waiting[0]
    long_enough = (each for each in waiting if each.turn == first.turn and each.seconds >= LOADED_FIRST * first.seconds)
    chosen = next((cell for cell in long_enough if str(cell.source) in loaded), first)
    waiting.remove(chosen)
    return chosen


class _Worker:
    """A process with the cell that it trains."""

    def __init__(self, pool: Pool, log: Path) -> None:
        self._arguments = pool.inputs, pool.runs, log, pool.jobs > 1
        self.cell: Cell | None = None
        self._start()

    def _start(self) -> None:
        self.connection, theirs = CONTEXT.Pipe()
        self.loaded: set[str] = set()
        self._kill_at = float("inf")
        self._process = CONTEXT.Process(target=work, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()  # so that the connection ends with the process

    def begin(self, cell: Cell) -> None:
        """Train a cell."""
        if not self._process.is_alive():
            self._start()
        self.cell = cell
        self.loaded.add(str(cell.source))
        self.connection.send(cell)

    def end(self) -> tuple[Cell, Outcome]:
        """Return the cell and its outcome; a process that died is replaced by the next `begin`."""
        cell, self.cell = self.cell, None
        assert cell is not None
        try:
            outcome: Outcome = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            stopped = self._kill_at < float("inf")
            return cell, Outcome(error=None if stopped else f"the process ended with {self._process.exitcode}.")
        return cell, outcome

    def stop(self) -> None:
        """Ask the process to save and stop; kill it if it does not."""
        if self.cell is None:
            return
        if self._kill_at == float("inf"):
            self._kill_at = time.monotonic() + GRACE
            self._process.terminate()
        elif time.monotonic() > self._kill_at:
            self._process.kill()

    def dismiss(self) -> None:
        """Let the process end if it is idle, and stop it otherwise."""
        if not self._process.is_alive():
            return
        if self.cell is None:
            self.connection.send(None)
        else:
            self._process.terminate()

    def close(self) -> None:
        """Wait for the process to end."""
        self._process.join(GRACE)
        if self._process.is_alive():
            self._process.kill()
        self.connection.close()
