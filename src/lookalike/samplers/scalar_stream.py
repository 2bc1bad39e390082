"""Hash the embeddings of one tower to codes of several bits as they stream by, and collect their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from lookalike.codes import mark, marked
from lookalike.hashing.moments import Moments, checked_sums
from lookalike.samplers import states
from lookalike.samplers.streams import CodeStream
from lookalike.utils import ranks

if TYPE_CHECKING:
    from lookalike.samplers.codebook import Codebook

RECODED = 1 << 14  # codes at a time


class ScalarStream(CodeStream):
    """A code stream that writes the codes of a codebook, and sign codes as long as it is empty.

    Args:
        n: Number of samples.
        bits: Length of the longest codes.
        seed: Seed of the rotation of sign codes.
        center: Fraction of the mean to subtract from what sign codes are made of.
        codebook: What codes mean; shared by all towers.
        shown: How many of the samples an epoch shows; by default all.
    """

    def __init__(
        self, n: int, bits: int, *, seed: int, center: float, codebook: Codebook, shown: int | None = None
    ) -> None:
        super().__init__(n, bits, seed=seed, center=center)
        self.codebook = codebook
        self.shown = n if shown is None else shown
        self._moments: Moments | None = None  # of this rank, since the ranks last exchanged them
        self._shared_moments: Tensor | None = None  # of all ranks in this epoch, up to that exchange
        self._num_hashed = torch.zeros(1, dtype=torch.int64)  # rows in this epoch; a tensor stays up to date in a state
        self._renewed = torch.zeros_like(self.table.marks)  # bits: samples whose code the codebook's `written` made

    def _encode(self, x: Tensor, finite: Tensor) -> Tensor:
        self._count(x, finite)
        written = self.codebook.written
        if written is None:
            return super()._encode(x, finite)
        codes, _ = written.encode_flagged(x)
        return pad(codes, (0, self.table.codes.shape[1] - codes.shape[1]))

    def _count(self, x: Tensor, finite: Tensor) -> None:
        """Add rows to the statistics."""
        if self._moments is None or self._moments.sums.device != x.device:
            sums = None if self._moments is None else self._moments.sums.to(x.device)
            self._moments = Moments(x.shape[1], x.device) if sums is None else Moments.of(sums)
            if self._state:
                self._update_state()
        half, before = self.shown // (2 * self.codebook.shares), int(self._num_hashed)
        self._num_hashed += len(x)
        is_first = self.codebook.is_early or not self._has_epoch_mean  # of a warm start there is a mean before it ends
        if is_first and self.codebook.written is None and before < half:  # the model has only begun to learn
            x, finite = x[half - before :], finite[half - before :]
        self._moments.add(x, finite)

    def take_sums(self) -> Tensor | None:
        """Return the sums of this epoch's `Moments`, on the host, and begin new ones."""
        own = None if self._moments is None else self._moments.sums
        parts = [part.cpu() for part in (own, self._shared_moments) if part is not None]
        self._moments = self._shared_moments = None
        self._update_state()
        return torch.stack(parts).sum(0) if parts else None

    def settle(self) -> None:
        """Bring the codes of samples that were not observed since the epoch began to the meaning of the others.

        Codes of several bits tell roughly which embedding they were made of, so it can be hashed anew. Sign codes do
        not; such samples are unknown again.
        """
        old, new = self.codebook.searched, self.codebook.written
        if new is old:
            return
        known, renewed = (marked(marks)[: len(self.table)] for marks in (self.table.marks, self._renewed))
        stale = (known & ~renewed).nonzero().flatten()
        for ids in torch.split(stale, RECODED):
            if old is None or new is None:
                self.table.drop(ids)
            else:
                old_codes = old.read(self.table.codes[ids])
                codes = new.encode(old.decode(old_codes)).packed
                self.table.put(ids, pad(codes, (0, self.table.codes.shape[1] - codes.shape[1])))

    def turn(self) -> None:
        """Begin an epoch whose codes have another meaning."""
        self._renewed.zero_()

    def _keep(self, ids: Tensor, codes: Tensor) -> None:
        super()._keep(ids, codes)
        mark(self._renewed, ids)

    def _comparable(self, codes: Tensor) -> Tensor:
        """Return the sign of every dimension: finer bits flip although little has changed."""
        written = self.codebook.written
        return codes if written is None else written.scheme.signs(codes[:, : written.bits // 8])

    def exchange(self) -> None:
        """Add what other ranks saw since the last exchange; every rank calls it."""
        super().exchange()
        if ranks.is_distributed() and self.dim:
            own = Moments(self.dim).sums if self._moments is None else self._moments.sums
            total, before = ranks.add_up(own), self._shared_moments
            self._shared_moments = total if before is None else before.to(total.device) + total
            self._moments = None
            self._update_state()

    def end_epoch(self) -> None:
        """Begin to count the rows of the next epoch."""
        super().end_epoch()
        self._num_hashed.zero_()
        self._update_state()

    def forget(self) -> None:
        """Forget everything, as if nothing had been written."""
        self._moments = self._shared_moments = None
        self._num_hashed.zero_()
        self._renewed.zero_()
        super().forget()

    def _update_state(self) -> None:
        super()._update_state()
        self._state.update(
            moments=None if self._moments is None else self._moments.sums,
            shared_moments=self._shared_moments,
            num_hashed=self._num_hashed,
            renewed=self._renewed,
        )

    def check_state(self, state: Any) -> int | None:
        """Return the dimension of a state's embeddings, None where it has seen none.

        Raises:
            ValueError: `load_state_dict` could not load it.
        """
        dim = super().check_state(state)
        states.check_tensor(state, "renewed", torch.uint8, self.table.marks.shape)
        states.check_tensor(state, "num_hashed", torch.int64, [1])
        if int(state["num_hashed"]) < 0:
            raise states.damaged("num_hashed is negative")
        for name in ("moments", "shared_moments"):
            sums = states.optional(state, name, Tensor)
            if sums is not None and (dim is None or not checked_sums(sums, dim)):
                raise states.damaged(f"its {name} are not those of its embeddings")
        return dim

    def load_state_dict(self, state: dict[str, Any], *, is_own: bool = True) -> bool:
        """Load a state that `check_state` has passed; from another rank's state, only what that rank will not send."""
        moments, shared = state["moments"], state["shared_moments"]
        self._moments = Moments.of(moments.clone()) if is_own and moments is not None else None
        self._shared_moments = None if shared is None else shared.clone()
        self._num_hashed.copy_(state["num_hashed"] if is_own else torch.zeros(1))
        self._renewed.copy_(state["renewed"])
        return super().load_state_dict(state, is_own=is_own)
