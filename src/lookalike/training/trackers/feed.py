"""Feed a tracker from a thread of its own, so that one that fails or hangs neither ends nor slows the run."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.training.trackers.tracker import Row, Tracker

logger = logging.getLogger("lookalike")

MOST_ROWS = 100_000  # that may wait for a tracker
FLUSH_SECONDS, CLOSE_SECONDS = 5.0, 60.0  # to wait for it, once per epoch and at the end


class Feed:
    """Passes rows to a tracker, in order. The first error or time limit is a warning, and the last that is tried.

    Args:
        name: Of the tracker, for the warning.
        tracker: One that has started.
        first_step: The first step whose row it lacks; it gets no rows of earlier ones.
    """

    def __init__(self, name: str, tracker: Tracker, first_step: int) -> None:
        self._name, self._tracker, self._first_step = name, tracker, first_step
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(MOST_ROWS)
        self._is_over, self._lock = False, threading.Lock()
        self._is_flushed = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"lookalike-{name}", daemon=True)
        self._thread.start()

    def put(self, row: Row) -> None:
        """Pass on a row, unless the tracker has it."""
        if row.step >= self._first_step:
            self._add(lambda: self._tracker.log(row))

    def flush(self) -> None:
        """Wait until the rows are safe, but not for long."""
        self._is_flushed.clear()
        self._add(self._flush)
        if not self._is_over and not self._is_flushed.wait(FLUSH_SECONDS):
            self._give_up(f"it did not answer for {FLUSH_SECONDS:g} s")

    def close(self) -> None:
        """Let the tracker end its run, and wait for that, but not forever."""
        self._add(self._tracker.close)
        self._add(None)
        self._thread.join(0 if self._is_over else CLOSE_SECONDS)
        if self._thread.is_alive():
            self._give_up(f"it did not end within {CLOSE_SECONDS:g} s")

    def _flush(self) -> None:
        self._tracker.flush()
        self._is_flushed.set()

    def _add(self, job: Callable[[], None] | None) -> None:
        if self._is_over:
            return
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            self._give_up(f"{MOST_ROWS} rows wait for it")

    def _work(self) -> None:
        while not self._is_over and (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 - whatever a library raises, the run goes on
                self._give_up(first_line(error))

    def _give_up(self, reason: str) -> None:
        with self._lock:
            if self._is_over:
                return
            # Before anybody goes on: a process that ends would take the warning of its thread with it.
            logger.warning("%s logs no more (%s); the run goes on without it.", self._name, reason)
            self._is_over = True
        self._is_flushed.set()  # nobody waits any more
