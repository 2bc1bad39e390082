"""Keep the floats of a few samples for one epoch, to choose the number of bits from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookalike.samplers import states
from lookalike.samplers.arrivals import Arrivals
from lookalike.utils import ranks

MAX_ROWS = 4096


class Reservoir:
    """Embeddings of one tower for samples that are drawn before training, the same on every rank.

    The choice depends on the seed and the size of the data set alone, so whichever rank observes one of them keeps it,
    and nothing is decided on a device: rows are picked by ids, which are on the host, and copied without waiting.
    """

    def __init__(self, n: int, *, seed: int, rows: int = MAX_ROWS) -> None:
        drawn = np.random.default_rng([seed, n]).permutation(n)[:rows] if n > rows else np.arange(n)
        self.ids = torch.from_numpy(np.sort(drawn))  # int64 [m]
        self.seen = torch.zeros(len(self.ids), dtype=torch.bool)  # in this epoch
        self.rows: Tensor | None = None  # float32 [m, dim] on the host, once the dimension is known
        self._arrivals = Arrivals(self._store)
        self._state: dict[str, Any] = {}

    @property
    def nbytes(self) -> int:
        """Memory of the floats."""
        return 0 if self.rows is None else self.rows.nbytes

    def write(self, ids: Tensor, x: Tensor) -> None:
        """Keep the embeddings `[len(ids), dim]` of the drawn samples."""
        places = torch.searchsorted(self.ids, ids).clamp(max=len(self.ids) - 1)
        positions = (self.ids[places] == ids).nonzero().flatten()
        if len(positions) == 0:
            return
        with torch.inference_mode(mode=False), torch.no_grad():  # what is kept must outlive an inference mode
            self._allocate(x.shape[1])
            places = places[positions]
            if x.is_cuda:
                positions = positions.pin_memory().to(x.device, non_blocking=True)
            self._arrivals.send(places, x.index_select(0, positions.to(x.device)).float())

    def _allocate(self, dim: int) -> None:
        if self.rows is None:
            self.rows = torch.zeros(len(self.ids), dim, dtype=torch.float32)
            self._state.update(rows=self.rows)

    def _store(self, places: Tensor, rows: Tensor) -> None:
        assert self.rows is not None  # noqa: S101 - our own invariant
        self.rows[places] = rows
        self.seen[places] = True

    def known_rows(self, places: Tensor) -> Tensor:
        """Return the embeddings at some places that were seen, float32 [len(places), dim]."""
        assert self.rows is not None  # noqa: S101 - some were seen
        return self.rows[places]

    def flush(self) -> None:
        """Wait for the rows in flight."""
        self._arrivals.flush()

    def exchange(self) -> None:
        """Add what other ranks saw; every rank calls it."""
        self.flush()
        if ranks.is_distributed():
            dim = int(ranks.largest(0 if self.rows is None else self.rows.shape[1]))
            if dim:
                self._allocate(dim)
                assert self.rows is not None  # noqa: S101 - as allocated
                places = self.seen.nonzero().flatten()
                for other_places, rows in ranks.gather_rows(places, self.rows[places]):
                    self.rows[other_places] = rows
                    self.seen[other_places] = True

    def end_epoch(self) -> Tensor:
        """Return which rows were seen and are finite, and begin a new epoch."""
        self.flush()
        usable = self.seen.clone()
        if self.rows is not None:
            usable &= torch.isfinite(self.rows).all(1)
        self.seen.zero_()
        return usable

    def forget(self) -> None:
        """Forget everything, as if nothing had been written."""
        self._arrivals.clear()
        self.seen.zero_()
        self.rows = None
        self._state.update(rows=None)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors that stay up to date, as `CodeStream` does."""
        self.flush()
        self._state.update(rows=self.rows, seen=self.seen)
        return self._state

    def check_state(self, state: Any, dim: int | None) -> None:
        """Raise a ValueError if `load_state_dict` could not load it."""
        states.check_tensor(state, "seen", torch.bool, self.seen.shape)
        if states.optional(state, "rows", Tensor) is not None:
            if dim is None:
                raise states.damaged("it has a reservoir without a rotation")
            states.check_tensor(state, "rows", torch.float32, [len(self.ids), dim])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of the same data set and seed."""
        self._arrivals.clear()
        self.seen.copy_(state["seen"])
        self.rows = None if state["rows"] is None else state["rows"].clone()
        self._state.update(rows=self.rows)
