"""Stop on request: Ctrl-C and SIGTERM end training after the current step, with everything saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

from lookalike.training.errors import Interrupted


class Request:
    """Remembers the signal that asked to stop, if there was one."""

    number: int | None = None

    def check(self) -> None:
        """Raise `Interrupted` if there was a signal."""
        if self.number is not None:
            raise Interrupted(self.number)


@contextmanager
def stop_requests(echo: float = 0.0) -> Iterator[Request]:
    """Catch the first Ctrl-C or SIGTERM; a second one stops at once, as usual.

    Args:
        echo: Seconds after the first signal in which more of them say the same again: Ctrl-C reaches all processes of a
            terminal, and a launcher then signals the processes that it has started.
    """
    request = Request()
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield request
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    echo_ends = 0.0

    def restore() -> None:
        for number in numbers:
            signal.signal(number, before[number])

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signal prescribes the arguments
        nonlocal echo_ends
        if request.number is None:
            request.number, echo_ends = number, monotonic() + echo
            if not echo:
                restore()
        elif monotonic() > echo_ends:
            restore()
            signal.raise_signal(number)

    for number in numbers:
        signal.signal(number, note)
    try:
        yield request
    finally:
        restore()
