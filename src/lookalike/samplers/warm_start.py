"""Warm start: compose the first epoch from embeddings that were observed before it, if the model is ready for that."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch

from lookalike.analysis.readiness import DECISIVE_RANK, Readiness, measure_readiness
from lookalike.samplers import states
from lookalike.utils import ranks
from lookalike.utils.checks import Range

if TYPE_CHECKING:
    from lookalike.samplers.composition import Composition
    from lookalike.samplers.memory import Memory
    from lookalike.samplers.pairing import Pairing

logger = logging.getLogger("lookalike")

WarmStartMode = bool | Literal["auto"]
WARM_HARDNESS = 0.5  # in an epoch of nothing but hard batches, a model forgets what is far away; docs/batches.md
LOOKS = 32  # at the bits that flip, in the first epoch
MOST_FLIPS = 0.35  # fraction of the bits that may differ between two observations of a sample; docs/batches.md says why
RISEN = 0.1  # how much more of them than at the first look tell of the learning rate


class WarmStart:
    """Decides whether the first epoch is composed from what was observed before it, and when to give that up.

    Args:
        mode: True always uses it, False never. "auto" uses it if the codes show that the model finds its positives, and
            gives it up for the rest of the epoch if so many bits flip between two observations of a sample that the
            learning rate must be tearing the model apart.
        hardness: The most hardness of an epoch that is composed from codes observed before it.

    Raises:
        ValueError: There is no such mode or hardness.
    """

    def __init__(self, mode: WarmStartMode, hardness: float = WARM_HARDNESS) -> None:
        if mode not in (True, False, "auto"):
            raise ValueError(f'warm_start must be True, False or "auto", got {mode!r}.')
        self.mode: WarmStartMode = "auto" if mode == "auto" else bool(mode)  # 0 and NumPy's False are False, too
        self.hardness = Range(0, 1, with_high=True).check("warm_hardness", hardness)
        self.readiness: Readiness | None = None  # on rank 0, once "auto" has measured it
        self.was_judged = False  # whether there was something to judge
        self.is_used: bool | None = None  # None before the first epoch is composed
        self.flips: list[float] = []  # at each look, the fraction of the bits that differed between observations
        self.looked_before = 0  # the last batch before which the bits that flipped were looked at
        self._state: dict[str, Any] = {}

    @property
    def outcome(self) -> str | None:
        """What became of it: "used", "given up" or "not ready"; None if there was nothing to use, or not yet."""
        if self.is_used or self.looked_before:
            return "used" if self.is_used else "given up"
        return "not ready" if self.is_used is False and self.was_judged else None

    def begin(self, memory: Memory, pairing: Pairing) -> bool:
        """Decide whether the first epoch uses the memory, which otherwise forgets all; every rank calls it."""
        self.flips, self.looked_before = [], 0
        self.was_judged = self.mode == "auto" and memory.has_codes and memory.dim is not None
        if self.mode != "auto" or not memory.has_codes:
            self.is_used = bool(self.mode) and memory.dim is not None
        else:
            self.is_used = bool(ranks.from_first(lambda: [torch.tensor(self._judge(memory, pairing))])[0])
        if self.is_used:
            memory.watch_flips()
        else:
            memory.forget()  # so that training goes on exactly as without a warm start
        return self.is_used

    def _judge(self, memory: Memory, pairing: Pairing) -> bool:
        found = memory.rows(DECISIVE_RANK)
        if found is None:
            return False
        query, reference = found.codes()
        self.readiness = measure_readiness(query, pairing.classes()[found.ids], reference=reference)
        logger.info(
            "warm start: %.0f%% of %d samples have a positive nearer than their %dnd negative: the model is %s.",
            100 * self.readiness.decisive,
            self.readiness.anchors,
            DECISIVE_RANK,
            "ready, and the first epoch is mined"
            if self.readiness.is_ready
            else "not ready, and the first epoch is random",
        )
        return self.readiness.is_ready

    def softened(self, composition: Composition, memory: Memory) -> Composition:
        """Return how to compose the first epoch from a memory: less hard than others, if it holds codes."""
        if not self.is_used or not memory.has_codes:
            return composition
        return replace(composition, hardness=min(composition.hardness, self.hardness))

    def must_stop(self, memory: Memory, batch: int, num_batches: int) -> bool:
        """Return whether to give the warm start up from a batch of the first epoch on; every rank calls it."""
        if not self.is_used or batch <= self.looked_before or batch % max(1, num_batches // LOOKS):
            return False
        flips = memory.take_flips()
        self.flips += [] if flips is None else [flips]
        is_torn = flips is not None and flips > MOST_FLIPS and self.mode == "auto"
        self.looked_before, self.is_used = batch, not is_torn
        self.state_dict()  # one that was handed out before stays up to date
        if is_torn:
            self._report(self.flips[-1])
        return is_torn

    def _report(self, flips: float) -> None:
        if ranks.world()[0] == 0 and flips > self.flips[0] + RISEN:
            logger.warning(
                "%.0f%% of the bits of a code flip between two observations of a sample, up from %.0f%% when the epoch "
                "began: the learning rate seems too high for this model. The rest of the first epoch is random; lower "
                "the learning rate or warm it up longer.",
                100 * flips,
                100 * self.flips[0],
            )
        elif ranks.world()[0] == 0:  # as when the weights had hardly moved: augmentation or dropout is why
            logger.info("two views of a sample differ in %.0f%% of the bits: the first epoch is random.", 100 * flips)

    def identity(self) -> dict[str, Any]:
        """Return what must be the same on every rank."""
        return {"warm_start": self.mode, "warm_hardness": self.hardness}

    def state_dict(self) -> dict[str, Any]:
        """Return what was decided, as a dictionary that stays up to date: loaders request it before saving."""
        self._state.update(
            is_used=self.is_used,
            was_judged=self.was_judged,
            looked_before=self.looked_before,
            flips=list(self.flips),
        )
        return self._state

    @staticmethod
    def check_state(state: Any) -> None:
        """Raise a ValueError if `load_state_dict` could not load it."""
        states.optional(state, "is_used", bool)
        states.entry(state, "was_judged", bool)
        if states.entry(state, "looked_before", int) < 0:
            raise states.damaged("looked_before is negative")
        if not all(isinstance(each, float) for each in states.entry(state, "flips", list)):
            raise states.damaged("flips are not numbers")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with a state that `check_state` has passed."""
        self.is_used, self.was_judged = state["is_used"], state["was_judged"]
        self.looked_before, self.flips = state["looked_before"], list(state["flips"])
        self.state_dict()
