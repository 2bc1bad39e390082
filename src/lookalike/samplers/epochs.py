"""What all samplers share: an epoch of batches, known in length, the same on every rank, resumable at every batch."""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler

from lookalike.batches import GRAPH_NEIGHBOURS, Batches, check_options, compose_batches, plan_batches
from lookalike.samplers import states
from lookalike.samplers.exclusions import Exclusions
from lookalike.samplers.iteration import EpochIterator
from lookalike.samplers.labels import check_positives, compact_labels
from lookalike.samplers.observations import checked_ids, checked_towers
from lookalike.samplers.pairs import count_pairs, neighbours_of_pairs, pair_samples
from lookalike.utils import ranks
from lookalike.utils.checks import checked_positive
from lookalike.utils.tensors import check_one_dimension

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lookalike.batches.plan import Plan
    from lookalike.utils.arrays import Array

logger = logging.getLogger("lookalike")

LOOKED_AT = 64  # batches that are compared with what is observed; training skips few


class EpochBatchSampler(BatchSampler):
    """A `BatchSampler` that composes a whole epoch before its first batch.

    *Labelled* data: `labels` of all samples. Batches are lists of sample ids, anchor and positive next to each other.
    *Paired* data: `pairs`, how many there are, and `labels` only where several pairs must not meet in a batch (several
    queries of one reference). Batches are lists of pair ids.

    `batch_size` counts what a batch lists: sample ids, two per pair, or pair ids. Under `torch.distributed` it is the
    size on each rank: batches are composed for all ranks together and each takes its share. With `shard=False` the
    loader deals whole batches to the ranks, as accelerate's does. All batches are then full and their number is a
    multiple of the number of ranks, so that no loader has to repeat samples; the few pairs left over are others in
    each epoch.

    An epoch ends when its last batch was yielded; the next `iter` begins the next one. `set_epoch` may say so too, and
    saying it twice does nothing. Until then every `iter` gives the same batches.
    """

    def __init__(
        self,
        labels: Any,
        batch_size: int,
        *,
        pairs: int | None = None,
        hardness: float = 1.0,
        clusters: int = 1,
        method: str = "growth",
        exclude: tuple[Any, Any] | None = None,
        seed: int = 0,
        drop_last: bool = False,
        self_pairs: bool = False,
        shard: bool = True,
    ) -> None:
        self.batch_size, self.drop_last = checked_positive("batch_size", batch_size), drop_last
        self.paired, self.self_pairs, self.shard = pairs is not None, self_pairs, shard
        self.hardness, self.clusters, self.method, self.seed = hardness, clusters, method, seed
        if pairs is None and labels is None:
            raise ValueError("labels are missing: give one per sample, or, for a data set of pairs, pairs=how many.")
        if not self.paired and self.batch_size % 2:
            raise ValueError(f"batch_size counts samples, two per pair, and must be even, got {batch_size}.")
        check_options(hardness, clusters, method)
        self._labels = None if labels is None else compact_labels(labels, pairs)
        if self._labels is not None and not self.paired and not self_pairs:
            check_positives(self._labels)
        self._checksum = 0 if self._labels is None else zlib.crc32(self._labels.tobytes())
        self.num_samples = checked_positive("pairs", pairs) if pairs is not None else len(_known(self._labels))
        self._exclusions = None if exclude is None else Exclusions(exclude, self.num_samples)
        self.sampler = range(self.num_samples)  # torch's batch samplers have this attribute, and loaders look at it
        self.epoch = 0
        self._finished = False  # the last batch was yielded
        # The ids of all ranks' batches, int32; the batches' offsets; how many pairs no batch holds.
        self._composed: list[Tensor] | None = None
        self._order: Tensor | None = None  # of these, this rank's share
        self._offsets: Tensor | None = None
        self._start = 0  # the batch with which iterations of this epoch begin: not the first in a restored one
        self._yielded = 0  # batches
        self._observed = 0  # batches, the last one that was observed included
        self._follows_observations = False  # once a batch was observed, being observed is what makes a batch done
        # Pairs that no batch of the epoch before held; None where only a part of that epoch was trained here.
        self._left_out_before: int | None = None
        self._agreed_on: int | None = None  # the last epoch for which the ranks compared notes
        self._lengths: dict[int, int] = {}
        len(self)  # what cannot be composed is said now

    def __len__(self) -> int:
        """Batches per epoch and rank; with `shard=False`, of all ranks."""
        world_size = ranks.world()[1]
        if world_size not in self._lengths:  # ranks may come to know each other after the sampler was made
            self._lengths[world_size] = len(self._plan().sizes)
        return self._lengths[world_size]

    def __iter__(self) -> Iterator[list[int]]:
        if self._finished:
            self._begin(self.epoch + 1)
        self._agree()
        if self._order is None:
            self._compose()
        self._yielded = self._observed = self._start
        return EpochIterator(
            self.epoch,
            _known(self._order),
            _known(self._offsets),
            self._start,
            note=self._note_yielded,
            resume=self._resume_at,
        )

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch; nothing happens if it has begun already."""
        if epoch != self.epoch:
            self._begin(epoch)
        elif self._finished:
            self._finished, self._start, self._yielded, self._observed = False, 0, 0, 0

    def observe(
        self,
        ids: Any,
        embeddings: Tensor | None = None,
        *,
        query: Tensor | None = None,
        reference: Tensor | None = None,
    ) -> None:
        """Take note of a batch's embeddings, as they leave the training step.

        Args:
            ids: What the sampler yielded for them, in the same order.
            embeddings: Floats `[len(ids), dim]`, for labelled data.
            query: Likewise, for paired data: the queries,
            reference: and their references.
        """
        given = {"embeddings": embeddings, "query": query, "reference": reference}
        towers = checked_towers(given, paired=self.paired)
        numbers = checked_ids(ids, towers, self.num_samples)
        self._check_dimension(check_one_dimension(towers))
        if not self.self_pairs and len(np.unique(numbers.numpy())) != len(numbers):
            raise ValueError("a batch holds an id twice; observe each sample once, with the embedding to keep.")
        self._note_observed(numbers)
        for name, x in towers.items():
            self._keep(name, numbers, x.detach())

    def synchronize(self) -> None:
        """Exchange what the ranks have observed, so that the state of any one of them is complete.

        Every rank has to call it. Call it before a checkpoint that only one rank writes; where each rank saves its own
        state, or where there is one process, it is not needed.
        """
        if ranks.is_distributed():
            self._agreed_on = None
            self._agree()
            self._exchange()

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """Return everything that a killed run needs to go on with the very next batch.

        `position` says how many batches of this epoch are done, where the caller counts them (with `shard=False` those
        of all ranks). Otherwise the next batch is the one after the last that was observed, or, as long as nothing was
        ever observed, the first that was not yielded. Tensors are references, as in `nn.Module.state_dict`: save
        before going on.

        Under `torch.distributed` a rank knows what it has observed itself since the epoch began. Save the state of
        every rank, or call `synchronize` on all ranks and save the state of one.
        """
        cursor = position
        if cursor is None:
            cursor = self._observed if self._follows_observations else self._yielded
        rank, world_size = ranks.world()
        if not self.shard:  # the loader deals the batches: others have had theirs as well
            cursor = min(len(self), -(-cursor // world_size) * world_size)
        return {
            "version": states.VERSION,
            "sampler": self._identity(),
            "adjustable": self._adjustable(),
            "rank": rank,
            "epoch": self.epoch,
            "finished": cursor >= len(self),
            "cursor": cursor,
            "follows_observations": self._follows_observations,
            "composed": self._composed,
            "kept": self._kept_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        What may change from one epoch to the next, such as `hardness`, is this sampler's own from the next epoch on.

        Raises:
            ValueError: The state is of another version, data set or configuration, or damaged; nothing was loaded.
        """
        states.check_state(state, self._identity(), len(self), self.num_samples)
        self._check_kept_state(state["kept"])
        is_own = state["rank"] == ranks.world()[0]
        if not self._load_kept_state(state["kept"], is_own=is_own):
            logger.warning(
                "the state was saved by rank %d alone: what other ranks had observed in epoch %d is lost, and their "
                "samples have older codes or none. Call synchronize() on every rank before one of them saves, or save "
                "the state of every rank.",
                state["rank"],
                state["epoch"],
            )
        self.epoch, self._finished = state["epoch"], state["finished"] or state["cursor"] >= len(self)
        self._composed, self._follows_observations = state["composed"], state["follows_observations"]
        self._take_share()
        self._start = self._yielded = self._observed = len(self) if self._finished else state["cursor"]
        self._agreed_on = None
        if changed := states.differences(state["adjustable"], self._adjustable()):
            logger.warning("the state was saved with other settings: %s, from the next epoch on.", "; ".join(changed))

    def _keep(self, tower: str, ids: Tensor, x: Tensor) -> None:
        """Keep what the next epoch is composed from."""

    def _dim(self) -> int | None:
        """Return the dimension of the embeddings that were kept, None where there are none."""

    def _exchange(self) -> None:
        """Bring the ranks to the same knowledge."""

    def _end_epoch(self) -> None:
        """Prepare what was kept for the composition of the next epoch."""

    def _codes(self) -> Tensor | None:
        """Codes to choose hardest positives by, uint8 [n, bytes]; None where nothing is known."""

    def _search(self, k: int) -> Tensor | None:
        """The nearest samples or pairs of another label, int64 [n, k], -1 for none; None if nothing is known."""

    def _batch_labels(self) -> Array | None:
        """Of which no two may meet in a batch: int32 [n]; None where every pair is its own label."""
        return self._labels

    @property
    def kept_bytes(self) -> int:
        """What is kept of the embeddings from one epoch to the next, in bytes."""
        return 0

    def _kept_state(self) -> dict[str, Any]:
        return {}

    def _check_kept_state(self, state: dict[str, Any]) -> None:
        """Raise a ValueError if `_load_kept_state` could not load it."""

    def _load_kept_state(self, state: dict[str, Any], *, is_own: bool) -> bool:  # noqa: ARG002 - for others to use
        """Load what was kept and return whether nothing had to be left out.

        A state of another rank holds observations which that rank will contribute to the next exchange itself.
        """
        return True

    def _identity(self) -> dict[str, Any]:
        """Return what the epoch depends on: the same on every rank, and in a state and the sampler that loads it."""
        return {
            "kind": type(self).__name__,
            "paired": self.paired,
            "samples": self.num_samples,
            "labels (checksum)": self._checksum,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "self_pairs": self.self_pairs,
            "seed": self.seed,
            "clusters": self.clusters,
            "method": self.method,
            "shard": self.shard,
            "ranks": ranks.world()[1],
        }

    def _adjustable(self) -> dict[str, Any]:
        """Return what may change from one epoch to the next, though not from rank to rank."""
        exclude = None if self._exclusions is None else self._exclusions.checksum
        return {"hardness": float(self.hardness), "exclude (checksum)": exclude}

    def _agree(self) -> None:
        """Compare notes with the other ranks, once per epoch and before anything else is exchanged."""
        if self._agreed_on == self.epoch or not ranks.is_distributed():
            return
        place = {"epoch": self.epoch, "restored": self._order is not None, "first batch": self._start}
        ranks.check_agreement({**self._identity(), **self._adjustable(), **place}, self._dim())
        self._agreed_on = self.epoch

    def _check_dimension(self, now: int) -> None:
        before = self._dim()
        if before not in (None, now):
            raise ValueError(
                f"embeddings had {before} dimensions until now, these have {now}; a sampler observes one model."
            )

    def _num_shards(self) -> int:
        return ranks.world()[1] if self.shard else 1

    def _counts(self) -> Array:
        """Pairs per label."""
        if self._labels is None:
            return np.ones(self.num_samples, np.int64)
        counts = np.bincount(self._labels)
        return counts if self.paired else count_pairs(counts, self_pairs=self.self_pairs)

    def _plan(self) -> Plan:
        counts = self._counts()
        return plan_batches(counts[counts > 0], self._pairs_per_batch(), **self._plan_options())

    def _pairs_per_batch(self) -> int:
        """Pairs in a batch of all ranks together."""
        return self.batch_size // (1 if self.paired else 2) * self._num_shards()

    def _plan_options(self) -> dict[str, Any]:
        return {
            "drop_last": self.drop_last,
            "smallest": self._num_shards(),
            "multiple": 1 if self.shard else ranks.world()[1],
        }

    def _begin(self, epoch: int) -> None:
        self._left_out_before = self._num_left_out if self._finished and self._start == 0 else None
        self.epoch, self._finished = epoch, False
        self._composed = self._order = self._offsets = None
        self._start = self._yielded = self._observed = 0

    def _resume_at(self, epoch: int, batch: int) -> None:
        if epoch == self.epoch:
            self._start = self._yielded = self._observed = batch
            self._finished = batch >= len(self)

    def _note_yielded(self, epoch: int, batches: int) -> None:
        if epoch == self.epoch:
            # The last batch ends the epoch, not StopIteration: a trainer that knows the length never asks for more.
            self._yielded, self._finished = batches, batches >= len(_known(self._offsets)) - 1

    def _note_observed(self, ids: Tensor) -> None:
        """Find out which batch was observed, of those that were yielded. Anything else does not count as progress."""
        if self._order is None or self._offsets is None or len(ids) == 0:
            return
        observed = ids.tolist()
        furthest = self._observed + LOOKED_AT + (0 if self.shard else ranks.world()[1])
        for batch in range(self._observed, min(self._yielded, furthest)):
            first, last = self._offsets[batch : batch + 2].tolist()
            members = self._order[first:last].tolist()
            ends = observed[-1] == members[-1] and observed[0] in members  # a batch may be observed part by part,
            if ends or (len(observed) == len(members) and set(observed) == set(members)):  # or in another order
                self._observed, self._follows_observations = batch + 1, True
                return

    def _compose(self) -> None:
        self._exchange()
        self._end_epoch()
        self._composed = ranks.from_first(self._compose_all)
        self._take_share()

    def _take_share(self) -> None:
        self._order, self._offsets, _ = self._composed or (None, None, None)
        rank, world_size = ranks.world()
        if self._order is not None and self._offsets is not None and self.shard and world_size > 1:
            width = 1 if self.paired else 2
            self._order, self._offsets = ranks.share(self._order, self._offsets, rank, world_size, width)

    def _compose_all(self) -> list[Tensor]:
        """The global batches: ids one after another, int32, their offsets, and how many pairs are in none."""
        rng = np.random.default_rng([self.seed, self.epoch])
        options: dict[str, Any] = {
            "hardness": self.hardness,
            "clusters": self.clusters,
            "method": self.method,
            "seed": int(rng.integers(2**62)),
            **self._plan_options(),
        }
        per_batch = self._pairs_per_batch()
        width = GRAPH_NEIGHBOURS if self.method == "growth" else 128
        near = self._search(width) if self.hardness > 0 else None
        if self.paired:
            lists = torch.full((self.num_samples, 0), -1) if near is None else near
            batches = compose_batches(lists, per_batch, labels=self._batch_labels(), **options)
            self._report_left_out(batches)
            return [batches.ids, batches.offsets, torch.tensor(len(batches.left_out))]
        anchors, positives = pair_samples(self._codes(), _known(self._labels), rng, self_pairs=self.self_pairs)
        lists = torch.full((len(anchors), 0), -1) if near is None else neighbours_of_pairs(near, anchors, positives)
        batches = compose_batches(lists, per_batch, labels=_known(self._batch_labels())[anchors], **options)
        self._report_left_out(batches)
        ids = batches.ids.numpy()
        both = torch.from_numpy(np.stack([anchors[ids], positives[ids]], axis=1).reshape(-1))
        return [both, batches.offsets * 2, torch.tensor(len(batches.left_out))]

    @property
    def _num_left_out(self) -> int:
        """Pairs that no batch of the epoch holds."""
        return 0 if self._composed is None else int(self._composed[2])

    def _report_left_out(self, batches: Batches) -> None:
        options = self._plan_options()
        expected = options["drop_last"] or options["multiple"] > 1
        if len(batches.left_out) and not expected and self.epoch == 0:
            logger.warning(
                "%d pairs are left out of each epoch, others each time: their labels have more pairs than there are "
                "batches, and a batch holds each label once. Smaller batches leave out fewer.",
                len(batches.left_out),
            )


def _known(value: Any) -> Any:
    assert value is not None  # noqa: S101 - our own invariant
    return value
