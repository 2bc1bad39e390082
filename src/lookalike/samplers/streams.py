"""The codes of one tower as its embeddings stream by: hashed on their device, written by id, floats dropped."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from lookalike.codes import CodeTable, mark, marked
from lookalike.hashing import SignHasher
from lookalike.samplers import ranks
from lookalike.samplers.arrivals import Arrivals
from lookalike.samplers.gathering import Gathering

logger = logging.getLogger("lookalike")


class CodeStream:
    """A code table that is written during training.

    In the first epoch embeddings are centred by their running mean, after that by the mean of the epoch before, so that
    all codes of an epoch are comparable. Batches are put aside until a thousand rows are hashed at once. On a CUDA
    device nothing waits: codes are copied to pinned memory and written to the table once they have arrived.
    """

    def __init__(self, n: int, bits: int, *, seed: int, center: float) -> None:
        self.table = CodeTable(n, bits)
        self.seed, self.center = seed, center
        self.hasher: SignHasher | None = None
        self._has_epoch_mean = False
        self._total: Tensor | None = None  # float64 [dim + 1] on the embeddings' device: their sum and their number
        self._gathering = Gathering()
        self._arrivals = Arrivals(self._store)
        self._fresh = torch.zeros_like(self.table.marks)  # which samples came in this epoch
        self._num_refused = 0
        self._state: dict[str, Any] = {}

    def write(self, ids: Tensor, x: Tensor) -> None:
        """Take embeddings `[m, dim]`, to hash them and keep the codes of those that are finite."""
        if self.hasher is not None and x.shape[1] != self.hasher.dim:
            raise ValueError(
                f"embeddings had {self.hasher.dim} dimensions until now, these have {x.shape[1]}; "
                "a sampler observes one model."
            )
        with torch.inference_mode(mode=False), torch.no_grad():  # what is kept must outlive an inference mode
            if self.hasher is None:
                self.hasher = SignHasher(x.shape[1], self.table.bits, seed=self.seed, center=self.center)
            rows = self._gathering.rows
            for chunk in self._gathering.add(ids, x):
                self._hash(*chunk)
            if self._state and self._gathering.rows is not rows:
                self._update_state()

    def _hash(self, ids: Tensor, x: Tensor) -> None:
        assert self.hasher is not None  # noqa: S101 - as written
        new = self._total is None or self._total.device != x.device
        if self.hasher.mean.device != x.device:
            self.hasher.to(x.device)
        if self._total is None:
            self._total = torch.zeros(x.shape[1] + 1, dtype=torch.float64, device=x.device)
        if self._total.device != x.device:
            self._total = self._total.to(x.device)
        finite = torch.isfinite(x.sum(1, dtype=torch.float32))  # any NaN or infinity of a row spreads to its sum
        self._total[:-1] += x.where(finite[:, None], 0).sum(0, dtype=torch.float64)
        self._total[-1] += finite.sum()
        if not self._has_epoch_mean:
            self.hasher.mean.copy_(self._total[:-1] / self._total[-1].clamp(min=1), non_blocking=True)
        codes, _ = self.hasher.encode_flagged(x)
        self._arrivals.send(ids, codes, finite)
        if new and self._state:
            self._update_state()

    def _store(self, ids: Tensor, codes: Tensor, finite: Tensor) -> None:
        if not bool(finite.all()):
            self._refuse(ids[~finite])
            ids, codes = ids[finite], codes[finite]
        self.table.put(ids, codes)
        mark(self._fresh, ids)

    def _refuse(self, ids: Tensor) -> None:
        if self._num_refused == 0:
            logger.warning(
                "embeddings of %d samples hold NaN or infinity (first: sample %d); they keep their older codes, "
                "if any; look for a diverging loss.",
                len(ids),
                int(ids[0]),
            )
        self._num_refused += len(ids)

    @property
    def device(self) -> torch.device:
        """Where the embeddings come from."""
        return torch.device("cpu") if self.hasher is None else self.hasher.mean.device

    def flush(self) -> None:
        """Hash what was put aside, and wait for the codes that are still on their way."""
        with torch.inference_mode(mode=False), torch.no_grad():
            for chunk in self._gathering.take():
                self._hash(*chunk)
        self._arrivals.flush()

    def end_epoch(self) -> None:
        """Take over what other ranks saw, and centre the next epoch by the mean of this one."""
        self.flush()
        if ranks.is_distributed():
            ids = marked(self._fresh).nonzero().flatten()
            for other_ids, codes in ranks.gather_rows(ids, self.table.codes[ids]):
                self.table.put(other_ids, codes)
            # A rank that saw nothing does not know the dimension yet.
            dim = int(ranks.largest(0 if self._total is None else len(self._total) - 1))
            if dim:
                mine = torch.zeros(dim + 1, dtype=torch.float64) if self._total is None else self._total.cpu()
                self._total = ranks.add_up(mine)
                self.hasher = self.hasher or SignHasher(dim, self.table.bits, seed=self.seed, center=self.center)
        if self._total is not None and self.hasher is not None and float(self._total[-1]) > 0:
            self.hasher.mean.copy_(self._total[:-1] / self._total[-1])
            self.hasher.count.fill_(int(self._total[-1]))
            self._has_epoch_mean = True
        if self._total is not None:
            self._total.zero_()
        self._num_refused = 0
        self._fresh.zero_()
        self._update_state()

    def state_dict(self) -> dict[str, Any]:
        """Codes, rotation, means: references that stay up to date, because loaders ask ahead of what they save."""
        self._arrivals.flush()  # what is put aside stays so: a resumed run hashes the same rows together
        self._update_state()
        return self._state

    def _update_state(self) -> None:
        self._state.update(
            codes=self.table.codes,
            marks=self.table.marks,
            fresh=self._fresh,
            aside=self._gathering.state_dict(),
            total=self._total,
            has_epoch_mean=self._has_epoch_mean,
            hasher=None if self.hasher is None else dict(self.hasher.state_dict()),
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state of the same table size."""
        if state["codes"].shape != self.table.codes.shape:
            raise ValueError(
                f"the state holds codes of {len(state['codes'])} samples with {state['codes'].shape[1] * 8} bits, this "
                f"sampler has {len(self.table)} samples with {self.table.bits} bits; build it as the saved one was."
            )
        self._arrivals.clear()
        self._gathering.load_state_dict(state["aside"])
        self.table.codes.copy_(state["codes"])
        self.table.marks.copy_(state["marks"])
        self._fresh.copy_(state["fresh"])
        self._total = None if state["total"] is None else state["total"].clone()
        self._has_epoch_mean = state["has_epoch_mean"]
        self.hasher = None
        if state["hasher"] is not None:
            dim = state["hasher"]["rows"].shape[1]
            self.hasher = SignHasher(dim, self.table.bits, seed=self.seed, center=self.center)
            self.hasher.load_state_dict(state["hasher"])
        if self._state:  # whoever asked for it before has what is current
            self._update_state()
