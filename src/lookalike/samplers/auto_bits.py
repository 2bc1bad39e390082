"""Let "auto" choose codes at the end of every epoch, how many bits and of which kind, from floats of a few samples."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from lookalike.analysis.bits import BitsPlan, needed_rows
from lookalike.samplers import states
from lookalike.samplers.reservoir import Reservoir
from lookalike.utils import ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from lookalike.samplers.pairing import Pairing

logger = logging.getLogger("lookalike")

KINDS = ("signs", "scalar")  # of equally long codes that reach the target, signs are searched faster


class Sampled(NamedTuple):
    """Embeddings of the last epoch; row i of every field belongs to the same sample or pair."""

    ids: Tensor  # int64 [m]
    queries: Tensor  # float32 [m, dim]
    references: Tensor  # float32 [m, dim]; the queries again where there is one tower
    labels: Tensor  # int64 [m]


class AutoBits:
    """What "auto" remembers and has chosen.

    Args:
        pairing: The data set.
        seed: Decides which samples keep their floats for one epoch.
    """

    def __init__(self, pairing: Pairing, *, seed: int) -> None:
        self._pairing = pairing
        self.reservoirs = {tower: Reservoir(pairing.num_samples, seed=seed) for tower in pairing.towers}
        self.plan: BitsPlan | None = None  # the last, on rank 0
        self.has_chosen = False
        self._warned_of_target = False

    def end_epoch(self, device: torch.device) -> Sampled | None:
        """Return what was kept of the epoch, on the device; None if it is too little to predict from."""
        reservoirs = list(self.reservoirs.values())
        places = torch.stack([reservoir.end_epoch() for reservoir in reservoirs]).all(0).nonzero().flatten()
        if len(places) < needed_rows(self._pairing.num_samples):
            return None
        ids = reservoirs[0].ids[places]
        sides = [reservoir.known_rows(places).to(device) for reservoir in reservoirs]
        return Sampled(ids, sides[0], sides[-1], self._pairing.classes()[ids])

    def choose(self, epoch: int, plans: Callable[[], list[BitsPlan]], before: tuple[str, int]) -> tuple[str, int]:
        """Choose a kind and a length of codes; every rank calls it and returns the same.

        Args:
            epoch: The epoch that is composed next.
            plans: Predicts for each kind that may be chosen. Called on rank 0 alone: ranks may round differently.
            before: Kind and length that are in use.
        """

        def chosen() -> list[Tensor]:
            self.plan = best_plan(plans())
            return [torch.tensor([KINDS.index(self.plan.code), self.plan.bits])]

        kind, bits = ranks.from_first(chosen)[0].tolist()
        if self.plan is not None and ((KINDS[kind], bits) != before or not self.has_chosen):
            logger.info("bits for epoch %d: %s.", epoch, self.plan.reason)
        self.has_chosen = True
        if self.plan is not None and not self.plan.meets_target and not self._warned_of_target:
            self._warned_of_target = True
            logger.warning("%s; lower target_overlap or raise max_bits.", self.plan.reason)
        return KINDS[kind], bits

    def forget(self) -> None:
        """Forget everything, as if nothing had been written."""
        for reservoir in self.reservoirs.values():
            reservoir.forget()
        self.plan, self.has_chosen = None, False

    def state_dict(self, bits: int) -> dict[str, Any]:
        """Return the floats that are kept, the last choice, and the bits in use."""
        plan = None if self.plan is None else asdict(self.plan)
        return {
            "reservoirs": {tower: reservoir.state_dict() for tower, reservoir in self.reservoirs.items()},
            "auto": {"bits": bits, "has_chosen": self.has_chosen, "plan": plan},
        }

    def check_state(self, state: Any, dim: int | None, max_bits: int) -> None:
        """Raise a ValueError if `load_state_dict` could not load it."""
        for tower, reservoir in self.reservoirs.items():
            reservoir.check_state(states.entry(state, "reservoirs", dict).get(tower), dim)
        if not 0 < states.entry(states.entry(state, "auto", dict), "bits", int) <= max_bits:
            raise states.damaged(f"bits in use are {state['auto']['bits']}")
        states.entry(state["auto"], "has_chosen", bool)
        plan = states.optional(state["auto"], "plan", dict)
        try:
            if plan is not None:
                BitsPlan(**plan)
        except TypeError as error:
            raise states.damaged(f"the plan of its bits is another ({error})") from None

    def load_state_dict(self, state: dict[str, Any]) -> int:
        """Load a state that `check_state` has passed, and return the bits in use."""
        for tower, reservoir in self.reservoirs.items():
            reservoir.load_state_dict(state["reservoirs"][tower])
        self.has_chosen = state["auto"]["has_chosen"]
        self.plan = None if state["auto"]["plan"] is None else BitsPlan(**state["auto"]["plan"])
        bits: int = state["auto"]["bits"]
        return bits


def best_plan(plans: list[BitsPlan]) -> BitsPlan:
    """Return the plan of the fewest bits among those that reach the target or, if none does, of the largest overlap."""
    enough = [plan for plan in plans if plan.meets_target]
    if enough:
        return min(enough, key=lambda plan: plan.bits)  # the first of equals
    return max(plans, key=lambda plan: plan.predicted(plan.bits)[0])
