"""Iterate over the batches of one epoch, and keep the place that training has reached in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lookalike.samplers.composition import Composed
from lookalike.utils import ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

Shard = bool | Literal["whole"]
MAX_SKIPPED = 64  # batches after the last observed one that are compared with what is observed; training skips few


@dataclass
class Place:
    """Where training stands: an epoch, and how many of its batches are done."""

    epoch: int = 0
    start: int = 0
    """The batch with which iterations of this epoch begin: not the first one in a restored epoch."""
    yielded: int = 0
    """Batches handed out."""
    observed: int = 0
    """Batches up to the last one that was observed."""
    is_finished: bool = False
    """Whether the last batch was handed out."""
    follows_observations: bool = False
    """Whether a batch was ever observed: from then on, being observed is what makes a batch done."""

    @property
    def num_done(self) -> int:
        """Batches that a resumed run need not repeat."""
        return self.observed if self.follows_observations else self.yielded

    def go_to(self, epoch: int) -> None:
        """Begin an epoch."""
        self.epoch, self.is_finished = epoch, False
        self.restart_at(0)

    def restart_at(self, batch: int) -> None:
        """Make iterations of this epoch begin with a given batch."""
        self.start = self.yielded = self.observed = batch

    def note_observed(self, ids: list[int], batches: OwnBatches, lag: int) -> None:
        """Find out which of the yielded batches was observed. Anything else does not count as progress.

        Args:
            ids: What was observed: a whole batch in any order, or a part of one that ends as the batch does.
            batches: This rank's.
            lag: How many more batches may lie in between, because they were dealt to other ranks.
        """
        if not ids:
            return
        for batch in range(self.observed, min(self.yielded, self.observed + MAX_SKIPPED + lag)):
            members = batches[batch]
            ends = ids[-1] == members[-1] and ids[0] in members
            if ends or (len(ids) == len(members) and set(ids) == set(members)):
                self.observed, self.follows_observations = batch + 1, True
                return


@dataclass(frozen=True)
class OwnBatches:
    """The batches of this rank, as the ids they list."""

    ids: Tensor  # int32, one batch after another
    offsets: Tensor  # int64 [batches + 1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, batch: int) -> list[int]:
        first, last = self.offsets[batch : batch + 2].tolist()
        members: list[int] = self.ids[first:last].tolist()
        return members


class CurrentEpoch:
    """The epoch that has begun: its batches, once they are composed, and the place in them.

    Args:
        ids_per_pair: Ids that a batch lists for a pair.
        shard: True if each rank takes its share of every batch, "whole" if each takes all of it; with False the loader
            deals whole batches to the ranks.
    """

    def __init__(self, ids_per_pair: int, *, shard: Shard) -> None:
        self._ids_per_pair, self._shard = ids_per_pair, shard
        self.place = Place()
        self.composed: Composed | None = None  # all ranks' batches
        self.batches: OwnBatches | None = None  # this rank's share of them
        # Pairs that no batch of the epoch before held; None where only a part of that epoch was trained here.
        self.left_out_before: int | None = None

    def begin(self, epoch: int) -> None:
        """Begin an epoch, whose batches are yet to be composed."""
        was_whole = self.place.is_finished and self.place.start == 0
        left_out = 0 if self.composed is None else int(self.composed.num_left_out)
        self.left_out_before = left_out if was_whole else None
        self.place.go_to(epoch)
        self.hold(None)

    def announce(self, epoch: int) -> None:
        """Begin an epoch, unless it has begun already; one that is finished begins again with the same batches."""
        if epoch != self.place.epoch:
            self.begin(epoch)
        elif self.place.is_finished:
            self.place.go_to(epoch)

    def hold(self, composed: Composed | None) -> None:
        """Hold the batches of all ranks, and this rank's share of them."""
        self.composed, self.batches = composed, None
        if composed is None:
            return
        ids, offsets, _ = composed
        rank, world_size = ranks.world()
        if self._shard is True and world_size > 1:
            ids, offsets = ranks.share(ids, offsets, rank, world_size, self._ids_per_pair)
        self.batches = OwnBatches(ids, offsets)

    def replace(self, renewed: Composed) -> None:
        """Hold other batches of the same sizes, written over the old ones: a state handed out before must hold them."""
        assert self.composed is not None  # noqa: S101 - as composed
        for part, other in zip(self.composed, renewed, strict=True):
            part.numpy()[...] = other.numpy()  # as arrays: an inference mode may have been on when they were composed
        self.hold(self.composed)

    def iterate(self, renew: Callable[[int], OwnBatches]) -> EpochIterator:
        """Return an iterator over this rank's batches, from where iterations of this epoch begin."""
        assert self.batches is not None  # noqa: S101 - as composed
        self.place.restart_at(self.place.start)
        return EpochIterator(self.batches, self.place, renew)

    def identity(self) -> dict[str, Any]:
        """Return what must be the same on every rank when an epoch begins."""
        return {"epoch": self.place.epoch, "restored": self.batches is not None, "first batch": self.place.start}

    def note_observed(self, ids: list[int]) -> None:
        """Note that a batch was observed; see `Place.note_observed`."""
        if self.batches is not None:
            self.place.note_observed(ids, self.batches, ranks.world()[1] if self._shard is False else 0)

    def state_dict(self, position: int | None, num_batches: int) -> dict[str, Any]:
        """Return the batches and the place in them, or another position that the caller has counted."""
        cursor = self.place.num_done if position is None else position
        if self._shard is False:  # the loader deals the batches: others have had theirs as well
            world_size = ranks.world()[1]
            cursor = min(num_batches, -(-cursor // world_size) * world_size)
        return {
            "epoch": self.place.epoch,
            "finished": cursor >= num_batches,
            "cursor": cursor,
            "follows_observations": self.place.follows_observations,
            "composed": None if self.composed is None else list(self.composed),
        }

    def load_state_dict(self, state: dict[str, Any], cursor: int, num_batches: int) -> None:
        """Continue an epoch at the batch numbered `cursor`."""
        self.place.go_to(state["epoch"])  # in place: iterators that have begun report to it
        self.place.restart_at(cursor)
        self.place.is_finished = cursor >= num_batches
        self.place.follows_observations = state["follows_observations"]
        self.hold(None if state["composed"] is None else Composed(*(part.clone() for part in state["composed"])))


class EpochIterator(Iterator[list[int]]):
    """Yields batches and keeps its own position, so that loaders which prefetch can save theirs.

    Args:
        batches: Those of the epoch.
        place: Updated with what was yielded, as long as it is in the same epoch.
        renew: Called with the number of the batch that comes next; returns the batches of the epoch, of which those not
            yielded yet may have changed.
    """

    def __init__(self, batches: OwnBatches, place: Place, renew: Callable[[int], OwnBatches]) -> None:
        self._batches, self._place, self._renew = batches, place, renew
        self._epoch, self._position = place.epoch, place.start

    def __next__(self) -> list[int]:
        if self._epoch == self._place.epoch and self._position < len(self._batches):
            self._batches = self._renew(self._position)
        if self._position >= len(self._batches):
            raise StopIteration
        batch = self._batches[self._position]
        self._position += 1
        if self._epoch == self._place.epoch:
            # The last batch ends the epoch, not StopIteration: a trainer that knows the length never asks for more.
            self._place.yielded, self._place.is_finished = self._position, self._position >= len(self._batches)
        return batch

    def state_dict(self) -> dict[str, int]:
        """Return the position, for `torchdata`'s StatefulDataLoader."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a position in the same epoch; one in an epoch that is over means the beginning of this one."""
        if state["epoch"] != self._epoch:
            return
        self._position = state["position"]
        if self._epoch == self._place.epoch:
            self._place.restart_at(self._position)
            self._place.is_finished = self._position >= len(self._batches)
