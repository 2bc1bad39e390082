"""Cells on Ray: actors with a model each encode, tasks do everything else; what is lost with a worker is done again."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lookalike.mining.engines import Engine
from lookalike.utils.imports import optional_import
from lookalike.utils.locks import FolderInUseError
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lookalike.mining.cells import Cell
    from lookalike.mining.fitting import Fitting
    from lookalike.mining.run import Run

RETRIES = 10  # of a cell whose worker is lost; a cell that fails by itself is not repeated
AHEAD = 2  # cells per worker that are submitted before one ends
PATIENCE = 120.0  # seconds that a node may take to say whether it sees the folder, or to end what nobody waits for
CONNECTING = 10.0  # seconds that a cluster may take to accept a connection
TRIES = "4"  # to reach a cluster that Ray remembers, 40 seconds each; Ray itself tries 20 times, in silence


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
        address = os.environ.get("RAY_ADDRESS", "auto") if self.address == "auto" else self.address
        try:
            _check_listening(address)
            where = None if self.address == "auto" else self.address
            ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except (OSError, ValueError, RuntimeError) as error:
            if address == "auto":
                raise ValueError(
                    f"no Ray cluster could be found or started here ({first_line(error)}); if one was started here "
                    "and is gone, ray stop makes Ray forget it."
                ) from error
            raise ValueError(
                f"there is no Ray cluster at {address!r} ({first_line(error)}); start one with ray start --head, "
                "set RAY_AUTH_MODE=token if it asks for a token, or give auto to use this machine alone."
            ) from error
        try:
            yield
        finally:
            ray.shutdown()

    def each(self, run: Run | Fitting, cells: Sequence[Cell], advance: Callable[[float], None]) -> Iterator[Cell]:
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
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = sum(node.get("GPU", 0) for node in nodes)
        needs: dict[str, Any] = {"num_cpus": self.cpus}
        if gpus and cells[0].stage in ("encode", "search"):
            needs["num_gpus"] = 1
        most = max(node.get("CPU", 0) for node in nodes)
        if self.cpus > most:
            raise ValueError(f"each cell asks for {self.cpus} processors, but no Ray node has more than {int(most)}.")
        workers = max(1, int(gpus if "num_gpus" in needs else sum(node.get("CPU", 0) // self.cpus for node in nodes)))
        arguments = key, kept, self.cpus, str(Path.cwd())
        if cells[0].stage == "encode":
            pool: _Tasks | _Actors = _Actors(min(workers, len(cells)), needs, arguments)
        else:
            pool = _Tasks(workers, needs, arguments)
        yield from _collected(pool, cells, advance)


def _collected(pool: _Tasks | _Actors, cells: Sequence[Cell], advance: Callable[[float], None]) -> Iterator[Cell]:
    """Hand cells to a pool, some ahead of those that are done, and yield what is done."""
    ray = _ray()
    waiting, lost = deque(cells), Counter[str]()
    running: dict[Any, Cell] = {}
    try:
        while waiting or running:
            while waiting and pool.has_room():
                cell = waiting.popleft()
                running[pool.submit(cell)] = cell
            done, _ = ray.wait([*running, *pool.starting], num_returns=1)
            for reference in done:
                found = running.pop(reference, None)
                try:
                    ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    if not isinstance(error.cause, Exception):
                        raise
                    raise error.cause from error  # which quotes the traceback of the worker
                except ray.exceptions.RayError as error:
                    name = "start" if found is None else found.name
                    lost[name] += 1
                    if not pool.replaces(reference) or lost[name] > RETRIES:
                        what = "a worker could not be started:" if found is None else f"the cell {name} lost its worker"
                        raise RuntimeError(
                            f"{what} {RETRIES + 1} times ({first_line(error)}); a worker may need more memory: give "
                            "smaller blocks, or more processors to each cell."
                        ) from error
                    waiting.extendleft([] if found is None else [found])
                    continue
                pool.release(reference)
                if found is not None:
                    advance(found.size)
                    yield found
    finally:
        for reference in running:
            ray.cancel(reference, force=False)


class _Tasks:
    """Tasks, which Ray repeats by itself where their worker is lost."""

    starting: tuple[Any, ...] = ()

    def __init__(self, workers: int, needs: dict[str, Any], arguments: tuple[Any, ...]) -> None:
        self._task = _ray().remote(_do).options(max_retries=RETRIES, **needs)
        self._arguments, self._free = arguments, AHEAD * workers

    def has_room(self) -> bool:
        return self._free > 0

    def submit(self, cell: Cell) -> Any:
        self._free -= 1
        return self._task.remote(cell, *self._arguments)

    def release(self, reference: Any) -> None:  # noqa: ARG002
        self._free += 1

    def replaces(self, reference: Any) -> bool:  # noqa: ARG002
        return False


class _Actors:
    """Actors, which keep their model from cell to cell.

    Only those that have started are given cells: one whose node is lost may find no other that has room for it, and
    its cells go to those that are left.
    """

    def __init__(self, number: int, needs: dict[str, Any], arguments: tuple[Any, ...]) -> None:
        self._made = _ray().remote(_Encoding).options(max_restarts=0, max_task_retries=0, **needs)
        self._arguments = arguments
        self.starting: dict[Any, Any] = {}
        self._room: dict[Any, int] = {}  # cells that each may still be given
        self._given: dict[Any, Any] = {}  # who does what was submitted
        for _ in range(number):
            self._start()

    def has_room(self) -> bool:
        return any(self._room.values())

    def submit(self, cell: Cell) -> Any:
        actor = max(self._room, key=lambda each: self._room[each])
        self._room[actor] -= 1
        reference = actor.do.remote(cell)
        self._given[reference] = actor
        return reference

    def release(self, reference: Any) -> None:
        """Take note that an actor has started, or has done a cell."""
        if reference in self.starting:
            self._room[self.starting.pop(reference)] = AHEAD
        elif (actor := self._given.pop(reference)) in self._room:
            self._room[actor] += 1

    def replaces(self, reference: Any) -> bool:
        """Start another actor in place of one that is lost; what it was given fails, and comes back, cell by cell."""
        if (actor := self.starting.pop(reference, None)) is None:
            actor = self._given.pop(reference)
            if self._room.pop(actor, None) is None:  # by the first that failed
                return True
        self._start()
        return True

    def _start(self) -> None:
        actor = self._made.remote(*self._arguments)
        self.starting[actor.starts.remote()] = actor


class _Encoding:
    """An actor: a process that holds a run and, once it encodes, the model."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def starts(self) -> None:
        """Do nothing: whoever waits for it knows that the actor is there."""

    def do(self, cell: Cell) -> None:
        """Do a cell."""
        _do(cell, *self._arguments)


_held: dict[str, Any] = {}  # the run that this worker last did a cell of


def _do(cell: Cell, key: str, kept: list[Any], cpus: int, where: str) -> None:
    torch.set_num_threads(cpus)
    if key not in _held:
        with suppress(OSError):  # a node without that folder still finds everything that has a full path
            os.chdir(where)  # a cluster may have been started elsewhere, and paths may be relative
        if where not in sys.path:
            sys.path.append(where)  # the encoder may be a function of a module in that folder
        _held.clear()
        _held[key] = _ray().get(kept[0])
    if not _held[key].lacks(cell):  # done by a worker that was lost after it
        return
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            _held[key].do(cell)
        except FolderInUseError:  # by a worker whose driver was lost, and which has not ended yet
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
        else:
            return


def _check_nodes(run: Run | Fitting) -> None:
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
            asked[there.remote(str(token.absolute()))] = node["NodeManagerAddress"]
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


def _check_listening(address: str) -> None:
    """Check that something listens at host:port: Ray itself would try for a quarter of an hour, and say nothing.

    Raises:
        OSError: Nothing does.
    """
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), CONNECTING).close()


def _sees(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - a function that a worker gets by value


def _ray() -> Any:
    """Import Ray, which reports its use to its makers unless told not to: here only if the user has turned that on.

    Of a cluster that is gone it should say so within minutes.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", TRIES)
    return optional_import("ray", "mining on Ray", "'lookalike[ray]'")
