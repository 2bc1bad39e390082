"""Checks of what `observe` is given, made before any of it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lookalike.utils.tensors import as_tensor, check_embeddings, checked_integers

if TYPE_CHECKING:
    from torch import Tensor


def checked_towers(given: dict[str, Any], *, paired: bool) -> dict[str, Tensor]:
    """Return the embeddings by tower: query and reference for pairs, else one tower."""
    names = ("query", "reference") if paired else ("embeddings",)
    if any((x is None) == (name in names) for name, x in given.items()):
        expected = "query=... and reference=..." if paired else "embeddings"
        raise ValueError(f"observe() of {'paired' if paired else 'labelled'} data takes ids and {expected}.")
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
