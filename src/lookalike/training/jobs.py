"""Train several runs at a time, each in a process of its own; they stop together."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from lookalike.training.errors import Interrupted
from lookalike.training.interruptions import stop_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.synchronize import Event
    from types import FrameType

T = TypeVar("T")
POLL_SECONDS = 0.2
START_METHOD = "spawn"  # CUDA does not survive a fork


def in_processes(tasks: Mapping[T, Callable[[], Any]], at_a_time: int) -> Iterator[tuple[T, Any]]:
    """Run tasks in other processes and yield their names with their results, as they finish.

    If one fails, or on Ctrl-C or SIGTERM, ask the others to stop, which `train` does with everything saved. They also
    stop if this process is killed.

    Raises:
        Interrupted: A signal asked this process to stop.
    """
    context = multiprocessing.get_context(START_METHOD)
    stopping = context.Event()
    threads = max(1, (os.cpu_count() or 1) // at_a_time)
    others = set(multiprocessing.active_children())  # of the caller
    with (
        stop_requests() as request,
        ProcessPoolExecutor(at_a_time, context, initializer=_Worker.start, initargs=(stopping, threads)) as pool,
    ):
        names = {pool.submit(_Worker.run, task): name for name, task in tasks.items()}
        pending = set(names)
        try:
            while pending:
                done, pending = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
                request.check()
                for future in done:
                    yield names[future], future.result()
        except BaseException:
            stopping.set()
            for future in pending:
                future.cancel()
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise  # leaving the pool waits until the others have saved


class _Worker:
    """State of a process of the pool, which stops when its parent says so or is gone."""

    stopping: Event
    is_busy = is_orphan = False

    @classmethod
    def start(cls, stopping: Event, threads: int) -> None:
        cls.stopping = stopping
        torch.set_num_threads(threads)
        if hasattr(os, "setpgrp"):
            os.setpgrp()  # only the parent receives Ctrl-C and passes it on: a second one would stop the saving
        signal.signal(signal.SIGTERM, cls._stop)
        threading.Thread(target=cls._watch_parent, daemon=True).start()

    @classmethod
    def run(cls, task: Callable[[], Any]) -> Any:
        if cls.stopping.is_set():
            raise Interrupted(signal.SIGTERM)
        cls.is_busy = True
        try:
            return task()
        finally:
            cls.is_busy = False
            if cls.is_orphan:
                os._exit(1)

    @classmethod
    def _stop(cls, number: int, frame: FrameType | None) -> None:  # noqa: ARG003 - signal prescribes the arguments
        """Stop a task that does not train yet; `train` has a handler of its own."""
        if cls.is_busy:
            raise Interrupted(number)
        if cls.is_orphan:
            os._exit(1)

    @classmethod
    def _watch_parent(cls) -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            cls.is_orphan = True
            os.kill(os.getpid(), signal.SIGTERM)
