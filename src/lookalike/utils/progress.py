"""Progress bars, drawn only on a terminal, on the first rank, and on request."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


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


@contextmanager
def working(description: str, *, shown: bool) -> Iterator[None]:
    """Show a spinner with a description while the block runs, under the conditions of `progress_bar`."""
    if not shown or not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        yield
        return
    with Console(stderr=True).status(description):
        yield
