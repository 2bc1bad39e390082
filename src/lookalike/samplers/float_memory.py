"""Remember the floats of the whole training set by sample id, as the paper's Pre-Epoch strategies do."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lookalike.hashing import SignHasher
from lookalike.negatives.hard import hard_negatives_of
from lookalike.negatives.spaces import COSINE
from lookalike.samplers import states
from lookalike.samplers.memory import Memory, Remembered
from lookalike.utils import ranks

if TYPE_CHECKING:
    from lookalike.samplers.pairing import Pairing

PAIRING_BITS = 512  # positives are chosen by codes here too, computed for that purpose alone


class FloatMemory(Memory):
    """Embeddings as float32 on their own device, NaN where there is none: dim * 4 bytes per sample and tower.

    Args:
        pairing: The data set.
        seed: Decides the rotation of the codes by which positives are chosen.
        observes: Whether `write` keeps embeddings; False where they come from `replace_all` alone.
    """

    def __init__(self, pairing: Pairing, *, seed: int, observes: bool) -> None:
        self.n, self.towers, self.seed, self.observes = pairing.num_samples, pairing.towers, seed, observes
        self._floats: dict[str, Tensor] = {}  # float32 [n, dim] by tower
        self._fresh = torch.zeros(self.n, dtype=torch.bool)

    @property
    def dim(self) -> int | None:
        """Dimension of the embeddings; None before there are any."""
        return next((floats.shape[1] for floats in self._floats.values()), None)

    @property
    def nbytes(self) -> int:
        """Memory of the floats."""
        return sum(floats.nbytes for floats in self._floats.values())

    def replace_all(self, floats: dict[str, Tensor]) -> None:
        """Remember the embeddings of the whole training set, [n, dim] by tower, in place of all others."""
        self._floats = {tower: x.detach().to(torch.float32, copy=True) for tower, x in floats.items()}

    def write(self, tower: str, ids: Tensor, x: Tensor) -> None:
        """Remember the embeddings that are finite."""
        if not self.observes:
            return
        if tower not in self._floats:
            self._floats[tower] = torch.full((self.n, x.shape[1]), torch.nan, dtype=torch.float32, device=x.device)
        floats = self._floats[tower] = self._floats[tower].to(x.device)
        places = ids.to(x.device, non_blocking=True)
        finite = torch.isfinite(x).all(1, keepdim=True)
        floats[places] = x.float().where(finite, floats[places])
        self._fresh[ids] = True

    def exchange(self) -> None:
        """Take over what other ranks have observed since the last exchange."""
        if not self.observes or not ranks.is_distributed():
            return
        ids = self._fresh.nonzero().flatten()
        for tower in self.towers:
            dim = int(ranks.largest(self._floats[tower].shape[1] if tower in self._floats else 0))
            if dim == 0:
                continue
            floats = self._floats.setdefault(tower, torch.full((self.n, dim), torch.nan, dtype=torch.float32))
            for other_ids, rows in ranks.gather_rows(ids, floats[ids]):
                floats[other_ids] = rows.to(floats.device)
        self._fresh[:] = False

    def known_checksum(self) -> int:
        """Return a checksum of which samples are known."""
        return zlib.crc32(self._seen().numpy().data)

    def rows(self, k: int) -> Remembered | None:  # noqa: ARG002 - as `Memory` has it
        """Return the floats of the samples that have some in every tower."""
        ids = self._seen().nonzero().flatten()
        if len(ids) == 0:
            return None
        query, *reference = (self._floats[tower][ids.to(self._floats[tower].device)] for tower in self.towers)
        return Remembered(ids, query, reference[0] if reference else None)

    def _seen(self) -> Tensor:
        """Return which samples have finite embeddings in every tower, bool [n]."""
        seen = torch.full((self.n,), len(self._floats) == len(self.towers))
        for floats in self._floats.values():
            seen &= torch.isfinite(floats).all(1).cpu()
        return seen

    def search(self, rows: range, *found: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """Find hard negatives among floats, exactly."""
        return hard_negatives_of(rows, COSINE, *found, **options)

    def pairing_codes(self) -> Tensor | None:
        """Hash the floats of labelled data, if there are any."""
        if len(self.towers) > 1:
            return None
        seen = self._seen()
        if not bool(seen.any()):
            return None
        floats = self._floats[self.towers[0]]
        hasher = SignHasher(floats.shape[1], PAIRING_BITS, seed=self.seed)
        hasher.update_mean(floats[seen.to(floats.device)])
        return hasher.encode(floats.where(seen.to(floats.device)[:, None], 0.0)).cpu()

    def identity(self) -> dict[str, Any]:
        """Return what must be the same on every rank, and in a state and the sampler that loads it."""
        return {"mode": "incremental" if self.observes else "full"}

    def state_dict(self) -> dict[str, Any]:
        """Return the floats and which of them other ranks have not seen."""
        return {"floats": self._floats, "fresh": self._fresh}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise a ValueError if `load_state_dict` could not load it."""
        floats = states.entry(state, "floats", dict)
        dims = {states.entry(floats, tower, Tensor).shape[-1] for tower in floats}
        if not set(floats) <= set(self.towers) or len(dims) > 1:
            raise states.damaged("its embeddings are of other towers")
        for tower in floats:
            states.check_tensor(floats, tower, torch.float32, [self.n, *dims])
        states.check_tensor(state, "fresh", torch.bool, [self.n])

    def load_state_dict(self, state: dict[str, Any], *, is_own: bool) -> bool:
        """Load a state and return whether all ranks knew what it holds."""
        self._floats = {tower: floats.clone() for tower, floats in state["floats"].items()}
        self._fresh = state["fresh"].clone() if is_own else torch.zeros_like(self._fresh)
        return not bool(state["fresh"].any())
