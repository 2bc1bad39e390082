"""Warm start: compose the first epoch from embeddings that were observed before it, if the model is ready for that."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

import torch

from lookalike.analysis.readiness import DECISIVE_RANK, Readiness, measure_readiness
from lookalike.utils import ranks

if TYPE_CHECKING:
    from lookalike.samplers.memory import Memory
    from lookalike.samplers.pairing import Pairing

logger = logging.getLogger("lookalike")

WarmStartMode = bool | Literal["auto"]
LOOKS = 32  # at the bits that flip, in the first epoch
MOST_FLIPS = 0.25  # of the bits, between two looks at a sample, before hard batches are given up for the epoch


class WarmStart:
    """Decides whether the first epoch is composed from what was observed before it, and when to give that up.

    Args:
        mode: True always uses it, False never. "auto" uses it if the codes show that the model finds its positives, and
            gives it up for the rest of the epoch once too many bits flip between two looks at a sample: then the model
            is moving faster than its neighbourhoods last.
    """

    def __init__(self, mode: WarmStartMode) -> None:
        if mode not in (True, False, "auto"):
            raise ValueError(f'warm_start must be True, False or "auto", got {mode!r}.')
        self.mode = mode
        self.readiness: Readiness | None = None  # on rank 0, if it was measured
        self.is_used: bool | None = None  # None before the first epoch is composed
        self.flips: list[float] = []

    def begin(self, memory: Memory, pairing: Pairing) -> bool:
        """Decide whether the first epoch uses the memory; every rank calls it."""
        if self.mode != "auto" or not memory.has_codes:
            self.is_used = bool(self.mode) and memory.dim is not None
        else:
            self.is_used = bool(ranks.from_first(lambda: [torch.tensor(self._judge(memory, pairing))])[0])
        memory.take_flips()
        return self.is_used

    def _judge(self, memory: Memory, pairing: Pairing) -> bool:
        found = memory.rows(max(DECISIVE_RANK, 1))
        if found is None:
            return False
        self.readiness = measure_readiness(found.query, pairing.classes()[found.ids], reference=found.reference)
        beats = self.readiness.beats[DECISIVE_RANK]
        logger.info(
            "warm start: in %.0f%% of %d samples a positive is nearer than the %dnd negative, so the first epoch is %s.",
            100 * beats,
            self.readiness.anchors,
            DECISIVE_RANK,
            "composed of hard negatives" if self.readiness.is_ready else "random",
        )
        return self.readiness.is_ready

    def look(self, memory: Memory) -> bool:
        """Look at the bits that have flipped; return whether to give the warm start up. Every rank calls it."""
        flips = memory.take_flips()
        if flips is None:
            return False
        self.flips.append(flips)
        if self.mode == "auto" and flips > MOST_FLIPS:
            self.is_used = False
        return not self.is_used
