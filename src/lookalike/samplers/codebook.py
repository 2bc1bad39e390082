"""What codes of several bits mean in an epoch: hashers that are learned from the embeddings of the epoch before."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lookalike.hashing import ScalarHasher
from lookalike.samplers import states
from lookalike.utils import ranks

if TYPE_CHECKING:
    from lookalike.hashing.moments import Moments


class Codebook:
    """The hashers of all towers: codes of queries and references are compared, so they share one.

    Codes of different statistics mean different things. All codes that an epoch writes have one hasher, `written`, and
    all that the composition of the epoch searched have another, `searched`. Either is None as long as there are no
    statistics: sign codes take the place of the others then. Statistics of a model that training has hardly begun to
    change are harmful, so the first epoch writes sign codes, unless the training set was embedded before it.

    Args:
        bits: Length of the codes, at most.
        seed: Seed of the rotations.
    """

    def __init__(self, bits: int, *, seed: int) -> None:
        self.bits, self.seed = bits, seed
        self.written: ScalarHasher | None = None
        self.searched: ScalarHasher | None = None
        self.has_begun = False  # whether the first epoch has: what is observed before it is a warm start
        self.is_early = True  # whether the first epoch has not ended
        self.sees_everything = False  # whether each rank observes what all ranks embed
        self._state: dict[str, Any] = {}

    @property
    def shares(self) -> int:
        """How many ranks share the observations of an epoch."""
        return 1 if self.sees_everything else ranks.world()[1]

    @property
    def awaits_warm_start(self) -> bool:
        """Whether the first rows to come, before training, decide what codes mean.

        Ranks that see different rows cannot decide alike, and write sign codes.
        """
        return not self.has_begun and self.written is None and self.shares == 1

    def learn(self, moments: Moments, bits: int | None = None) -> None:
        """Write codes by these statistics from now on; every rank calls it with the same ones.

        Args:
            moments: The statistics.
            bits: Length of the codes, if they should be shorter.
        """
        length, seed = bits or self.bits, self.seed

        def fitted() -> list[Tensor]:
            return [_to_bytes(ScalarHasher.of_moments(moments, length, seed=seed).state_dict())]

        self.written = _hasher_of(_from_bytes(ranks.from_first(fitted)[0]))
        self._update_state()

    def write_signs(self) -> None:
        """Write sign codes from now on."""
        self.written = None
        self._update_state()

    def turn(self, epoch: int) -> None:
        """Let the composition of an epoch search what was written."""
        self.searched, self.has_begun, self.is_early = self.written, True, epoch == 0
        self._update_state()

    def forget(self) -> None:
        """Forget all statistics."""
        self.written = self.searched = None
        self._update_state()

    def state_dict(self) -> dict[str, Any]:
        """Return both hashers, in a dictionary that stays up to date."""
        self._state.setdefault("written", None)
        self._update_state()
        return self._state

    def _update_state(self) -> None:
        if self._state:
            same = self.searched is self.written
            self._state.update(
                written=None if self.written is None else self.written.state_dict(),
                searched="written" if same else None if self.searched is None else self.searched.state_dict(),
                has_begun=self.has_begun,
                is_early=self.is_early,
            )

    def check_state(self, state: Any, dim: int | None) -> None:
        """Raise a ValueError if `load_state_dict` could not load it."""
        for name in ("has_begun", "is_early"):
            states.entry(state, name, bool)
        for name in ("written", "searched"):
            found = state.get(name, "missing")
            if found is None or (name == "searched" and isinstance(found, str) and found == "written"):
                continue
            if not isinstance(found, dict) or states.entry(found, "dim", int) != dim:
                raise states.damaged(f"its {name} codes are not of the dimension of its embeddings")
            if states.entry(found, "bits", int) > self.bits or "scheme" not in found:
                raise states.damaged(f"its {name} codes are longer than {self.bits} bits, or have no scheme")
            try:
                _hasher_of(found)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise states.damaged(f"its {name} codes cannot be read ({error})") from None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state that `check_state` has passed."""
        self.has_begun, self.is_early = state["has_begun"], state["is_early"]
        self.written = None if state["written"] is None else _hasher_of(state["written"])
        if state["searched"] == "written":
            self.searched = self.written
        else:
            self.searched = None if state["searched"] is None else _hasher_of(state["searched"])
        self._update_state()


def _hasher_of(state: dict[str, Any]) -> ScalarHasher:
    hasher = ScalarHasher(state["dim"], state["bits"])
    hasher.load_state_dict(state)
    return hasher


def _to_bytes(state: dict[str, Any]) -> Tensor:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _from_bytes(raw: Tensor) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(raw.numpy().tobytes()), weights_only=True, map_location="cpu")
    return state
