"""Checks that a saved state fits, all of them made before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 3


def check_state(state: Any, identity: dict[str, Any], num_batches: int, num_samples: int) -> None:
    """Check everything that does not depend on the kind of sampler.

    Raises:
        ValueError: The state is of another version or sampler, or damaged.
    """
    if not isinstance(state, dict) or state.get("version") != VERSION:
        version = state.get("version") if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"the state has version {version}, this lookalike reads {VERSION}.")
    for name, own in identity.items():
        saved = entry(state, "sampler", dict).get(name)
        if saved != own:
            raise ValueError(
                f"the state is of another sampler: {name} was {saved!r}, here it is {own!r}; "
                "build the sampler as the saved one was."
            )
    for name in ("epoch", "cursor", "rank"):
        if entry(state, name, int) < 0:
            raise damaged(f"{name} is negative")
    for name, kind in (("finished", bool), ("follows_observations", bool), ("adjustable", dict), ("kept", dict)):
        entry(state, name, kind)
    if state["cursor"] > num_batches:
        raise damaged(f"cursor is {state['cursor']}, but an epoch has {num_batches} batches")
    if state["composed"] is not None:
        _check_composed(entry(state, "composed", list), num_batches, num_samples)


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Say what has changed, one clause per name."""
    return [
        f"{name} was {before.get(name)}, here it is {value}" for name, value in now.items() if before.get(name) != value
    ]


def entry(state: Any, name: str, kind: type[Any]) -> Any:
    """Return `state[name]`, which must be of a type."""
    if not isinstance(state, dict) or not isinstance(state.get(name), kind):
        raise damaged(f"{name} is missing or is no {kind.__name__}")
    return state[name]


def check_tensor(state: Any, name: str, dtype: torch.dtype, shape: Sequence[int]) -> None:
    """Check a tensor of a state."""
    tensor = entry(state, name, Tensor)
    if tensor.dtype != dtype or list(tensor.shape) != list(shape):
        raise damaged(f"{name} is {tensor.dtype} {list(tensor.shape)} instead of {dtype} {list(shape)}")


def damaged(what: str) -> ValueError:
    """Return the error for a state that no sampler has written."""
    return ValueError(f"the state is damaged, {what}; load an earlier checkpoint, or start without one.")


def _check_composed(composed: list[Any], num_batches: int, num_samples: int) -> None:
    if len(composed) != 3 or not all(isinstance(part, Tensor) for part in composed):
        raise damaged("its batches are not three tensors")
    ids, offsets, _ = composed
    if len(offsets) != num_batches + 1 or int(offsets[0]) != 0 or int(offsets[-1]) != len(ids):
        raise damaged(f"it does not hold {num_batches} batches")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < num_samples:
        raise damaged(f"its batches hold ids outside 0 to {num_samples - 1}")
