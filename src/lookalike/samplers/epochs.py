"""A sampler: an epoch of batches, known in length, the same on every rank, resumable at every batch."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import BatchSampler

from lookalike.analysis.measures import NEIGHBOURS
from lookalike.batches import check_options, plan_batches
from lookalike.negatives import Filters
from lookalike.samplers import states
from lookalike.samplers.composition import Composed, Composition, warn_of_left_out
from lookalike.samplers.iteration import CurrentEpoch, OwnBatches, Shard
from lookalike.samplers.memory import Memory
from lookalike.samplers.warm_start import WARM_HARDNESS, WarmStart, WarmStartMode
from lookalike.utils import ranks
from lookalike.utils.checks import checked_integer, checked_positive
from lookalike.utils.stopwatch import Stopwatch
from lookalike.utils.tensors import check_one_dimension, checked_ids, checked_towers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from lookalike.batches import Neighbourhood
    from lookalike.samplers.composition import Rearrange
    from lookalike.samplers.guard import Guard
    from lookalike.samplers.pairing import Pairing

logger = logging.getLogger("lookalike")


class EpochBatchSampler(BatchSampler):
    """A `BatchSampler` put together from a pairing, a memory and a way to compose batches.

    It composes a whole epoch before its first batch: mine the hard negatives that the memory knows, draw pairs, put
    pairs that are hard negatives of each other into one batch. `hardness`, and the fields `filters` and `guard` of
    `composition`, may be set between epochs, to the same values on all ranks.

    An epoch ends when its last batch has been yielded; the next `iter` begins the next one. `set_epoch` may announce it
    too, and announcing it twice does nothing. Until then every `iter` gives the same batches.

    Args:
        pairing: What a batch is made of: `Labelled` or `Paired`.
        batch_size: Ids that a batch lists: two sample ids per pair of labelled samples, one pair id per pair of a
            paired data set. Under `torch.distributed`, on each rank; with `shard="whole"`, on all of them together.
        memory: What the next epoch is composed from; by default nothing, for random batches.
        k: Hard negatives per sample to compose batches from, at most; "growth" uses 32.
        hardness: Fraction of a batch taken from hard negatives; the rest is random.
        neighbourhood: Pairs per neighbourhood, "auto" or None, as in `compose_batches`.
        method: "growth" or "sample4geo", as in `compose_batches`.
        filters: Which neighbours count as hard negatives. Ids in its `exclude` are samples, or pairs. They are left
            out of the search; pass `exclude` to the loss for those that meet in a batch anyway.
        guard: Keeps likely false negatives apart; needs a memory of codes.
        warm_start: What to do with embeddings that were observed before the first epoch: True composes it from them,
            False does not, "auto" only if their codes show that the model is ready; see `WarmStart`. Floats are used.
        warm_hardness: The hardness of a first epoch that is composed from a warm start, if it is less than `hardness`.
        rearrange: Called with the batches of every epoch before they are dealt out: `ids` int32 and `offsets`, the
            labels that must not meet (or None) and a random generator. It may exchange ids between batches, in place.
        seed: Decides the order; the same on all ranks.
        drop_last: Leave out the last batch if it is short.
        shard: Compose batches for all ranks of `torch.distributed` together and take this rank's share of each. With
            False the loader deals whole batches to the ranks, as accelerate's does: all batches are then full and their
            number is a multiple of the number of ranks, so that no loader has to repeat samples; the few pairs left
            over differ from epoch to epoch. With "whole" every rank yields whole batches, of which the training loop
            takes its slice, and observes whole batches, which it gathers: batches, codes and states are then those of
            one process, whatever the number of ranks.
    """

    def __init__(
        self,
        pairing: Pairing,
        batch_size: int,
        *,
        memory: Memory | None = None,
        k: int = NEIGHBOURS,
        hardness: float = 1.0,
        neighbourhood: Neighbourhood = "auto",
        method: str = "growth",
        filters: Filters | None = None,
        guard: Guard | None = None,
        warm_start: WarmStartMode = "auto",
        warm_hardness: float = WARM_HARDNESS,
        rearrange: Rearrange | None = None,
        seed: int = 0,
        drop_last: bool = False,
        shard: Shard = True,
    ) -> None:
        self.batch_size, self.drop_last = checked_positive("batch_size", batch_size), drop_last
        if self.batch_size % pairing.ids_per_pair:
            raise ValueError(f"batch_size counts samples, two per pair, and must be even, got {batch_size}.")
        self.pairing, self._memory = pairing, memory or Memory()
        if guard is not None and not self._memory.has_codes:
            raise ValueError("guard compares codes: it needs a memory of codes.")
        filters = filters or Filters()
        self.composition = Composition(k, hardness, neighbourhood, method, filters, guard, rearrange)
        self.composition.exclude(pairing.num_samples)  # raises for lists that do not fit
        if shard not in (True, False, "whole"):
            raise ValueError(f'shard must be True, False or "whole", got {shard!r}.')
        self.shard: Shard = "whole" if shard == "whole" else bool(shard)
        self._memory.sees_everything = self.shard == "whole"
        self.seed = checked_integer("seed", seed)
        self.warm_start = WarmStart(warm_start, warm_hardness)
        self.sampler = range(self.num_samples)  # torch's batch samplers have this attribute, and loaders look at it
        self._current = CurrentEpoch(pairing.ids_per_pair, shard=self.shard)
        self._agreed_on: int | None = None  # the last epoch for which the ranks were found to agree
        self._lengths: dict[int, int] = {}
        self._warned_of_missing = False
        self.mining_time = Stopwatch()  # observing and composing; on a GPU, what of it the host waits for
        len(self)  # raises an error if no epoch can be composed

    @property
    def memory(self) -> Memory:
        """What the next epoch is composed from."""
        return self._memory

    @property
    def num_samples(self) -> int:
        """Samples, or pairs, of the data set: ids are below it."""
        return self.pairing.num_samples

    @property
    def paired(self) -> bool:
        """Whether ids are those of pairs: `observe` then takes query and reference."""
        return self.pairing.ids_per_pair == 1

    @property
    def epoch(self) -> int:
        """The epoch that has begun, or begins with the next `iter` if the one before is not finished."""
        return self._current.place.epoch

    @property
    def hardness(self) -> float:
        """Fraction of a batch taken from hard negatives; it may be set between epochs."""
        return self.composition.hardness

    @hardness.setter
    def hardness(self, fraction: float) -> None:
        check_options(fraction, self.composition.neighbourhood, self.composition.method)
        self.composition.hardness = fraction

    @property
    def wants_warm_start(self) -> bool:
        """Whether embeddings of the whole training set would be used if they were observed now, before the first epoch.

        If so, embed it once, without gradients, and `observe` it, in any batches, before the first `iter`.
        """
        is_new = self.epoch == 0 and self._current.composed is None and self._memory.dim is None
        if not is_new or not self._memory.has_codes or self.warm_start.mode is False:
            return False
        # "auto" judges by positives, and views of a single sample are none that it could tell from the sample.
        has_positives = not self.pairing.self_pairs or len(np.unique(self.pairing.classes())) < self.num_samples
        return self.warm_start.mode is True or has_positives

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory kept from one epoch to the next."""
        return self._memory.nbytes

    def __len__(self) -> int:
        """Count the batches per epoch and rank; with `shard=False`, of all ranks."""
        world_size = ranks.world()[1]
        if world_size not in self._lengths:  # torch.distributed may be initialised after the sampler was made
            counts = self.pairing.counts()
            self._lengths[world_size] = len(plan_batches(counts[counts > 0], **self._plan_options()).sizes)
        return self._lengths[world_size]

    def __iter__(self) -> Iterator[list[int]]:
        if self._current.place.is_finished:
            self._current.begin(self.epoch + 1)
        if self._current.batches is None or self._agreed_on != self.epoch:
            with self.mining_time, ranks.failing_together():
                self._begin()
        return self._current.iterate(self._renew)

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch; nothing happens if it has begun already."""
        self._current.announce(epoch)

    def observe(
        self,
        ids: Any,
        embeddings: Tensor | None = None,
        *,
        query: Tensor | None = None,
        reference: Tensor | None = None,
    ) -> None:
        """Remember a batch's embeddings, as they leave the training step.

        Args:
            ids: What the sampler yielded for them, in the same order.
            embeddings: Floats `[len(ids), dim]`, for labelled data.
            query: For paired data, the embeddings of the queries, `[len(ids), dim]`,
            reference: and those of their references.
        """
        given = {"embeddings": embeddings, "query": query, "reference": reference}
        towers = checked_towers(given, self.pairing.towers)
        numbers = checked_ids(ids, towers, self.num_samples)
        dim = check_one_dimension(towers)
        if self._memory.dim not in (None, dim):
            raise ValueError(
                f"embeddings had {self._memory.dim} dimensions until now, these have {dim}; "
                "a sampler observes one model."
            )
        listed = numbers.tolist()
        if not self.pairing.self_pairs and len(set(listed)) != len(listed):
            raise ValueError("a batch holds an id twice; observe each sample once, with the embedding to keep.")
        self._current.note_observed(listed)
        with self.mining_time:
            embedded = {tower: x.detach() for tower, x in towers.items()}
            self._memory.look_at(embedded)
            for tower, x in embedded.items():
                self._memory.write(tower, numbers, x)

    def synchronize(self) -> None:
        """Exchange what the ranks have observed, so that the state of any one of them is complete.

        Every rank must call it. Call it before a checkpoint that only one rank writes; it is not needed if each rank
        saves its own state, or if there is one process.
        """
        if ranks.is_distributed():
            self._agreed_on = None
            self._agree()
            if self.shard != "whole":  # every rank has observed everything, and the rows set aside stay there
                self._memory.exchange()

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """Return everything that a killed run needs to continue with the very next batch.

        `position` says how many batches of this epoch are done, where the caller counts them (with `shard=False` those
        of all ranks). Otherwise the next batch is the one after the last that was observed, or, as long as nothing was
        ever observed, the first that was not yielded. Tensors are references, as in `nn.Module.state_dict`: save
        before continuing.

        Under `torch.distributed` a rank knows what it has observed itself since the epoch began. Save the state of
        every rank, or call `synchronize` on all ranks and save the state of one. With `shard="whole"` the state of any
        rank is complete.
        """
        rank, world_size = (0, 1) if self.shard == "whole" else ranks.world()
        return {
            "version": states.VERSION,
            "sampler": self._identity(),
            "adjustable": self.composition.adjustable(self.num_samples),
            "rank": rank,
            "ranks": world_size,
            **self._current.state_dict(position, len(self)),
            "warm_start": self.warm_start.state_dict(),
            "kept": self._memory.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], position: int | None = None) -> None:
        """Continue where `state_dict` was taken, or at another `position` of its epoch.

        What may change from one epoch to the next, such as `hardness`, is this sampler's own from the next epoch on.
        The number of ranks may change if batches have as many pairs in all: 4 ranks of 32 continue as 2 ranks of 64.

        Raises:
            ValueError: The state is of another version, data set or configuration, or damaged; nothing was loaded.
        """
        states.check_state(state, self._identity(), len(self), self.num_samples)
        states.check_sizes(state, self._num_shards(), self.pairing.ids_per_pair)
        self.warm_start.check_state(state.get("warm_start"))
        self._memory.check_state(state["kept"])
        cursor = states.checked_cursor(state, position, len(self))
        rank, world_size = ranks.world()
        is_own = self.shard == "whole" or state["rank"] == rank
        is_shared = self._memory.load_state_dict(state["kept"], is_own=is_own)
        if not is_shared and state["ranks"] > 1 and not (is_own and state["ranks"] == world_size):
            states.warn_of_lost(state)
        self._current.load_state_dict(state, cursor, len(self))
        self.warm_start.load_state_dict(state["warm_start"])
        self._agreed_on = None
        states.warn_of_differences(state["adjustable"], self.composition.adjustable(self.num_samples))

    def _identity(self) -> dict[str, Any]:
        """Return what the epoch depends on: the same on every rank, and in a state and the sampler that loads it."""
        return {
            "kind": type(self).__name__,
            **self.pairing.identity(),
            **self._memory.identity(),
            **self.composition.identity(),
            "total batch_size": self.batch_size * self._num_shards(),
            "batches": len(self),
            "drop_last": self.drop_last,
            "seed": self.seed,
            "shard": self.shard,
            **({"ranks": ranks.world()[1]} if self.shard is False else {}),
        }

    def _agree(self) -> None:
        """Check that the ranks agree, once per epoch and before anything else is exchanged."""
        if self._agreed_on == self.epoch or not ranks.is_distributed():
            return
        ranks.check_agreement(
            {
                "batch_size": self.batch_size,
                **self._identity(),
                **self.composition.adjustable(self.num_samples),
                **self.warm_start.identity(),
                **self._current.identity(),
            },
            self._memory.dim,
        )
        self._agreed_on = self.epoch

    def _exchange(self) -> None:
        """Bring all ranks to the same knowledge, or make sure that they have it."""
        if self.shard != "whole":
            self._memory.exchange()
        elif ranks.is_distributed():
            ranks.check_same(
                self._memory.known_checksum(),
                'the ranks have observed different samples: with shard="whole" gather the embeddings of a batch, in '
                "its order, and observe all of them on every rank.",
            )

    def _begin(self) -> None:
        """Compose the epoch unless a state brought it along; all ranks do that together."""
        self._agree()
        if self._current.batches is not None:
            return
        self._exchange()
        self._memory.end_epoch(self.epoch)
        self._warn_of_missing()
        is_mined = self.epoch > 0 or self.warm_start.begin(self._memory, self.pairing)
        composed = self._compose(self._memory if is_mined else Memory())
        composed.check_agreement()
        self._current.hold(composed)

    def _num_shards(self) -> int:
        return ranks.world()[1] if self.shard is True else 1

    def _plan_options(self) -> dict[str, Any]:
        """Return what decides the number and sizes of the batches of all ranks together."""
        return {
            "pairs_per_batch": self.batch_size // self.pairing.ids_per_pair * self._num_shards(),
            "drop_last": self.drop_last,
            "smallest": self._num_shards(),
            "multiple": ranks.world()[1] if self.shard is False else 1,
        }

    def _compose(self, memory: Memory) -> Composed:
        how = self.composition if self.epoch > 0 else self.warm_start.softened(self.composition, memory)
        plan = self._plan_options()
        composed = how.compose(self.pairing, memory, [self.seed, self.epoch], num_batches=len(self), **plan)
        if self.epoch == 0 and ranks.world()[0] == 0:
            warn_of_left_out(composed, plan["drop_last"], plan["multiple"])
        return composed

    def _renew(self, batch: int) -> OwnBatches:
        """Make the rest of the first epoch random, from a batch on, if the warm start must be given up."""
        current = self._current
        assert current.composed is not None  # noqa: S101 - as composed
        assert current.batches is not None  # noqa: S101 - as composed
        if self.epoch == 0 and self.warm_start.must_stop(self._memory, batch, len(self)):
            seeds = [self.seed, self.epoch, batch]
            with ranks.failing_together():
                renewed = self.composition.shuffle_rest(self.pairing, current.composed, batch, seeds)
                renewed.check_agreement()
            current.replace(renewed)
        return current.batches

    def _warn_of_missing(self) -> None:
        """Warn once if batches of a whole epoch were not observed."""
        left_out = self._current.left_out_before
        if self.epoch == 0 or left_out is None or self._warned_of_missing or ranks.world()[0] != 0:
            return
        missing = self._memory.num_missing(self.pairing.expected())
        if missing > left_out * self.pairing.ids_per_pair:  # those could not be observed
            self._warned_of_missing = True
            logger.warning(
                "%d of %d samples were never observed in a whole epoch and stay random; call observe(ids, embeddings) "
                "with every batch.",
                missing,
                self.num_samples,
            )
