"""The memory of a sampler: what it keeps of the embeddings from one epoch to the next; nothing, floats or codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lookalike.hashing import ScalarCodes

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.hashing import Scheme


class Remembered(NamedTuple):
    """Rows to search, of the samples that have one in every tower."""

    ids: Tensor  # int64 [m], ascending
    query: Tensor  # [m, width]
    reference: Tensor | None  # [m, width]; None where queries are searched among themselves
    scheme: Scheme | None = None  # what reads codes of several bits; None for sign codes and floats

    def codes(self) -> tuple[Tensor | ScalarCodes, Tensor | ScalarCodes | None]:
        """Return query and reference as codes that know what they mean."""
        if self.scheme is None:
            return self.query, self.reference
        reference = None if self.reference is None else ScalarCodes(self.reference, self.scheme)
        return ScalarCodes(self.query, self.scheme), reference


class Memory:
    """What the next epoch is composed from. This one remembers nothing, for random batches."""

    has_codes = False
    """Whether rows are codes, which a guard can compare."""
    sees_everything = False
    """Whether each rank observes what all ranks embed; the sampler says so."""

    @property
    def dim(self) -> int | None:
        """Dimension of the embeddings; None before there are any."""
        return None

    @property
    def nbytes(self) -> int:
        """Memory that is kept between epochs."""
        return 0

    def look_at(self, towers: dict[str, Tensor]) -> None:
        """Learn what it takes to write embeddings, from those of all towers, before any of them is written."""

    def write(self, tower: str, ids: Tensor, x: Tensor) -> None:
        """Remember embeddings `[len(ids), dim]` of one tower."""

    def exchange(self) -> None:
        """Bring all ranks to the same knowledge; every rank calls it."""

    def known_checksum(self) -> int:
        """Return a checksum of which samples are known, by which ranks find out whether they observe the same."""
        return 0

    def end_epoch(self, epoch: int) -> None:
        """Prepare what was written for the composition of an epoch."""

    def forget(self) -> None:
        """Forget everything, as if nothing had been written."""

    def watch_flips(self) -> None:
        """Count the bits that flip between observations of a sample from now on, until the epoch ends."""

    def take_flips(self) -> float | None:
        """Return the fraction of bits that flipped between observations of a sample since the last call, on all ranks.

        Every rank calls it. None if no sample was seen twice, or no codes are kept.
        """
        return None

    def rows(self, k: int) -> Remembered | None:  # noqa: ARG002 - others use it
        """Return the rows to search for k neighbours each, on the best device for that; None if nothing is known."""
        return None

    def search(self, rows: range, *found: Any, **options: Any) -> tuple[Tensor, Tensor]:
        """Find the hard negatives of some of such rows, as `hard_negatives_of` does: values, and int32 indices."""
        raise NotImplementedError

    def pairing_codes(self) -> Tensor | None:
        """Return codes of all samples that tell near positives from far ones, uint8 [n, bytes], if there are any."""
        return None

    def num_missing(self, expected: Tensor) -> int:  # noqa: ARG002 - others use it
        """Count the expected samples, bool [n], that should have been observed and never were."""
        return 0

    def identity(self) -> dict[str, Any]:
        """Return what must be the same on every rank, and in a state and the sampler that loads it."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the memory as tensors that stay up to date, because loaders request a state before they save it."""
        return {}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise a ValueError if `load_state_dict` could not load it."""

    def load_state_dict(self, state: dict[str, Any], *, is_own: bool) -> bool:  # noqa: ARG002 - others use it
        """Load a state and return whether all ranks knew what it holds, because they had exchanged it.

        A state of another rank holds observations which that rank will contribute to the next exchange itself.
        """
        return True
