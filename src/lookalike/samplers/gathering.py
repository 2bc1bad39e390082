"""Gather rows of several batches: hashing a thousand rows costs hardly more than hashing a few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lookalike.samplers import states

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 1024


class Gathering:
    """Holds embeddings with their ids, in order, until there are `rows` of them.

    On a GPU, hashing a batch takes a few dozen launches, a noticeable part of a small model's step; setting it aside
    takes one. The state consists of tensors that stay up to date, so that it can be asked for ahead of time.
    """

    def __init__(self, rows: int = ROWS) -> None:
        self.most = rows
        self.ids = torch.zeros(rows, dtype=torch.int64)
        self.count = torch.zeros(1, dtype=torch.int64)
        self.rows: Tensor | None = None  # [most, dim], where the embeddings come from

    def add(self, ids: Tensor, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Set rows aside; yield ids and rows, oldest first, whenever there are enough."""
        if self.rows is not None and self.rows.dtype != x.dtype:
            yield from self.take()
            self.rows = None
        if self.rows is not None and self.rows.device != x.device:  # a checkpoint is loaded on the CPU
            self.rows = self.rows.to(x.device)
        if self.rows is None:
            self.rows = torch.empty((self.most, x.shape[1]), dtype=x.dtype, device=x.device)
        first, count = 0, int(self.count)
        while first < len(ids):
            taken = min(len(ids) - first, self.most - count)
            self.ids[count : count + taken] = ids[first : first + taken]
            self.rows[count : count + taken] = x[first : first + taken]
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
