"""Check what `observe` is given, before any of it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lookalike.utils.tensors import as_tensor, check_embeddings, checked_integers

if TYPE_CHECKING:
    from torch import Tensor


def checked_towers(given: dict[str, Any], names: tuple[str, ...], method: str = "observe") -> dict[str, Tensor]:
    """Return the embeddings by tower; a sampler takes all of its towers and no other."""
    if any((x is None) == (name in names) for name, x in given.items()):
        kind, expected = ("paired", "query=... and reference=...") if len(names) > 1 else ("labelled", "embeddings")
        ids = "ids and " if method == "observe" else ""
        raise ValueError(f"{method}() of {kind} data takes {ids}{expected}.")
    return {name: as_tensor(given[name], name) for name in names}


def checked_ids(ids: Any, towers: dict[str, Tensor], num_samples: int) -> Tensor:
    """Return the ids as int64 on the host, one for each row of every tower."""
    numbers = checked_integers("ids", ids).cpu()
    for name, x in towers.items():
        check_embeddings(name, x, len(numbers))
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < num_samples:
        raise ValueError(
            f"ids must be between 0 and {num_samples - 1}, got {int(numbers.min())} to {int(numbers.max())}."
        )
    return numbers
