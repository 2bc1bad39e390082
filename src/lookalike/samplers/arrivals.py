"""What is under way: embeddings set aside until they are hashed together, and codes that are copied to the host."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lookalike.samplers import states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = 4096  # gathered before they are hashed: on a GPU, thousands of rows cost hardly more than a few


class Gathering:
    """Holds embeddings with their ids, in order, until there are `rows` of them.

    On a GPU, hashing a batch takes a few dozen launches, a noticeable part of a small model's step; setting it aside
    takes one. The state consists of tensors that stay up to date, so that it can be requested ahead of time.
    """

    def __init__(self, rows: int = ROWS) -> None:
        self.most = rows
        self.ids = torch.zeros(rows, dtype=torch.int64)
        self.count = torch.zeros(1, dtype=torch.int64)
        self.rows: Tensor | None = None  # [most, dim], where the embeddings come from

    def hands_over_for(self, x: Tensor) -> bool:
        """Return whether adding these rows would make it hand over rows: it is full, or they are of another dtype."""
        is_other = self.rows is not None and self.rows.dtype != x.dtype
        return is_other or int(self.count) + len(x) >= self.most

    def held(self) -> Tensor | None:
        """Return the rows set aside."""
        return None if self.rows is None else self.rows[: int(self.count)]

    def add(self, ids: Tensor, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Set rows aside; yield ids and rows, oldest first, whenever there are enough."""
        if self.rows is not None and self.rows.dtype != x.dtype:
            yield from self.take()
            self.rows = None
        if self.rows is not None and self.rows.device != x.device:  # a checkpoint is loaded on the CPU
            self.rows = self.rows.to(x.device)
        if self.rows is None:
            self.rows = torch.empty((self.most, x.shape[1]), dtype=x.dtype, device=x.device)
        first, count, given = 0, int(self.count), len(ids)
        while first < given:
            taken = min(given - first, self.most - count)
            if taken < given:
                ids_here, rows_here = ids.narrow(0, first, taken), x.narrow(0, first, taken)
            else:
                ids_here, rows_here = ids, x
            self.ids.narrow(0, count, taken).copy_(ids_here)
            self.rows.narrow(0, count, taken).copy_(rows_here)
            first, count = first + taken, count + taken
            self.count.fill_(count)
            if count == self.most:
                yield from self.take()
                count = 0

    def take(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield what is set aside, if anything, and forget it."""
        count = int(self.count)
        if count and self.rows is not None:
            self.count.zero_()
            yield self.ids[:count].clone(), self.rows[:count]

    def state_dict(self) -> dict[str, Any]:
        """Return what is set aside."""
        return {"ids": self.ids, "count": self.count, "rows": self.rows}

    def clear(self) -> None:
        """Forget what is set aside."""
        self.count.zero_()

    def check_state(self, state: Any, n: int, dim: int | None) -> None:
        """Raise a ValueError if `load_state_dict` could not load it."""
        states.check_tensor(state, "ids", torch.int64, self.ids.shape)
        states.check_tensor(state, "count", torch.int64, [1])
        if not 0 <= int(state["count"]) <= self.most:
            raise states.damaged(f"{int(state['count'])} rows are set aside")
        ids = state["ids"][: int(state["count"])]
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < n:
            raise states.damaged(f"rows are set aside for samples outside 0 to {n - 1}")
        rows = states.optional(state, "rows", Tensor)
        if rows is None and len(ids):
            raise states.damaged("the rows set aside are missing")
        if rows is not None and (dim is None or not rows.is_floating_point() or list(rows.shape) != [self.most, dim]):
            raise states.damaged("the rows set aside have another shape")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with what was set aside."""
        self.ids.copy_(state["ids"])
        self.count.copy_(state["count"])
        self.rows = None if state["rows"] is None else state["rows"].clone()


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
