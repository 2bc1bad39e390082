"""What a step is given, read while the step before is computed."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from lookalike.training.errors import UnreadableSampleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    import torch

T = TypeVar("T")
AHEAD = 3  # batches that are read before they are needed


def batches_ahead(device: torch.device) -> int:
    """How many batches to read before they are needed: on a CPU none, for reading would take the cores that compute."""
    return AHEAD if device.type == "cuda" else 0


def read(view: Callable[..., Any], *arguments: Any) -> Any:
    """What a data set gives for some ids.

    Raises:
        UnreadableSampleError: It cannot be read.
    """
    try:
        return view(*arguments)
    except (ValueError, OSError) as error:
        raise UnreadableSampleError(str(error)) from error


def read_ahead(jobs: Iterable[Callable[[], T]], ahead: int = AHEAD) -> Iterator[T]:
    """The results of jobs, in order, computed by one thread of their own before they are asked for.

    One is enough: decoding has its own threads, and tokenising happens outside the interpreter.

    Examples:
        >>> list(read_ahead([lambda: 1, lambda: 2]))
        [1, 2]
    """
    if ahead == 0:
        for job in jobs:
            yield job()
        return
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(1, "lookalike-reading") as thread:
        try:
            for job in jobs:
                waiting.append(thread.submit(job))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def moved(x: Any, device: torch.device) -> Any:
    """Tensors, or a dictionary of them, on a device; texts as they are."""
    if isinstance(x, dict):
        return {name: moved(value, device) for name, value in x.items()}
    return x.to(device, non_blocking=True) if isinstance(x, Tensor) else x
