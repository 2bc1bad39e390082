"""Cells on Ray: actors with a model each encode, tasks do everything else; what is lost with a worker is done again."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lookalike.mining.engines import Engine
from lookalike.utils.imports import optional_import
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lookalike.mining.cells import Cell
    from lookalike.mining.run import Run

RETRIES = 10  # of a cell whose worker is lost; a cell that fails by itself is not repeated
AHEAD = 2  # cells per worker that are submitted before one ends
PATIENCE = 120.0  # seconds that a node may take to say whether it sees the folder


@dataclass(frozen=True)
class OnRay(Engine):
    """Does cells on a Ray cluster.

    Args:
        address: Of the cluster; "auto" finds the one that runs here, or starts one on this machine.
        cpus: Processors that each cell may use.
    """

    address: str = "auto"
    cpus: int = 1

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect to the cluster for as long as the context lasts, unless this process is connected already.

        Raises:
            ImportError: Ray is not installed.
            ValueError: There is no such cluster.
        """
        ray = _ray()
        if ray.is_initialized():
            yield
            return
        try:
            where = None if self.address == "auto" else self.address
            ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"there is no Ray cluster at {self.address!r} ({first_line(error)}); start one with ray start --head, "
                "or give auto to use this machine alone."
            ) from error
        try:
            yield
        finally:
            ray.shutdown()

    def each(self, run: Run, cells: Sequence[Cell], advance: Callable[[float], None]) -> Iterator[Cell]:
        """Do cells on the cluster, and yield each when its file is there.

        Raises:
            RuntimeError: A cell lost its worker too often.
            ValueError: A node does not see the run's folder.
        """
        if not cells:
            return
        ray = _ray()
        _check_nodes(run)
        kept = [ray.put(run)]  # in a list, so that each worker fetches it once and not with every cell
        key = f"{run.folder} {run.finished} {kept[0].hex()}"
        gpus = ray.cluster_resources().get("GPU", 0)
        needs: dict[str, Any] = {"num_cpus": self.cpus}
        if gpus and cells[0].stage in ("encode", "search"):
            needs["num_gpus"] = 1
        total = ray.cluster_resources().get("CPU", 1)
        workers = max(1, int(gpus) if "num_gpus" in needs else int(total // self.cpus))
        if self.cpus > total:
            raise ValueError(f"each cell asks for {self.cpus} processors, but the cluster has {int(total)} in all.")
        if cells[0].stage == "encode":
            submit = _actors(min(workers, len(cells)), needs, key, kept, self.cpus)
        else:
            task = ray.remote(_do).options(max_retries=RETRIES, **needs)

            def submit(cell: Cell) -> Any:
                return task.remote(key, kept, cell, self.cpus)

        yield from _collected(submit, cells, AHEAD * workers, advance)


def _collected(
    submit: Callable[[Cell], Any], cells: Sequence[Cell], ahead: int, advance: Callable[[float], None]
) -> Iterator[Cell]:
    """Submit cells, some ahead of those that are done, and yield what is done."""
    ray = _ray()
    waiting = list(reversed(cells))
    running: dict[Any, Cell] = {}
    try:
        while waiting or running:
            while waiting and len(running) < ahead:
                cell = waiting.pop()
                running[submit(cell)] = cell
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                cell = running.pop(reference)
                try:
                    ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise (error.cause if isinstance(error.cause, Exception) else error) from None
                except ray.exceptions.RayError as error:
                    raise RuntimeError(
                        f"the cell {cell.name} lost its worker {RETRIES + 1} times ({first_line(error)}); a worker may "
                        "need more memory: give smaller blocks, or more processors to each cell."
                    ) from error
                advance(cell.size)
                yield cell
    finally:
        for reference in running:
            ray.cancel(reference, force=False)


def _actors(number: int, needs: dict[str, Any], key: str, kept: list[Any], cpus: int) -> Callable[[Cell], Any]:
    """Start actors, which keep their model from cell to cell, and return what hands them cells in turn."""
    ray = _ray()
    made = ray.remote(_Encoding).options(max_restarts=RETRIES, max_task_retries=RETRIES, **needs)
    actors = [made.remote(key, kept, cpus) for _ in range(number)]
    turn = 0

    def submit(cell: Cell) -> Any:
        nonlocal turn
        turn += 1
        return actors[turn % number].do.remote(cell)

    return submit


class _Encoding:
    """An actor: a process that holds a run and, once it encodes, the model."""

    def __init__(self, key: str, kept: list[Any], cpus: int) -> None:
        self._arguments = key, kept, cpus

    def do(self, cell: Cell) -> None:
        """Do a cell."""
        key, kept, cpus = self._arguments
        _do(key, kept, cell, cpus)


_held: dict[str, Any] = {}  # the run that this worker last did a cell of


def _do(key: str, kept: list[Any], cell: Cell, cpus: int) -> None:
    torch.set_num_threads(cpus)
    if key not in _held:
        _held.clear()
        _held[key] = _ray().get(kept[0])
    if not _held[key].lacks(cell):  # done by a worker that was lost after it
        return
    _held[key].do(cell)


def _check_nodes(run: Run) -> None:
    """Check that every node sees the folder of the run.

    Raises:
        ValueError: One does not.
    """
    ray = _ray()
    strategies = optional_import("ray.util.scheduling_strategies", "mining on Ray")
    token = run.folder / "seen-by-all"
    token.write_text("")
    task = ray.remote(_sees)
    asked = {}
    for node in ray.nodes():
        if node["Alive"]:
            affinity = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            there = task.options(num_cpus=0, max_retries=0, scheduling_strategy=affinity)
            asked[there.remote(str(token))] = node["NodeManagerAddress"]
    done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE)
    try:
        for reference in done:
            try:
                sees = ray.get(reference)
            except ray.exceptions.RayError:  # it is gone, and others do its work
                continue
            if not sees:
                raise ValueError(
                    f"the Ray node at {asked[reference]} does not see {run.folder}: put the output, and files of "
                    "embeddings, on a file system that all nodes share."
                )
    finally:
        token.unlink(missing_ok=True)


def _sees(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - a function that a worker gets by value


def _ray() -> Any:
    """Import Ray, which reports its use to its makers unless told not to: here only if the user has turned that on."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return optional_import("ray", "mining on Ray", "'lookalike[ray]'")
