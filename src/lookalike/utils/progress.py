"""A progress bar that is seen by people only: on a terminal, on the first rank, when asked for."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bar(Protocol):
    """What is yielded to the caller."""

    def advance(self, amount: float) -> None:
        """Say that this much of the total is done."""

    def describe(self, text: str) -> None:
        """Say something else in front of the bar."""


class _Silent:
    def advance(self, amount: float) -> None:
        """Draw nothing."""

    def describe(self, text: str) -> None:
        """Draw nothing."""


@contextmanager
def progress_bar(description: str, total: float, *, shown: bool) -> Iterator[Bar]:
    """Yield a bar to advance; it draws nothing unless `shown` and standard error is a terminal."""
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


@contextmanager
def working(description: str, *, shown: bool) -> Iterator[None]:
    """Say what is going on where there is nothing to count; draws nothing unless `progress_bar` would."""
    if not shown or not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        yield
        return
    with Console(stderr=True).status(description):
        yield
