"""Hard negatives from bits: what the paper is about."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookalike.analysis.bits import MAX_BITS, MIN_ROWS, TARGET, BitsPlan, plan_from_codes
from lookalike.samplers import states
from lookalike.samplers.epochs import EpochBatchSampler
from lookalike.samplers.guard import merged_labels, positive_distances, suspected
from lookalike.samplers.reservoir import Reservoir
from lookalike.samplers.streams import CodeStream
from lookalike.search import hamming_topk, search_device
from lookalike.utils import ranks
from lookalike.utils.checks import checked_bits, checked_positive

logger = logging.getLogger("lookalike")


class LSHBatchSampler(EpochBatchSampler):
    """Batches of mutual hard negatives, found in the bits of the embeddings that training itself produced.

    Call `observe` with every batch's ids and embeddings. The first epoch, and samples not seen yet, are random; samples
    that an epoch left out keep their older code. Between epochs only the codes are kept: bits / 8 bytes per sample.

    Args:
        labels: Integers, one per sample; or, with `pairs`, one per pair or None.
        batch_size: Sample ids per batch, two per pair; with `pairs`, pair ids per batch.
        pairs: Number of pairs of a paired data set: pair i is query i with reference i.
        bits: Length of the codes; or "auto": codes of `max_bits` are kept, and at the end of every epoch the shortest
            prefix is chosen that finds `target_overlap` of the true k nearest, as predicted from the floats of at most
            4,096 samples that are kept for one epoch. The attribute `bits` says what is in use, `plan` why.
        max_bits: The longest codes that "auto" may choose.
        target_overlap: What "auto" aims for.
        k: Hard negatives per sample to compose batches from, at most; "growth" uses 32.
        hardness: Share of a batch taken from hard negatives; the rest is random.
        clusters: How many neighbourhoods a batch is made of; one gives the hardest batches.
        method: "growth" or "sample4geo", as in `compose_batches`.
        center: Share of the mean that is subtracted before hashing, as in `SignHasher`.
        guard: Keep likely false negatives apart: classes of which more than half of the samples see a neighbour of
            the other class at more than `guard` times the cosine of their nearest positive, both estimated from the
            bits. None keeps nothing apart; 0.95 keeps most false negatives apart, 1.0 fewer.
        exclude: Samples, or pairs, that are no negatives of each, beyond its label: lists as (offsets, ids), as in
            `hamming_topk`. They are left out of the search; give the loss `ignore` for those that meet all the same.
        seed: Decides rotation and order; the same on all ranks.
        drop_last: Leave out the last batch if it is short.
        self_pairs: Pair a label's only sample with itself (two augmented views) instead of leaving it out.
        shard: Deal batches to the ranks of `torch.distributed`; False where the loader does that, as accelerate's.

    Examples:
        >>> import torch
        >>> labels = torch.arange(60) // 2
        >>> sampler = LSHBatchSampler(labels, batch_size=20, bits=64)
        >>> embeddings = torch.nn.functional.normalize(torch.randn(60, 16), dim=1)
        >>> for epoch in range(2):
        ...     for ids in sampler:
        ...         sampler.observe(ids, embeddings[ids])
        >>> len(sampler)
        3
    """

    def __init__(
        self,
        labels: Any,
        batch_size: int,
        *,
        pairs: int | None = None,
        bits: int | str = 512,
        max_bits: int = MAX_BITS,
        target_overlap: float = TARGET,
        k: int = 128,
        hardness: float = 1.0,
        clusters: int = 1,
        method: str = "growth",
        center: float = 1.0,
        guard: float | None = None,
        exclude: tuple[Any, Any] | None = None,
        seed: int = 0,
        drop_last: bool = False,
        self_pairs: bool = False,
        shard: bool = True,
    ) -> None:
        super().__init__(
            labels,
            batch_size,
            pairs=pairs,
            hardness=hardness,
            clusters=clusters,
            method=method,
            seed=seed,
            exclude=exclude,
            drop_last=drop_last,
            self_pairs=self_pairs,
            shard=shard,
        )
        self.auto = isinstance(bits, str)
        if isinstance(bits, str) and bits != "auto":
            raise ValueError(f'bits must be a number or "auto", got {bits!r}.')
        if not 0 < target_overlap <= 1:
            raise ValueError(f"target_overlap is a share above 0 and at most 1, got {target_overlap}.")
        self.bits = checked_bits(max_bits if self.auto else bits)
        self.target_overlap, self.k, self.center = target_overlap, checked_positive("k", k), center
        self.plan: BitsPlan | None = None  # the last that "auto" made, on rank 0
        if guard is not None and not 0 < guard <= 2:
            raise ValueError(f"guard is a share of the positive's cosine, above 0 and at most 2, got {guard}.")
        self.guard = guard
        self._guarded: np.ndarray[Any, Any] | None = None  # labels of which no two may meet, for this epoch
        towers = ("query", "reference") if self.paired else ("embeddings",)
        self._streams = {tower: CodeStream(self.num_samples, self.bits, seed=seed, center=center) for tower in towers}
        self._reservoirs = {tower: Reservoir(self.num_samples, seed=seed) for tower in towers} if self.auto else {}
        self._has_chosen = self._warned_of_unseen = self._warned_of_target = False
        self._warned_of_collapse = self._warned_of_guard = False

    def _keep(self, tower: str, ids: Tensor, x: Tensor) -> None:
        self._streams[tower].write(ids, x)
        if self.auto:
            self._reservoirs[tower].write(ids, x)

    def _dim(self) -> int | None:
        return next((stream.hasher.dim for stream in self._streams.values() if stream.hasher is not None), None)

    def _exchange(self) -> None:
        for stream in self._streams.values():
            stream.exchange()
        for reservoir in self._reservoirs.values():
            reservoir.exchange()

    def _end_epoch(self) -> None:
        for stream in self._streams.values():
            stream.end_epoch()
        if self.auto:
            self._choose_bits()
        if ranks.world()[0] == 0:
            self._warn_of_unseen()
            self._warn_of_collapse()

    def _choose_bits(self) -> None:
        """Shorten or lengthen what is searched of the codes, by what the epoch that has ended says."""
        usable = torch.stack([reservoir.end_epoch() for reservoir in self._reservoirs.values()]).all(0)
        places = usable.nonzero().flatten()
        if len(places) < min(self.num_samples, MIN_ROWS):  # nothing was observed yet, or too little
            return

        def chosen() -> list[Tensor]:
            self.plan = self._plan_bits(places)
            return [torch.tensor(self.plan.bits)]

        before = self.bits
        self.bits = int(ranks.from_first(chosen)[0])  # predicted once: ranks may round differently
        if self.plan is not None and (self.bits != before or not self._has_chosen):
            logger.info("bits for epoch %d: %s.", self.epoch, self.plan.reason)
        self._has_chosen = True
        if self.plan is not None and not self.plan.meets_target and not self._warned_of_target:
            self._warned_of_target = True
            logger.warning("%s; lower target_overlap or raise max_bits.", self.plan.reason)

    def _plan_bits(self, places: Tensor) -> BitsPlan:
        reservoirs, streams = list(self._reservoirs.values()), list(self._streams.values())
        ids = reservoirs[0].ids[places]
        query, references = (_known(reservoirs[tower].rows)[places] for tower in (0, -1))
        query_codes, reference_codes = (streams[tower].table.codes[ids] for tower in (0, -1))
        labels = ids if self._labels is None else torch.from_numpy(self._labels)[ids].long()
        return plan_from_codes(
            query,
            references,
            query_codes,
            reference_codes,
            labels,
            n=streams[0].table.num_seen,
            k=self.k,
            target=self.target_overlap,
            current=self.bits if self._has_chosen else None,
        )

    @property
    def _max_bits(self) -> int:
        return next(iter(self._streams.values())).table.bits

    def _warn_of_collapse(self) -> None:
        if any(stream.has_collapsed for stream in self._streams.values()) and not self._warned_of_collapse:
            self._warned_of_collapse = True
            logger.warning(
                "the embeddings have collapsed: those of the last epoch are almost the same for all samples, so no "
                "negative is harder than another. Lower the learning rate, warm it up longer, or check loss and data."
            )

    def _warn_of_unseen(self) -> None:
        if self.epoch == 0 or self._left_out_before is None or self._warned_of_unseen:
            return
        expected = torch.ones(self.num_samples, dtype=torch.bool)
        if self._labels is not None and not self.paired and not self.self_pairs:
            expected = torch.from_numpy(np.bincount(self._labels)[self._labels] > 1)  # others are in no batch
        unseen = int((expected & ~next(iter(self._streams.values())).table.seen).sum())
        refused = sum(stream.refused_before for stream in self._streams.values())  # and said so
        if unseen > refused + self._left_out_before * (1 if self.paired else 2):  # those could not be observed
            self._warned_of_unseen = True
            logger.warning(
                "%d of %d samples were never observed in a whole epoch and stay random; call observe(ids, embeddings) "
                "with every batch.",
                unseen,
                self.num_samples,
            )

    def _codes(self) -> Tensor | None:
        table = self._streams["embeddings"].table
        return self._prefix(table.codes) if table.num_seen else None

    def _prefix(self, codes: Tensor) -> Tensor:
        """The bits in use."""
        return codes[:, : self.bits // 8].contiguous()

    def _search(self, k: int) -> Tensor | None:
        where = search_device(next(iter(self._streams.values())).device, self.bits, k)
        query, *references = (stream.table for stream in self._streams.values())
        reference = references[0] if references else query
        seen = query.seen & reference.seen
        ids = seen.nonzero().flatten()
        if len(ids) == 0:
            return None
        everyone = len(ids) == self.num_samples
        labels = torch.arange(self.num_samples) if self._labels is None else torch.from_numpy(self._labels)
        query_codes = self._prefix(query.codes if everyone else query.codes[ids]).to(where)
        reference_codes = query_codes
        if reference is not query:
            reference_codes = self._prefix(reference.codes if everyone else reference.codes[ids]).to(where)
        distances, found = hamming_topk(
            query_codes,
            reference_codes,
            min(k, self.k),
            query_labels=labels[ids],
            reference_labels=labels[ids],
            exclude=None if self._exclusions is None else self._exclusions.among(ids),
        )
        near = found.cpu()
        if not everyone:
            near = torch.full((self.num_samples, found.shape[1]), -1)
            near[ids] = torch.where(found.cpu() >= 0, ids[found.cpu()], -1)
        if self.guard is not None:
            self._keep_apart(ids, near, distances.cpu(), labels, self.guard)
        return near

    def _keep_apart(self, ids: Tensor, near: Tensor, distances: Tensor, labels: Tensor, guard: float) -> None:
        """Find likely false negatives and give their classes one label for this epoch."""
        query, *references = (self._prefix(stream.table.codes[ids]) for stream in self._streams.values())
        if references:
            positives = positive_distances(query, references[0], None)
        else:
            positives = positive_distances(query, query, labels[ids])
        suspicious = np.zeros(tuple(near.shape), bool)
        suspicious[ids.numpy()] = suspected(distances, positives, self.bits, guard).numpy()
        own = labels.numpy().astype(np.int32)
        pairs = self._counts()
        merged = merged_labels(
            own, near.numpy(), suspicious, most=len(self), fewest=self._pairs_per_batch(), pairs=pairs
        )
        self._guarded = merged.labels
        logger.info("the guard merged %d of %d labels as likely the same.", merged.num_merged, int((pairs > 0).sum()))
        if merged.num_refused and not self._warned_of_guard:
            self._warned_of_guard = True
            logger.warning(
                "guard: %d pairs of labels are likely the same but may still meet in a batch: %d batches of %d pairs "
                "leave no room to keep all of them apart. Smaller batches do, and a higher guard suspects fewer.",
                merged.num_refused,
                len(self),
                self._pairs_per_batch(),
            )

    def _compose_all(self) -> list[Tensor]:
        self._guarded = None
        return super()._compose_all()

    def _batch_labels(self) -> np.ndarray[Any, Any] | None:
        return self._labels if self._guarded is None else self._guarded

    def _identity(self) -> dict[str, Any]:
        own: dict[str, Any] = {"bits": "auto" if self.auto else self.bits, "center": self.center, "k": self.k}
        if self.auto:
            own |= {"max_bits": self._max_bits, "target_overlap": self.target_overlap}
        return {**super()._identity(), **own}

    def _adjustable(self) -> dict[str, Any]:
        return {**super()._adjustable(), "guard": self.guard}

    @property
    def kept_bytes(self) -> int:
        """The codes, and a bit per sample that says whether there is one; with "auto" the floats of the reservoir."""
        tables = [stream.table for stream in self._streams.values()]
        codes = sum(part.nbytes for table in tables for part in (table.codes, table.marks))
        return codes + sum(reservoir.nbytes for reservoir in self._reservoirs.values())

    def _kept_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {tower: stream.state_dict() for tower, stream in self._streams.items()}
        if self.auto:
            state["reservoirs"] = {tower: reservoir.state_dict() for tower, reservoir in self._reservoirs.items()}
            plan = None if self.plan is None else asdict(self.plan)
            state["auto"] = {"bits": self.bits, "has_chosen": self._has_chosen, "plan": plan}
        return state

    def _check_kept_state(self, state: dict[str, Any]) -> None:
        dims = {stream.check_state(state.get(tower)) for tower, stream in self._streams.items()}
        if len(dims) > 1:
            raise states.damaged(f"its towers have the dimensions {' and '.join(map(str, dims))}")
        for tower, reservoir in self._reservoirs.items():
            reservoir.check_state(states.entry(state, "reservoirs", dict).get(tower), *dims)
        if self.auto:
            if not 0 < states.entry(states.entry(state, "auto", dict), "bits", int) <= self._max_bits:
                raise states.damaged(f"bits in use are {state['auto']['bits']}")
            states.entry(state["auto"], "has_chosen", bool)
            _check_plan(states.optional(state["auto"], "plan", dict))

    def _load_kept_state(self, state: dict[str, Any], *, is_own: bool) -> bool:
        is_whole = [stream.load_state_dict(state[tower], is_own=is_own) for tower, stream in self._streams.items()]
        for tower, reservoir in self._reservoirs.items():
            reservoir.load_state_dict(state["reservoirs"][tower])
        if self.auto:
            self.bits, self._has_chosen = state["auto"]["bits"], state["auto"]["has_chosen"]
            self.plan = None if state["auto"]["plan"] is None else BitsPlan(**state["auto"]["plan"])
        return all(is_whole)


def _check_plan(plan: dict[str, Any] | None) -> None:
    try:
        if plan is not None:
            BitsPlan(**plan)
    except TypeError as error:
        raise states.damaged(f"the plan of its bits is another ({error})") from None


def _known(rows: Tensor | None) -> Tensor:
    assert rows is not None  # noqa: S101 - our own invariant: some were seen
    return rows
