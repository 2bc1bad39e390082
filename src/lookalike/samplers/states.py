"""Check that a saved state fits before any of it is loaded, and warn of what it lacks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger("lookalike")

VERSION = 7


def check_state(state: Any, identity: dict[str, Any], num_batches: int, num_samples: int) -> None:
    """Check everything that does not depend on the kind of sampler.

    Raises:
        ValueError: The state is of another version or sampler, or damaged.
    """
    if not isinstance(state, dict) or not _are_equal(state.get("version"), VERSION):
        found = f"version {state.get('version')}" if isinstance(state, dict) else f"{type(state).__name__}"
        raise ValueError(
            f"the state is not of version {VERSION}, which this lookalike reads, but {found}: start without it, or "
            "install the lookalike that saved it."
        )
    for name, own in identity.items():
        saved = entry(state, "sampler", dict).get(name)
        if not _are_equal(saved, own):
            advice = "with the same labels and the same pairs in same=" if "labels" in name else "as the saved one was"
            raise ValueError(
                f"the state is of another sampler: {name} was {saved!r}, here it is {own!r}; "
                f"build the sampler {advice}."
            )
    for name in ("epoch", "cursor", "rank", "ranks"):
        if entry(state, name, int) < 0:
            raise damaged(f"{name} is negative")
    for name, kind in (("finished", bool), ("follows_observations", bool), ("adjustable", dict), ("kept", dict)):
        entry(state, name, kind)
    if state["cursor"] > num_batches:
        raise damaged(f"cursor is {state['cursor']}, but an epoch has {num_batches} batches")
    if optional(state, "composed", list) is not None:
        _check_composed(state["composed"], num_batches, num_samples)


def check_sizes(state: dict[str, Any], num_shards: int, ids_per_pair: int) -> None:
    """Check that every rank gets a pair of every batch, where a state comes from fewer ranks.

    Raises:
        ValueError: A batch has fewer pairs than there are ranks.
    """
    if state["composed"] is None:
        return
    fewest = int(state["composed"][1].diff().min()) // ids_per_pair
    if fewest < num_shards:
        raise ValueError(
            f"the state's epoch has a batch of {fewest} pairs, too few for {num_shards} ranks; continue on "
            f"{fewest} ranks or fewer until the epoch ends."
        )


def checked_cursor(state: dict[str, Any], position: int | None, num_batches: int) -> int:
    """Return the batch to continue with: the state's, or the caller's `position`.

    Raises:
        ValueError: An epoch has no such position.
    """
    if position is None:
        return num_batches if state["finished"] else int(state["cursor"])
    if not 0 <= position <= num_batches:
        raise ValueError(f"position must be between 0 and {num_batches}, the batches of an epoch, got {position}.")
    return position


def warn_of_lost(state: dict[str, Any]) -> None:
    """Warn that a state lacks what other ranks had observed."""
    logger.warning(
        "the state was saved by rank %d alone: what other ranks had observed in epoch %d is lost, and their samples "
        "have older codes or none. Call synchronize() on every rank before one of them saves, or save the state of "
        "every rank.",
        state["rank"],
        state["epoch"],
    )


def warn_of_differences(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Warn if a state was saved with other settings that may change between epochs."""
    changed = [
        f"{name} was {before.get(name)}, here it is {value}"
        for name, value in now.items()
        if not _are_equal(before.get(name), value)
    ]
    if changed:
        logger.warning("the state was saved with other settings: %s, from the next epoch on.", "; ".join(changed))


def _are_equal(saved: Any, own: Any) -> bool:
    return not isinstance(saved, Tensor) and bool(saved == own)


def entry(state: Any, name: str, kind: type[Any]) -> Any:
    """Return `state[name]`, which must have the given type."""
    found = state.get(name) if isinstance(state, dict) else None
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise damaged(f"{name} is missing or not of type {kind.__name__}")
    return state[name]


def optional(state: Any, name: str, kind: type[Any]) -> Any:
    """Return `state[name]`, which must be present and either None or of the given type."""
    if isinstance(state, dict) and name in state and state[name] is None:
        return None
    return entry(state, name, kind)


def check_tensor(state: Any, name: str, dtype: torch.dtype, shape: Sequence[int]) -> None:
    """Check a tensor of a state."""
    tensor = entry(state, name, Tensor)
    if tensor.dtype != dtype or list(tensor.shape) != list(shape):
        raise damaged(f"{name} is {tensor.dtype} {list(tensor.shape)} instead of {dtype} {list(shape)}")


def damaged(what: str) -> ValueError:
    """Return the error for a damaged state."""
    return ValueError(f"the state is damaged, {what}; load an earlier checkpoint, or start without one.")


def _check_composed(composed: list[Any], num_batches: int, num_samples: int) -> None:
    if len(composed) != 3 or not all(isinstance(part, Tensor) for part in composed):
        raise damaged("its batches are not three tensors")
    ids, offsets, _ = composed
    if ids.ndim != 1 or ids.is_floating_point() or list(offsets.shape) != [num_batches + 1]:
        raise damaged(f"it does not hold {num_batches} batches")
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(ids) or bool((offsets.diff() <= 0).any()):
        raise damaged("its batches do not follow each other")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < num_samples:
        raise damaged(f"its batches hold ids outside 0 to {num_samples - 1}")
