"""Sum up the time that blocks of code take."""

import time
from typing import Self


class Stopwatch:
    """Runs while a `with` block does; blocks may be nested.

    Examples:
        >>> watch = Stopwatch()
        >>> with watch:
        ...     pass
        >>> watch.seconds < 1
        True
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._began = 0, 0.0

    def __enter__(self) -> Self:
        if not self._depth:
            self._began = time.perf_counter()
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._began
