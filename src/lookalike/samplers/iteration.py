"""The batches of one epoch, one after another, with a place that a loader can save."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class EpochIterator(Iterator[list[int]]):
    """Yields batches and keeps its own place, so that loaders which prefetch can save theirs.

    Args:
        epoch: Its number.
        order: The ids of the batches one after another, int32.
        offsets: Where each batch begins, int64 [batches + 1].
        start: The first batch to yield.
        note: Called with the epoch and the number of batches yielded so far, whenever one is.
        resume: Called with the epoch and a place in it that a loader has restored.
    """

    def __init__(
        self,
        epoch: int,
        order: Tensor,
        offsets: Tensor,
        start: int,
        *,
        note: Callable[[int, int], None],
        resume: Callable[[int, int], None],
    ) -> None:
        self._epoch, self._order, self._offsets, self._position = epoch, order, offsets, start
        self._note, self._resume = note, resume

    def __next__(self) -> list[int]:
        if self._position >= len(self._offsets) - 1:
            raise StopIteration
        first, last = self._offsets[self._position : self._position + 2].tolist()
        self._position += 1
        self._note(self._epoch, self._position)
        batch: list[int] = self._order[first:last].tolist()
        return batch

    def state_dict(self) -> dict[str, int]:
        """Return the place, for `torchdata`'s StatefulDataLoader."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a place in the same epoch; one in an epoch that is over means the beginning of this one."""
        if state["epoch"] == self._epoch:
            self._position = state["position"]
            self._resume(self._epoch, self._position)
