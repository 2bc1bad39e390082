"""Hash the embeddings of one tower as they stream by, and write the codes by sample id."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookalike.codes import CodeTable, mark, marked
from lookalike.hashing import SignHasher, column_sums
from lookalike.samplers import states
from lookalike.samplers.arrivals import Arrivals, Gathering
from lookalike.utils import ranks

logger = logging.getLogger("lookalike")

ALIKE = 1e-3  # variance of unit embeddings below which no temperature makes differences visible
ROUNDING = 1e-8  # variance, as a fraction of the squared norm, that half-precision rounding explains
NEARLY_UNIT = 0.1


class CodeStream:
    """A code table that is written during training.

    It centres embeddings by their running mean in the first epoch, and by the mean of the previous epoch after that, so
    that all codes of an epoch are comparable. It gathers a few thousand rows and hashes them at once. On a CUDA device
    nothing waits: codes are copied to pinned memory and written to the table as they arrive.
    """

    def __init__(self, n: int, bits: int, *, seed: int, center: float) -> None:
        self.table = CodeTable(n, bits)
        self.seed, self.center = seed, center
        self.hasher: SignHasher | None = None
        self._has_epoch_mean = False
        # float64 [dim + 2] on the embeddings' device: their sum, the sum of their squared norms, and their number.
        self._total: Tensor | None = None  # of this rank, since the ranks last exchanged it
        self._shared: Tensor | None = None  # of all ranks in this epoch, up to that exchange
        self.gathering = Gathering()
        self._arrivals = Arrivals(self._store)
        self._fresh = torch.zeros_like(self.table.marks)  # bits: samples seen since the last exchange
        self._num_refused = 0
        self.refused_before = 0  # rows of the last epoch that were not finite
        self._watches_flips = False
        self._flipped = torch.zeros(2, dtype=torch.int64)  # bits that flipped, and bits that were compared
        self.has_collapsed = False  # whether the embeddings of the last epoch were almost one point
        self._state: dict[str, Any] = {}

    def write(self, ids: Tensor, x: Tensor) -> None:
        """Hash embeddings `[m, dim]` and keep the codes of those that are finite."""
        with torch.inference_mode(mode=False), torch.no_grad():  # what is kept must outlive an inference mode
            if self.hasher is None:
                self.hasher = SignHasher(x.shape[1], self.table.bits, seed=self.seed, center=self.center)
            rows = self.gathering.rows
            for chunk in self.gathering.add(ids, x):
                self._hash(*chunk)
            if self._state and self.gathering.rows is not rows:
                self._update_state()

    def _hash(self, ids: Tensor, x: Tensor) -> None:
        assert self.hasher is not None  # noqa: S101 - `write` made it
        new = self._total is None or self._total.device != x.device
        if self.hasher.mean.device != x.device:
            self.hasher.to(x.device)
        if self._total is None:
            self._total = torch.zeros(x.shape[1] + 2, dtype=torch.float64, device=x.device)
        self._total = self._total.to(x.device)
        if self._shared is not None:
            self._shared = self._shared.to(x.device)
        finite = torch.isfinite(x.sum(1, dtype=torch.float32))  # any NaN or infinity of a row spreads to its sum
        known = x.where(finite[:, None], 0)
        self._total[:-2] += column_sums(known)
        self._total[-2] += known.float().square().sum(dtype=torch.float64)
        self._total[-1] += finite.sum()
        if not self._has_epoch_mean:
            total = self._total if self._shared is None else self._total + self._shared
            count = total[-1].clamp(min=1)
            self.hasher.set_mean(total[:-2] / count, count)
        self._arrivals.send(ids, self._encode(x, finite), finite)
        if new and self._state:
            self._update_state()

    def _encode(self, x: Tensor, finite: Tensor) -> Tensor:  # noqa: ARG002 - codes of other kinds need it
        """Hash rows, of which some may not be finite, to codes of the table's length."""
        assert self.hasher is not None  # noqa: S101 - `write` made it
        return self.hasher.encode_flagged(x)[0]

    def _store(self, ids: Tensor, codes: Tensor, finite: Tensor) -> None:
        if not bool(finite.all()):
            self._refuse(ids[~finite])
            ids, codes = ids[finite], codes[finite]
        if self._watches_flips:
            self._count_flips(ids, codes)
        self._keep(ids, codes)
        mark(self._fresh, ids)

    def _keep(self, ids: Tensor, codes: Tensor) -> None:
        """Write codes of this rank or of another."""
        self.table.put(ids, codes)

    def _comparable(self, codes: Tensor) -> Tensor:
        """Return bits that stay the same while a model stays the same."""
        return codes

    def _count_flips(self, ids: Tensor, codes: Tensor) -> None:
        known = self.table.has(ids)
        before, after = (self._comparable(part).numpy() for part in (self.table.codes[ids[known]], codes[known]))
        flipped = int(np.bitwise_count(before ^ after).sum(dtype=np.int64))
        self._flipped += torch.tensor([flipped, before.size * 8])

    def watch_flips(self) -> None:
        """Count the bits that flip from now on, until the epoch ends."""
        self.flush()
        self._flipped.zero_()
        self._watches_flips = True
        if self._state:
            self._update_state()

    def take_flips(self) -> Tensor:
        """Return how many bits have flipped since the last call, and how many were compared."""
        self.flush()
        flipped = self._flipped.clone()
        self._flipped.zero_()
        return flipped

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
    def dim(self) -> int | None:
        """Dimension of the embeddings; None before there are any."""
        return None if self.hasher is None else self.hasher.dim

    @property
    def device(self) -> torch.device:
        """Where the embeddings come from; the CPU before there are any."""
        return torch.device("cpu") if self.hasher is None else self.hasher.mean.device

    def flush(self) -> None:
        """Hash the gathered rows, and wait for the codes in flight."""
        with torch.inference_mode(mode=False), torch.no_grad():
            for chunk in self.gathering.take():
                self._hash(*chunk)
        self._arrivals.flush()

    def exchange(self) -> None:
        """Add what other ranks saw since the last exchange; every rank calls it."""
        self.flush()
        if not ranks.is_distributed():
            return
        ids = marked(self._fresh).nonzero().flatten()
        for other_ids, codes in ranks.gather_rows(ids, self.table.codes[ids]):
            self._keep(other_ids, codes)
        self._fresh.zero_()
        flipped = ranks.add_up(self._flipped)  # rank 0 keeps them for all, so that no rank's are lost or count twice
        self._flipped.copy_(flipped if ranks.world()[0] == 0 else torch.zeros_like(flipped))
        # A rank that saw nothing does not know the dimension yet.
        dim = int(ranks.largest(0 if self._total is None else len(self._total) - 2))
        if dim:
            mine = torch.zeros(dim + 2, dtype=torch.float64) if self._total is None else self._total
            theirs = ranks.add_up(mine)
            self._shared = theirs if self._shared is None else self._shared.to(theirs.device) + theirs
            self._total = torch.zeros_like(mine)
            self.hasher = self.hasher or SignHasher(dim, self.table.bits, seed=self.seed, center=self.center)
        self._update_state()

    def end_epoch(self) -> None:
        """Centre the next epoch by the mean of this one."""
        self.flush()
        parts = [part.cpu() for part in (self._shared, self._total) if part is not None]
        total = torch.stack(parts).sum(0) if parts else torch.zeros(2, dtype=torch.float64)
        if self.hasher is not None and float(total[-1]) > 0:
            mean = total[:-2] / total[-1]
            self.hasher.set_mean(mean, int(total[-1]))
            self._has_epoch_mean = True
            self.has_collapsed = _have_collapsed(mean, float(total[-2] / total[-1]))
        if self._total is not None:
            self._total.zero_()
        self._shared = None
        self._watches_flips = False
        self.refused_before, self._num_refused = self._num_refused, 0
        self._fresh.zero_()
        self._update_state()

    def forget(self) -> None:
        """Forget everything, as if nothing had been written."""
        self._arrivals.clear()
        self.gathering.clear()
        for tensor in (self.table.codes, self.table.marks, self._fresh, self._flipped):
            tensor.zero_()
        self.hasher = self._total = self._shared = None
        self.gathering.rows = None
        self._has_epoch_mean = self.has_collapsed = self._watches_flips = False
        self._num_refused = self.refused_before = 0
        if self._state:
            self._update_state()

    def state_dict(self) -> dict[str, Any]:
        """Return codes, rotation and means as tensors that stay up to date: loaders request it before saving."""
        self._arrivals.flush()  # gathered rows stay gathered: a resumed run hashes the same rows together
        self._update_state()
        return self._state

    def _update_state(self) -> None:
        self._state.update(
            codes=self.table.codes,
            marks=self.table.marks,
            fresh=self._fresh,
            flipped=self._flipped,
            watches_flips=self._watches_flips,
            aside=self.gathering.state_dict(),
            total=self._total,
            shared=self._shared,
            has_epoch_mean=self._has_epoch_mean,
            hasher=None if self.hasher is None else dict(self.hasher.state_dict()),
        )

    def check_state(self, state: Any) -> int | None:
        """Return the dimension of a state's embeddings, None where it has seen none.

        Raises:
            ValueError: `load_state_dict` could not load it.
        """
        states.check_tensor(state, "codes", torch.uint8, self.table.codes.shape)
        for name in ("marks", "fresh"):
            states.check_tensor(state, name, torch.uint8, self.table.marks.shape)
        states.check_tensor(state, "flipped", torch.int64, [2])
        states.entry(state, "watches_flips", bool)
        states.entry(state, "has_epoch_mean", bool)
        dim = None
        if states.optional(state, "hasher", dict) is not None:
            rows = states.entry(state["hasher"], "rows", Tensor)
            dim = rows.shape[-1] if rows.ndim else 0
            states.check_tensor(state["hasher"], "rows", torch.float32, [self.table.bits, dim])
            states.check_tensor(state["hasher"], "mean", torch.float64, [dim])
            states.check_tensor(state["hasher"], "count", torch.int64, [])
        for name in ("total", "shared"):
            if states.optional(state, name, Tensor) is not None:
                if dim is None:
                    raise states.damaged(f"it has a {name} without a rotation")
                states.check_tensor(state, name, torch.float64, [dim + 2])
        self.gathering.check_state(state.get("aside"), len(self.table), dim)
        return dim

    def load_state_dict(self, state: dict[str, Any], *, is_own: bool = True) -> bool:
        """Load a state that `check_state` has passed; from another rank's state, only what that rank will not send.

        Returns:
            Whether all ranks knew what it holds.
        """
        self._arrivals.clear()
        self.gathering.load_state_dict(state["aside"])
        self.table.codes.copy_(state["codes"])
        self.table.marks.copy_(state["marks"])
        self._fresh.copy_(state["fresh"])
        self._flipped.copy_(state["flipped"])
        self._watches_flips = state["watches_flips"]
        self._total = None if state["total"] is None else state["total"].clone()
        self._shared = None if state["shared"] is None else state["shared"].clone()
        self._has_epoch_mean = state["has_epoch_mean"]
        self.hasher = None
        if state["hasher"] is not None:
            dim = state["hasher"]["rows"].shape[1]
            self.hasher = SignHasher(dim, self.table.bits, seed=self.seed, center=self.center)
            self.hasher.load_state_dict(state["hasher"])
        is_shared = not self._has_unshared()
        if not is_own:
            self.gathering.clear()
            self._fresh.zero_()
            self._flipped.zero_()
            self._total = None
        if self._state:  # keep a state that was handed out before up to date
            self._update_state()
        return is_shared

    def _has_unshared(self) -> bool:
        """Return whether something was observed that other ranks have not received."""
        return bool(self._fresh.any()) or int(self.gathering.count) > 0


def _have_collapsed(mean: Tensor, squares: float) -> bool:
    """Return whether embeddings are almost one point, from their mean and their mean squared norm.

    Of unit embeddings, 1 - |mean|^2 is 1 minus the average cosine. Others may be far from the origin and well apart.
    """
    spread = squares - float(mean.square().sum())
    return spread < (ALIKE if abs(squares - 1) < NEARLY_UNIT else ROUNDING * squares)
