"""Copy tensors from a device to the host without waiting, and hand them over in order as they arrive."""

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
        store: Called with the tensors given to `send`, once all of them are on the host.
    """

    def __init__(self, store: Callable[..., None]) -> None:
        self._store = store
        self._waiting: deque[tuple[Any, tuple[Tensor, ...]]] = deque()  # the event of the copy, None on a CPU

    def send(self, places: Tensor, *tensors: Tensor) -> None:
        """Begin to copy `tensors` from their device; `places`, on the host, go with them. Store what has arrived."""
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
        """Wait for the copies in flight."""
        while self._waiting:
            if self._waiting[0][0] is not None:
                self._waiting[0][0].synchronize()
            self._hand_over()

    def clear(self) -> None:
        """Drop the copies in flight."""
        self._waiting.clear()

    def _hand_over(self) -> None:
        self._store(*self._waiting.popleft()[1])


def _copy_to_host(tensor: Tensor) -> Tensor:
    """Copy into pinned memory; the copy is complete once the device has reached it."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
