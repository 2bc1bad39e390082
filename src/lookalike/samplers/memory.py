"""What a sampler remembers of the embeddings from one epoch to the next: nothing, floats or codes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from lookalike.utils.lists import Lists, lists_among

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from lookalike.negatives import Filters


class Remembered(NamedTuple):
    """Rows to search, of the samples that have one in every tower."""

    ids: Tensor  # int64 [m], ascending
    query: Tensor  # [m, width]
    reference: Tensor | None  # [m, width]; None where queries are searched among themselves


class Mined(NamedTuple):
    """The hard negatives of every sample, nearest first."""

    indices: Tensor  # int64 [n, k], -1 for none
    values: Tensor  # distances or similarities, [n, k]


class Memory(Protocol):
    """What the next epoch is composed from."""

    mine: Callable[..., tuple[Tensor, Tensor]]
    """`hard_negatives` or its exact counterpart, whichever fits the rows."""

    @property
    def dim(self) -> int | None:
        """Dimension of the embeddings; None as long as there were none."""

    @property
    def nbytes(self) -> int:
        """Memory that is kept between epochs."""

    def write(self, tower: str, ids: Tensor, x: Tensor) -> None:
        """Remember embeddings `[len(ids), dim]` of one tower."""

    def exchange(self) -> None:
        """Bring all ranks to the same knowledge; every rank calls it."""

    def end_epoch(self, epoch: int) -> None:
        """Prepare what was written for the composition of an epoch."""

    def rows(self, k: int) -> Remembered | None:
        """Return what to search for k neighbours each, where it is searched best; None if nothing is known."""

    def pairing_codes(self) -> Tensor | None:
        """Return codes of all samples that tell near positives from far ones, uint8 [n, bytes], if there are any."""

    def num_missing(self, expected: Tensor) -> int:
        """Count the expected samples, bool [n], that were never observed and have no excuse."""

    def identity(self) -> dict[str, Any]:
        """Return what must be the same on every rank, and in a state and the sampler that loads it."""

    def state_dict(self) -> dict[str, Any]:
        """Return the memory as tensors that stay up to date, because loaders ask ahead of what they save."""

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise a ValueError if `load_state_dict` could not load it."""

    def load_state_dict(self, state: dict[str, Any], *, is_own: bool) -> bool:
        """Load a state and return whether all of it could be used.

        A state of another rank holds observations which that rank will contribute to the next exchange itself.
        """


def mine(memory: Memory, n: int, labels: Tensor, k: int, filters: Filters, exclude: Lists | None) -> Mined | None:
    """Find the hard negatives of all n samples; None if the memory is empty.

    Args:
        memory: What is known of them.
        n: Number of samples.
        labels: int64 [n].
        k: Negatives per sample.
        filters: Which neighbours count; its own `exclude` is ignored in favour of
        exclude: ids to exclude as negatives, per sample.
    """
    found = memory.rows(k)
    if found is None:
        return None
    ids, query, reference = found
    everyone = len(ids) == n
    if exclude is not None and not everyone:
        exclude = lists_among(exclude, ids, ids, n)
    options = {} if reference is None else {"reference": reference, "reference_labels": labels[ids]}
    values, indices = memory.mine(query, labels[ids], k, filters=replace(filters, exclude=exclude), **options)
    values, indices = values.cpu(), indices.cpu()
    if everyone:
        return Mined(indices, values)
    all_indices, all_values = torch.full((n, k), -1), torch.full((n, k), -1, dtype=values.dtype)
    all_indices[ids] = torch.where(indices >= 0, ids[indices], -1)
    all_values[ids] = values
    return Mined(all_indices, all_values)


class NoMemory:
    """Remembers nothing: every epoch is random."""

    dim: int | None = None
    nbytes = 0

    @staticmethod
    def mine(*_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Never called: there are no rows."""
        raise AssertionError

    def write(self, tower: str, ids: Tensor, x: Tensor) -> None:
        """Drop the embeddings."""

    def exchange(self) -> None:
        """Exchange nothing."""

    def end_epoch(self, epoch: int) -> None:
        """Prepare nothing."""

    def rows(self, k: int) -> Remembered | None:  # noqa: ARG002 - as `Memory` has it
        """Know nothing."""
        return None

    def pairing_codes(self) -> Tensor | None:
        """Know nothing."""
        return None

    def num_missing(self, expected: Tensor) -> int:  # noqa: ARG002 - as `Memory` has it
        """Miss nothing."""
        return 0

    def identity(self) -> dict[str, Any]:
        """Depend on nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Save nothing."""
        return {}

    def check_state(self, state: dict[str, Any]) -> None:
        """Accept anything."""

    def load_state_dict(self, state: dict[str, Any], *, is_own: bool) -> bool:  # noqa: ARG002 - as `Memory` has it
        """Load nothing, completely."""
        return True
