"""Stop on request: Ctrl-C and SIGTERM end training after the current step, with everything saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
def stop_requests() -> Iterator[Request]:
    """Catch the first Ctrl-C or SIGTERM; a second one stops at once, as usual."""
    request = Request()
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield request
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signal prescribes the arguments
        request.number = number
        for each in numbers:
            signal.signal(each, before[each])

    for number in numbers:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number in numbers:
            signal.signal(number, before[number])
