"""Progress bars, on the first rank and on request: drawn on a terminal; long work also says a line a minute in logs."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

A_MINUTE = 60.0  # seconds
LOOKS = 5.0  # seconds between two looks at the clock while nothing advances


class Bar(Protocol):
    """A progress bar, as its user sees it."""

    def advance(self, amount: float) -> None:
        """Add to the amount that is done."""

    def describe(self, text: str) -> None:
        """Replace the text in front of the bar."""


class _Silent:
    def advance(self, amount: float) -> None:
        """Draw nothing."""

    def describe(self, text: str) -> None:
        """Draw nothing."""


@contextmanager
def progress_bar(description: str, total: float, *, shown: bool) -> Iterator[Bar]:
    """Yield a bar to advance; it is drawn if `shown`, and standard error is a terminal, and this is rank 0."""
    if not shown or not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        yield _Silent()
        return
    text = TextColumn("{task.description} {task.percentage:3.0f}%")
    with Progress(
        text, BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task(description, total=total)

        class Drawn:
            def advance(self, amount: float) -> None:
                """Move the bar."""
                progress.advance(task, amount)

            def describe(self, text: str) -> None:
                """Change the text."""
                progress.update(task, description=text)

        yield Drawn()


class CountingBar(Bar, Protocol):
    """A bar that also counts finished pieces."""

    def count(self) -> None:
        """Count one more piece."""


class _Spoken:
    """Say how far something is: a line a minute, for logs."""

    def __init__(self, description: str, total: float, pieces: int, clock: Callable[[], float]) -> None:
        self._text, self._total, self._pieces, self._clock = description, total, pieces, clock
        self._done, self._counted = 0.0, 0
        self._began = self._said = clock()
        self._lock = threading.Lock()

    def advance(self, amount: float) -> None:
        """Add to what is done."""
        with self._lock:
            self._done += amount
        self.look()

    def look(self) -> None:
        """Say something if a minute has passed since the last time."""
        with self._lock:
            now = self._clock()
            if now - self._said < A_MINUTE:
                return
            self._said = now
            about = "no estimate yet"
            if self._done:
                about = f"about {_spoken((now - self._began) * (self._total / self._done - 1))} left"
            print(
                f"{self._text}: {self._done / max(self._total, 1):.0%}, {self._counted:,} of {self._pieces:,} cells, "
                f"{about}",
                file=sys.stderr,
                flush=True,
            )

    def describe(self, text: str) -> None:
        """Replace the text."""
        self._text = text

    def count(self) -> None:
        """Count one more piece."""
        self._counted += 1


class _Drawn:
    def __init__(self, bar: Bar, description: str, pieces: int) -> None:
        self._text, self._pieces, self._counted = description, pieces, 0
        self.advance, self.describe = bar.advance, bar.describe

    def count(self) -> None:
        """Show the number of pieces."""
        self._counted += 1
        if self._pieces > 1:
            self.describe(f"{self._text}, {self._counted:,} of {self._pieces:,} cells")


@contextmanager
def steady_bar(
    description: str, total: float, pieces: int, *, shown: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[CountingBar]:
    """Yield a bar for work that may take days: drawn on a terminal; without one, a line a minute on standard error."""
    if shown and not sys.stderr.isatty() and os.environ.get("RANK", "0") == "0":
        spoken, ended = _Spoken(description, total, pieces, clock), threading.Event()

        def watch() -> None:  # a slow encoder, or a judge, may not advance for minutes
            while not ended.wait(LOOKS):
                spoken.look()

        threading.Thread(target=watch, daemon=True, name="lookalike-progress").start()
        try:
            yield spoken
        finally:
            ended.set()
        return
    with progress_bar(description, total, shown=shown) as bar:
        yield _Drawn(bar, description, pieces)


def _spoken(seconds: float) -> str:
    """Say a length of time in words.

    Examples:
        >>> _spoken(50), _spoken(1000), _spoken(90_000)
        ('1 min', '17 min', '25 h')
    """
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 120 else f"{round(seconds / 3600):,} h"


@contextmanager
def working(description: str, *, shown: bool) -> Iterator[None]:
    """Show a spinner with a description while the block runs, under the conditions of `progress_bar`."""
    if not shown or not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        yield
        return
    with Console(stderr=True).status(description):
        yield
