"""From a device to the host without waiting: tensors are handed over, in order, once they have arrived."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable


class Arrivals:
    """Tensors on their way to the host.

    Args:
        store: Called with what `send` was given, all of it on the host.
    """

    def __init__(self, store: Callable[..., None]) -> None:
        self._store = store
        self._waiting: deque[tuple[Any, tuple[Tensor, ...]]] = deque()  # the event of the copy, None on a CPU

    def send(self, places: Tensor, *tensors: Tensor) -> None:
        """Begin copying `tensors` of one device; `places`, on the host, goes with them. Stores what has arrived."""
        copied = None
        if tensors[0].is_cuda:
            on_host = tuple(_copy_to_host(tensor) for tensor in tensors)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(torch.cuda.current_stream(tensors[0].device))
        else:
            on_host = tuple(tensor.cpu() for tensor in tensors)
        self._waiting.append((copied, (places, *on_host)))
        while self._waiting and (self._waiting[0][0] is None or self._waiting[0][0].query()):
            self._hand_over()

    def flush(self) -> None:
        """Wait for what is still on its way."""
        while self._waiting:
            if self._waiting[0][0] is not None:
                self._waiting[0][0].synchronize()
            self._hand_over()

    def clear(self) -> None:
        """Forget what is still on its way."""
        self._waiting.clear()

    def _hand_over(self) -> None:
        self._store(*self._waiting.popleft()[1])


def _copy_to_host(tensor: Tensor) -> Tensor:
    """A copy in pinned memory that is complete once the device has come to it."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
