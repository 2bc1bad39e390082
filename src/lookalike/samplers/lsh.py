"""Hard negatives from bits: what the paper is about."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookalike.checks import checked_bits, checked_positive
from lookalike.samplers.epochs import EpochBatchSampler
from lookalike.samplers.guard import merged_labels, positive_distances, suspected
from lookalike.samplers.streams import CodeStream
from lookalike.search import hamming_topk, search_device

logger = logging.getLogger("lookalike")


class LSHBatchSampler(EpochBatchSampler):
    """Batches of mutual hard negatives, found in the bits of the embeddings that training itself produced.

    Call `observe` with every batch's ids and embeddings. The first epoch, and samples not seen yet, are random; samples
    that an epoch left out keep their older code. Between epochs only the codes are kept: bits / 8 bytes per sample.

    Args:
        labels: Integers, one per sample; or, with `pairs`, one per pair or None.
        batch_size: Sample ids per batch, two per pair; with `pairs`, pair ids per batch.
        pairs: Number of pairs of a paired data set: pair i is query i with reference i.
        bits: Length of the codes.
        k: Hard negatives per sample to compose batches from, at most; "growth" uses 32.
        hardness: Share of a batch taken from hard negatives; the rest is random.
        clusters: How many neighbourhoods a batch is made of; one gives the hardest batches.
        method: "growth" or "sample4geo", as in `compose_batches`.
        center: Share of the mean that is subtracted before hashing, as in `SignHasher`.
        guard: Keep likely false negatives apart: classes of which more than half of the samples see a neighbour of
            the other class at more than `guard` times the cosine of their nearest positive, both estimated from the
            bits. None keeps nothing apart; 0.95 keeps most false negatives apart, 1.0 fewer.
        seed: Decides rotation and order; the same on all ranks.
        drop_last: Leave out the last batch if it is short.
        self_pairs: Pair a label's only sample with itself (two augmented views) instead of leaving it out.
        shard: Deal batches to the ranks of `torch.distributed`; False where the loader does that, as accelerate's.

    Example:
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
        bits: int = 512,
        k: int = 128,
        hardness: float = 1.0,
        clusters: int = 1,
        method: str = "growth",
        center: float = 1.0,
        guard: float | None = None,
        seed: int = 0,
        drop_last: bool = False,
        self_pairs: bool = False,
        shard: bool = True,
    ) -> None:
        super().__init__(
            labels, batch_size, pairs=pairs, hardness=hardness, clusters=clusters, method=method, seed=seed,
            drop_last=drop_last, self_pairs=self_pairs, shard=shard,
        )  # fmt: skip
        self.bits, self.k, self.center = checked_bits(bits), checked_positive("k", k), center
        if guard is not None and not 0 < guard <= 2:
            raise ValueError(f"guard is a share of the positive's cosine, above 0 and at most 2, got {guard}.")
        self.guard = guard
        self._guarded: np.ndarray[Any, Any] | None = None  # labels of which no two may meet, for this epoch
        towers = ("query", "reference") if self.paired else ("embeddings",)
        self._streams = {tower: CodeStream(self.num_samples, self.bits, seed=seed, center=center) for tower in towers}
        self._warned_of_unseen = False

    def _keep(self, tower: str, ids: Tensor, x: Tensor) -> None:
        self._streams[tower].write(ids, x)

    def _end_epoch(self) -> None:
        for stream in self._streams.values():
            stream.end_epoch()
        if self.epoch > 0 and not self._warned_of_unseen:
            self._warn_of_unseen()

    def _warn_of_unseen(self) -> None:
        expected = torch.ones(self.num_samples, dtype=torch.bool)
        if self._labels is not None and not self.paired and not self.self_pairs:
            expected = torch.from_numpy(np.bincount(self._labels)[self._labels] > 1)  # others are in no batch
        unseen = int((expected & ~next(iter(self._streams.values())).table.seen).sum())
        if unseen:
            self._warned_of_unseen = True
            logger.warning(
                "%d of %d samples were never observed in a whole epoch and stay random; call observe(ids, embeddings) "
                "with every batch.",
                unseen,
                self.num_samples,
            )

    def _codes(self) -> Tensor | None:
        table = self._streams["embeddings"].table
        return table.codes if table.num_seen else None

    def _search(self, k: int) -> Tensor | None:
        where = search_device(next(iter(self._streams.values())).device, self.bits, k)
        queries, *references = (stream.table for stream in self._streams.values())
        database = references[0] if references else queries
        seen = queries.seen & database.seen
        ids = seen.nonzero().flatten()
        if len(ids) == 0:
            return None
        everyone = len(ids) == self.num_samples
        labels = torch.arange(self.num_samples) if self._labels is None else torch.from_numpy(self._labels)
        query_codes = (queries.codes if everyone else queries.codes[ids]).to(where)
        database_codes = query_codes
        if database is not queries:
            database_codes = (database.codes if everyone else database.codes[ids]).to(where)
        distances, found = hamming_topk(
            query_codes, database_codes, min(k, self.k), query_labels=labels[ids], database_labels=labels[ids]
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
        queries, *references = (stream.table.codes[ids] for stream in self._streams.values())
        if references:
            positives = positive_distances(queries, references[0], None)
        else:
            positives = positive_distances(queries, queries, labels[ids])
        suspicious = np.zeros(tuple(near.shape), bool)
        suspicious[ids.numpy()] = suspected(distances, positives, self.bits, guard).numpy()
        own = labels.numpy().astype(np.int32)
        merged, number = merged_labels(own, near.numpy(), suspicious, most=len(self))
        self._guarded = merged
        logger.info("%d of %d labels are kept apart from others as likely the same.", number, int(own.max()) + 1)

    def _batch_labels(self) -> np.ndarray[Any, Any] | None:
        return self._labels if self._guarded is None else self._guarded

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "bits": self.bits, "center": self.center}

    @property
    def kept_bytes(self) -> int:
        """The codes, and a bit per sample that says whether there is one."""
        tables = [stream.table for stream in self._streams.values()]
        return sum(part.nbytes for table in tables for part in (table.codes, table.marks))

    def _kept_state(self) -> dict[str, Any]:
        return {tower: stream.state_dict() for tower, stream in self._streams.items()}

    def _load_kept_state(self, state: dict[str, Any]) -> None:
        for tower, stream in self._streams.items():
            stream.load_state_dict(state[tower])
