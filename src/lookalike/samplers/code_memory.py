"""Remember the codes of the whole training set by sample id: the paper's method."""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from lookalike.analysis.bits import plan_from_codes, plan_scalar
from lookalike.hashing.moments import Moments
from lookalike.negatives.hard import hard_negatives_of
from lookalike.negatives.spaces import space_of
from lookalike.samplers import states
from lookalike.samplers.auto_bits import AutoBits
from lookalike.samplers.codebook import Codebook
from lookalike.samplers.memory import Memory, Remembered
from lookalike.samplers.scalar_stream import ScalarStream
from lookalike.samplers.streams import CodeStream
from lookalike.search import search_device
from lookalike.utils import ranks
from lookalike.utils.checks import check_choice, check_code_length, checked_bits, checked_positive

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.analysis.bits import BitsPlan
    from lookalike.codes import CodeTable
    from lookalike.hashing import Scheme
    from lookalike.samplers.auto_bits import Sampled
    from lookalike.samplers.pairing import Pairing
    from lookalike.samplers.reservoir import Reservoir

logger = logging.getLogger("lookalike")

TOGETHER = 1 << 16  # rows that are counted at a time: they are copied

Code = Literal["signs", "scalar", "auto"]


class CodeMemory(Memory):
    """Codes of bits / 8 bytes per sample and tower, written as the embeddings stream by.

    Args:
        pairing: The data set.
        bits: Length of the codes, or "auto": chosen at the end of every epoch.
        code: "signs"; "scalar": codes of several bits per dimension; or "auto": whichever takes fewer bits.
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
        if isinstance(bits, str) and bits != "auto":
            raise ValueError(f'bits must be a number or "auto", got {bits!r}.')
        check_choice("code", code, get_args(Code))
        if code == "auto" and bits != "auto":
            raise ValueError(f'code="auto" chooses what takes fewer bits, so it needs bits="auto", got {bits}.')
        if not 0 < target_overlap <= 1:
            raise ValueError(f"target_overlap must be above 0 and at most 1, got {target_overlap}.")
        self.bits = self.max_bits = checked_bits(max_bits if isinstance(bits, str) else bits)
        check_code_length(code, self.bits)
        self.code = code
        self.target_overlap, self.k, self.center = target_overlap, checked_positive("k", k), center
        self._pairing, self._seed = pairing, seed
        self.codebook = None if code == "signs" else Codebook(self.bits, seed=seed)
        n = pairing.num_samples
        self.streams: dict[str, CodeStream] = {tower: self._stream(n, seed) for tower in pairing.towers}
        self.auto = AutoBits(pairing, seed=seed) if bits == "auto" else None
        self._warned_of_collapse = False

    def _stream(self, n: int, seed: int) -> CodeStream:
        if self.codebook is None:
            return CodeStream(n, self.bits, seed=seed, center=self.center)
        shown = int(self._pairing.expected().sum())
        return ScalarStream(n, self.bits, seed=seed, center=self.center, codebook=self.codebook, shown=shown)

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
        return codes + sum(reservoir.nbytes for reservoir in self._reservoirs.values())

    @property
    def _reservoirs(self) -> dict[str, Reservoir]:
        return {} if self.auto is None else self.auto.reservoirs

    @property
    def plan(self) -> BitsPlan | None:
        """The last choice of "auto", on rank 0."""
        return None if self.auto is None else self.auto.plan

    def look_at(self, towers: dict[str, Tensor]) -> None:
        """Decide what the codes of a warm start mean, before the first of them is made."""
        if self.codebook is None:
            return
        self.codebook.sees_everything = self.sees_everything
        hands_over = (self.streams[tower].gathering.hands_over_for(x) for tower, x in towers.items())
        if self.codebook.awaits_warm_start and any(hands_over):
            self._learn_from_first(*towers.values())

    def write(self, tower: str, ids: Tensor, x: Tensor) -> None:
        """Hash embeddings and remember their codes."""
        self.streams[tower].write(ids, x)
        if self.auto is not None:
            self.auto.reservoirs[tower].write(ids, x)

    def _learn_from_first(self, *more: Tensor) -> None:
        """Learn what codes mean from the first rows of a warm start, set aside and `more`, before any is hashed."""
        rows = [stream.gathering.held() for stream in self.streams.values()]
        seen = [part for part in (*rows, *more) if part is not None and len(part)]
        if self.codebook is None or not self.codebook.awaits_warm_start or not seen:
            return
        moments = Moments(seen[0].shape[1], seen[0].device)
        for part in (few for whole in seen for few in torch.split(whole, TOGETHER)):
            finite = torch.isfinite(part).all(1)
            moments.add(part.where(finite[:, None], 0), finite)
        if moments.count:
            self.codebook.learn(moments)

    def exchange(self) -> None:
        """Take over what other ranks have observed since the last exchange."""
        self._learn_from_first()
        for stream in self.streams.values():
            stream.exchange()
        for reservoir in self._reservoirs.values():
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
        if self.auto is not None:
            self.auto.forget()
        if self.codebook is not None:
            self.codebook.forget()
        self.bits = self.max_bits

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
        sampled = None if self.auto is None else self.auto.end_epoch(self._device)
        if self.codebook is not None:
            self._turn(self.codebook, epoch, sampled)
        elif self.auto is not None and sampled is not None:
            codes = [table.codes[sampled.ids] for table in self.tables.values()]
            current = self.bits if self.auto.has_chosen else None
            before = "signs", self.bits
            _, self.bits = self.auto.choose(epoch, lambda: [self._plan_signs(sampled, codes, current)], before)
        if ranks.world()[0] == 0 and not self._warned_of_collapse:
            self._warned_of_collapse = any(stream.has_collapsed for stream in self.streams.values())
            if self._warned_of_collapse:
                logger.warning(
                    "the embeddings have collapsed: those of the last epoch are almost the same for all samples, so no "
                    "negative is harder than another. Lower the learning rate, warm it up longer, or check loss and "
                    "data."
                )

    def _turn(self, codebook: Codebook, epoch: int, sampled: Sampled | None) -> None:
        """Search what was written, and learn what to write from what was seen."""
        streams = [stream for stream in self.streams.values() if isinstance(stream, ScalarStream)]
        sums = [part for part in [stream.take_sums() for stream in streams] if part is not None]
        for stream in streams:
            stream.settle()
        codebook.turn(epoch)
        bits_of_signs = self.bits if codebook.written is None else self.max_bits
        if epoch > 0 and sums and float(sum(part[-1, -1] for part in sums)) > 0:
            moments = Moments.of(torch.stack(sums).sum(0))
            kind, bits = "scalar", self.max_bits
            if self.auto is not None:
                kind, bits = self._choose_kind(self.auto, codebook, epoch, sampled, moments)
            if kind == "scalar":
                codebook.learn(moments, bits)
                bits_of_signs = self.max_bits  # none are chosen yet, and all find the most
            else:
                codebook.write_signs()
                bits_of_signs = bits
            for stream in streams:
                stream.turn()
        self.bits = bits_of_signs if codebook.searched is None else codebook.searched.bits

    def _choose_kind(
        self, auto: AutoBits, codebook: Codebook, epoch: int, sampled: Sampled | None, moments: Moments
    ) -> tuple[str, int]:
        """Choose what the next epoch writes."""
        written = codebook.written
        before = ("signs", self.bits) if written is None else ("scalar", written.bits)
        current = {before[0]: before[1]} if auto.has_chosen else {}
        if sampled is None:
            return before if auto.has_chosen else ("scalar", self.max_bits)

        def plans() -> list[BitsPlan]:
            scalar = plan_scalar(
                sampled.queries,
                sampled.references,
                moments,
                sampled.labels,
                max_bits=self.max_bits,
                seed=self._seed,
                **self._aims(current.get("scalar")),
            )
            if self.code == "scalar":
                return [scalar]
            sides = sampled.queries, sampled.references
            hashers = [stream.hasher for stream in self.streams.values() if stream.hasher is not None]
            codes = [hasher.encode(side) for hasher, side in zip((hashers[0], hashers[-1]), sides, strict=True)]
            return [self._plan_signs(sampled, codes, current.get("signs")), scalar]

        return auto.choose(epoch, plans, before)

    def _plan_signs(self, sampled: Sampled, codes: list[Tensor], current: int | None) -> BitsPlan:
        """Choose a prefix of sign codes, of each tower."""
        sides = sampled.queries, sampled.references, codes[0], codes[-1], sampled.labels
        return plan_from_codes(*sides, **self._aims(current))

    def _aims(self, current: int | None) -> dict[str, Any]:
        num_seen = next(iter(self.tables.values())).num_seen
        return {"n": num_seen, "k": self.k, "target": self.target_overlap, "current": current}

    @property
    def _device(self) -> torch.device:
        """Where plans are made: where the embeddings come from, if float64 is known there."""
        device = next(iter(self.streams.values())).device
        return device if device.type == "cuda" else torch.device("cpu")

    def rows(self, k: int) -> Remembered | None:
        """Return the codes of the samples that have one in every tower, on the device that searches them best."""
        device = search_device(next(iter(self.streams.values())).device, self.bits, k, self.scheme)
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
        own: dict[str, Any] = {"bits": self.max_bits, "center": self.center, "code": self.code}
        if self.auto is None:
            return own
        return own | {"bits": "auto", "max_bits": self.max_bits, "target_overlap": self.target_overlap}

    def state_dict(self) -> dict[str, Any]:
        """Return codes, rotations and means, and what "auto" has chosen."""
        state: dict[str, Any] = {tower: stream.state_dict() for tower, stream in self.streams.items()}
        if self.codebook is not None:
            state["codebook"] = self.codebook.state_dict()
        return state if self.auto is None else state | self.auto.state_dict(self.bits)

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise a ValueError if `load_state_dict` could not load it."""
        dims = {stream.check_state(state.get(tower)) for tower, stream in self.streams.items()}
        if len(dims) > 1:
            raise states.damaged(f"its towers have the dimensions {' and '.join(map(str, dims))}")
        if self.codebook is not None:
            self.codebook.check_state(states.entry(state, "codebook", dict), *dims)
        if self.auto is not None:
            self.auto.check_state(state, dims.pop(), self.max_bits)

    def load_state_dict(self, state: dict[str, Any], *, is_own: bool) -> bool:
        """Load a state and return whether all ranks knew what it holds."""
        if self.codebook is not None:
            self.codebook.load_state_dict(state["codebook"])
        is_shared = [stream.load_state_dict(state[tower], is_own=is_own) for tower, stream in self.streams.items()]
        if self.auto is not None:
            self.bits = self.auto.load_state_dict(state)
        return all(is_shared)
