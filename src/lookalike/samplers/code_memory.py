"""Remember the codes of the whole training set by sample id: the paper's method."""

from __future__ import annotations

import logging
import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from lookalike.analysis.bits import MIN_ROWS, BitsPlan, plan_from_codes
from lookalike.hashing.moments import Moments
from lookalike.hashing.scalar import SHORTEST
from lookalike.negatives.hard import hard_negatives_of
from lookalike.negatives.spaces import space_of
from lookalike.samplers import states
from lookalike.samplers.codebook import Codebook
from lookalike.samplers.memory import Memory, Remembered
from lookalike.samplers.reservoir import Reservoir
from lookalike.samplers.scalar_stream import ScalarStream
from lookalike.samplers.streams import CodeStream
from lookalike.search import search_device
from lookalike.utils import ranks
from lookalike.utils.checks import check_choice, checked_bits, checked_positive

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.codes import CodeTable
    from lookalike.hashing import Scheme
    from lookalike.samplers.pairing import Pairing

logger = logging.getLogger("lookalike")

Code = Literal["signs", "scalar"]


class CodeMemory(Memory):
    """Codes of bits / 8 bytes per sample and tower, written as the embeddings stream by.

    Args:
        pairing: The data set.
        bits: Length of the codes, or "auto": chosen at the end of every epoch.
        code: "signs", or "scalar": codes of several bits per dimension.
        max_bits: The longest codes that "auto" may choose.
        target_overlap: Fraction of the true k nearest that "auto" aims for.
        k: How many nearest count for "auto".
        center: Fraction of the mean to subtract before hashing.
        seed: Decides the rotation.
    """

    has_codes = True

    def __init__(
        self,
        pairing: Pairing,
        bits: int | str,
        *,
        code: Code = "signs",
        max_bits: int,
        target_overlap: float,
        k: int,
        center: float,
        seed: int,
    ) -> None:
        self.auto = isinstance(bits, str)
        if isinstance(bits, str) and bits != "auto":
            raise ValueError(f'bits must be a number or "auto", got {bits!r}.')
        if not 0 < target_overlap <= 1:
            raise ValueError(f"target_overlap must be above 0 and at most 1, got {target_overlap}.")
        self.bits = self.max_bits = checked_bits(max_bits if self.auto else bits)
        self.target_overlap, self.k, self.center = target_overlap, checked_positive("k", k), center
        self.plan: BitsPlan | None = None  # the last that "auto" made, on rank 0
        n = pairing.num_samples
        self._pairing = pairing
        check_choice("code", code, get_args(Code))
        if code == "scalar" and self.bits < SHORTEST:
            raise ValueError(f'code="scalar" needs at least {SHORTEST} bits, got {self.bits}; fewer take code="signs".')
        self.codebook = Codebook(self.bits, seed=seed) if code == "scalar" else None
        self.streams: dict[str, CodeStream] = {tower: self._stream(n, seed) for tower in pairing.towers}
        self.reservoirs = {tower: Reservoir(n, seed=seed) for tower in pairing.towers} if self.auto else {}
        self._has_chosen = self._warned_of_target = self._warned_of_collapse = False

    def _stream(self, n: int, seed: int) -> CodeStream:
        if self.codebook is None:
            return CodeStream(n, self.bits, seed=seed, center=self.center)
        return ScalarStream(n, self.bits, seed=seed, center=self.center, codebook=self.codebook)

    @property
    def dim(self) -> int | None:
        """Dimension of the embeddings; None before there are any."""
        return next((stream.dim for stream in self.streams.values() if stream.dim is not None), None)

    @property
    def scheme(self) -> Scheme | None:
        """What the codes mean that the present epoch was composed from; None if they are sign codes."""
        searched = None if self.codebook is None else self.codebook.searched
        return None if searched is None else searched.scheme

    @property
    def tables(self) -> dict[str, CodeTable]:
        """The codes by tower; with "auto" their first `bits` bits are in use."""
        return {tower: stream.table for tower, stream in self.streams.items()}

    @property
    def nbytes(self) -> int:
        """Memory of the codes, of a bit per sample that marks them as known, and of the reservoir of "auto"."""
        codes = sum(part.nbytes for table in self.tables.values() for part in (table.codes, table.marks))
        return codes + sum(reservoir.nbytes for reservoir in self.reservoirs.values())

    def write(self, tower: str, ids: Tensor, x: Tensor) -> None:
        """Hash embeddings and remember their codes."""
        if self.codebook is not None:
            self.codebook.sees_everything = self.sees_everything
            if self.codebook.awaits_warm_start and self.streams[tower].gathering.is_full_with(len(ids)):
                self._learn_from_first(x)
        self.streams[tower].write(ids, x)
        if self.auto:
            self.reservoirs[tower].write(ids, x)

    def _learn_from_first(self, x: Tensor | None = None) -> None:
        """Learn what codes mean from the first rows of a warm start, before any is hashed."""
        rows = [stream.gathering.held() for stream in self.streams.values()]
        seen = [part for part in (*rows, x) if part is not None and len(part)]
        if self.codebook is None or not self.codebook.awaits_warm_start or not seen:
            return
        moments = Moments(seen[0].shape[1], seen[0].device)
        for part in seen:
            moments.add(part.where(torch.isfinite(part).all(1, keepdim=True), 0), torch.isfinite(part).all(1))
        if moments.count:
            self.codebook.learn(moments)

    def exchange(self) -> None:
        """Take over what other ranks have observed since the last exchange."""
        self._learn_from_first()
        for stream in self.streams.values():
            stream.exchange()
        for reservoir in self.reservoirs.values():
            reservoir.exchange()

    def known_checksum(self) -> int:
        """Return a checksum of which samples have codes."""
        checksum = 0
        self._learn_from_first()
        for stream in self.streams.values():
            stream.flush()
            checksum = zlib.crc32(stream.table.marks.numpy().data, checksum)
        return checksum

    def forget(self) -> None:
        """Forget everything, as if nothing had been written."""
        for stream in self.streams.values():
            stream.forget()
        for reservoir in self.reservoirs.values():
            reservoir.forget()
        if self.codebook is not None:
            self.codebook.forget()
        self.bits, self.plan, self._has_chosen = self.max_bits, None, False

    def watch_flips(self) -> None:
        """Count the bits that flip between observations of a sample from now on, until the epoch ends."""
        for stream in self.streams.values():
            stream.watch_flips()

    def take_flips(self) -> float | None:
        """Return the fraction of bits that flipped between observations since the last call, on all ranks."""
        mine = torch.stack([stream.take_flips() for stream in self.streams.values()]).sum(0)
        flipped, bits = (ranks.add_up(mine) if ranks.is_distributed() else mine).tolist()
        return flipped / bits if bits else None

    def end_epoch(self, epoch: int) -> None:
        """Learn from this epoch how to make the next codes, and let "auto" choose their length."""
        self._learn_from_first()
        for stream in self.streams.values():
            stream.end_epoch()
        if self.auto:
            self._choose_bits(epoch)
        if self.codebook is not None:
            self._turn(self.codebook, epoch)
        if ranks.world()[0] == 0 and not self._warned_of_collapse:
            self._warned_of_collapse = any(stream.has_collapsed for stream in self.streams.values())
            if self._warned_of_collapse:
                logger.warning(
                    "the embeddings have collapsed: those of the last epoch are almost the same for all samples, so no "
                    "negative is harder than another. Lower the learning rate, warm it up longer, or check loss and "
                    "data."
                )

    def _turn(self, codebook: Codebook, epoch: int) -> None:
        """Search what was written, and learn what to write from what was seen."""
        streams = [stream for stream in self.streams.values() if isinstance(stream, ScalarStream)]
        sums = [part for part in [stream.take_sums() for stream in streams] if part is not None]
        for stream in streams:
            stream.settle()
        codebook.turn()
        if epoch > 0 and sums and float(sum(part[-1, -1] for part in sums)) > 0:
            codebook.learn(Moments.of(torch.stack(sums).sum(0)))
            for stream in streams:
                stream.turn()

    def _choose_bits(self, epoch: int) -> None:
        """Shorten or lengthen the prefix to search, as the embeddings of the last epoch suggest."""
        usable = torch.stack([reservoir.end_epoch() for reservoir in self.reservoirs.values()]).all(0)
        places = usable.nonzero().flatten()
        if len(places) < min(self._pairing.num_samples, MIN_ROWS):  # too few samples were observed
            return

        def chosen() -> list[Tensor]:
            self.plan = self._plan_bits(places)
            return [torch.tensor(self.plan.bits)]

        before = self.bits
        self.bits = int(ranks.from_first(chosen)[0])  # predicted once: ranks may round differently
        if self.plan is not None and (self.bits != before or not self._has_chosen):
            logger.info("bits for epoch %d: %s.", epoch, self.plan.reason)
        self._has_chosen = True
        if self.plan is not None and not self.plan.meets_target and not self._warned_of_target:
            self._warned_of_target = True
            logger.warning("%s; lower target_overlap or raise max_bits.", self.plan.reason)

    def _plan_bits(self, places: Tensor) -> BitsPlan:
        reservoirs, tables = list(self.reservoirs.values()), list(self.tables.values())
        ids = reservoirs[0].ids[places]
        device = next(iter(self.streams.values())).device
        if device.type != "cuda":
            device = torch.device("cpu")  # others lack float64
        query, reference = (reservoirs[tower].known_rows(places).to(device) for tower in (0, -1))
        query_codes, reference_codes = (tables[tower].codes[ids] for tower in (0, -1))
        return plan_from_codes(
            query,
            reference,
            query_codes,
            reference_codes,
            self._pairing.classes()[ids],
            n=tables[0].num_seen,
            k=self.k,
            target=self.target_overlap,
            current=self.bits if self._has_chosen else None,
        )

    def rows(self, k: int) -> Remembered | None:
        """Return the codes of the samples that have one in every tower, on the device that searches them best."""
        device = search_device(next(iter(self.streams.values())).device, self.bits, k)
        tables = list(self.tables.values())
        ids = torch.stack([table.seen for table in tables]).all(0).nonzero().flatten()
        if len(ids) == 0:
            return None
        query, *reference = (self._prefix(table, ids).to(device) for table in tables)
        return Remembered(ids, query, reference[0] if reference else None, self.scheme)

    def _prefix(self, table: CodeTable, ids: Tensor) -> Tensor:
        """Return the bits in use of some samples."""
        codes = table.codes if len(ids) == len(table) else table.codes[ids]
        bits = self.bits if self.scheme is None else self.scheme.bits
        return codes[:, : bits // 8].contiguous()

    def search(self, rows: range, *found: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """Find hard negatives among codes."""
        return hard_negatives_of(rows, space_of(self.scheme), *found, **options)

    def pairing_codes(self) -> Tensor | None:
        """Return the codes of labelled data, if there are any."""
        tables = list(self.tables.values())
        if len(tables) > 1 or not tables[0].num_seen:
            return None
        codes = self._prefix(tables[0], torch.arange(len(tables[0])))
        return codes if self.scheme is None else self.scheme.signs(codes)

    def num_missing(self, expected: Tensor) -> int:
        """Count the expected samples without a code, less those that were refused for NaN, which was reported."""
        unseen = int((expected & ~next(iter(self.tables.values())).seen).sum())
        return unseen - sum(stream.refused_before for stream in self.streams.values())

    def identity(self) -> dict[str, Any]:
        """Return what must be the same on every rank, and in a state and the sampler that loads it."""
        own: dict[str, Any] = {"bits": "auto" if self.auto else self.bits, "center": self.center}
        own["code"] = "signs" if self.codebook is None else "scalar"
        return own | ({"max_bits": self.max_bits, "target_overlap": self.target_overlap} if self.auto else {})

    def state_dict(self) -> dict[str, Any]:
        """Return codes, rotations and means, and what "auto" has chosen."""
        state: dict[str, Any] = {tower: stream.state_dict() for tower, stream in self.streams.items()}
        if self.codebook is not None:
            state["codebook"] = self.codebook.state_dict()
        if self.auto:
            state["reservoirs"] = {tower: reservoir.state_dict() for tower, reservoir in self.reservoirs.items()}
            plan = None if self.plan is None else asdict(self.plan)
            state["auto"] = {"bits": self.bits, "has_chosen": self._has_chosen, "plan": plan}
        return state

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise a ValueError if `load_state_dict` could not load it."""
        dims = {stream.check_state(state.get(tower)) for tower, stream in self.streams.items()}
        if len(dims) > 1:
            raise states.damaged(f"its towers have the dimensions {' and '.join(map(str, dims))}")
        if self.codebook is not None:
            self.codebook.check_state(states.entry(state, "codebook", dict), *dims)
        for tower, reservoir in self.reservoirs.items():
            reservoir.check_state(states.entry(state, "reservoirs", dict).get(tower), *dims)
        if self.auto:
            if not 0 < states.entry(states.entry(state, "auto", dict), "bits", int) <= self.max_bits:
                raise states.damaged(f"bits in use are {state['auto']['bits']}")
            states.entry(state["auto"], "has_chosen", bool)
            _check_plan(states.optional(state["auto"], "plan", dict))

    def load_state_dict(self, state: dict[str, Any], *, is_own: bool) -> bool:
        """Load a state and return whether all ranks knew what it holds."""
        if self.codebook is not None:
            self.codebook.load_state_dict(state["codebook"])
        is_shared = [stream.load_state_dict(state[tower], is_own=is_own) for tower, stream in self.streams.items()]
        for tower, reservoir in self.reservoirs.items():
            reservoir.load_state_dict(state["reservoirs"][tower])
        if self.auto:
            self.bits, self._has_chosen = state["auto"]["bits"], state["auto"]["has_chosen"]
            self.plan = None if state["auto"]["plan"] is None else BitsPlan(**state["auto"]["plan"])
        return all(is_shared)


def _check_plan(plan: dict[str, Any] | None) -> None:
    try:
        if plan is not None:
            BitsPlan(**plan)
    except TypeError as error:
        raise states.damaged(f"the plan of its bits is another ({error})") from None
