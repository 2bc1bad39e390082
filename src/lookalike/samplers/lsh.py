"""Hard negatives from bits: the paper's method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from lookalike.analysis.bits import MAX_BITS, TARGET
from lookalike.analysis.measures import NEIGHBOURS
from lookalike.hashing import CENTER
from lookalike.samplers.code_memory import CodeMemory
from lookalike.samplers.epochs import EpochBatchSampler
from lookalike.samplers.guard import Guard
from lookalike.samplers.pairing import make_pairing
from lookalike.samplers.warm_start import WARM_HARDNESS

if TYPE_CHECKING:
    from lookalike.analysis.bits import BitsPlan
    from lookalike.codes import CodeTable
    from lookalike.hashing import Scheme
    from lookalike.samplers.code_memory import Code
    from lookalike.samplers.options import MiningOptions
    from lookalike.samplers.warm_start import WarmStartMode


class LSHBatchSampler(EpochBatchSampler):
    """Batches of mutual hard negatives, found in the bits of the embeddings that training itself produces.

    Call `observe` with every batch's ids and embeddings. Samples not seen yet are random, and without a
    warm start all of the first epoch is; samples that an epoch left out keep their older code. Between epochs only the
    codes are kept: bits / 8 bytes per sample.

    Args:
        labels: Integers, one per sample; or, with `pairs`, one per pair or None.
        batch_size: Ids that a batch lists: two sample ids per pair; with `pairs`, one pair id per pair.
        pairs: Number of pairs of a paired data set: pair i is query i with reference i.
        bits: Length of the codes; or "auto": at the end of every epoch the shortest length is chosen that finds
            `target_overlap` of the true k nearest, as predicted from the floats of at most 4,096 samples that are kept
            for one epoch. Signs are kept in codes of `max_bits`, of which a prefix is searched; codes of several bits
            have the chosen length from the next epoch on. The attribute `bits` says what is in use, `plan` why.
        code: "signs", one bit per rotated dimension as in the paper, or "scalar", several bits for each principal
            component, which find as many of the true neighbours with half of the bits or fewer. What components
            there are is learned from the embeddings of the epoch before; the first epoch writes signs, unless there is
            a warm start. With bits="auto" also "auto": whichever kind is predicted to take fewer bits.
        max_bits: The longest codes that "auto" may choose.
        target_overlap: Fraction of the true nearest that "auto" aims for.
        center: Fraction of the mean to subtract before hashing to signs, as in `SignHasher`.
        guard: Keep likely false negatives apart: classes of which more than half of the samples see a neighbour of
            the other class at more than `guard` times the cosine of their nearest positive, both estimated from the
            bits. None keeps nothing apart; 0.95 keeps most false negatives apart, 1.0 fewer.
        warm_start: What to do with embeddings observed before the first epoch: True composes it from them, False does
            not; "auto" does if their codes show that the model is ready, and gives it up for the rest of the epoch
            once too many bits flip. `wants_warm_start` says whether to embed the training set.
        warm_hardness: The hardness of a first epoch that is composed from a warm start, if it is less than `hardness`.
        self_pairs: Pair a label's only sample with itself (two augmented views) instead of leaving it out.
        same: Pairs of samples that a person marked as the same: a file, as `read_same` reads it, or ids `[m, 2]`. The
            two count as one label, so they never meet as negatives. With `pairs`, ids are those of pairs.
        k: Hard negatives per sample to compose batches from, at most; "growth" uses 32.
        seed: Decides rotation and order; the same on all ranks.
        options: Further options with their defaults: `hardness=1.0`, the fraction of a batch taken from hard negatives;
            `neighbourhood="auto"`, pairs per neighbourhood; `method="growth"` or "sample4geo"; `filters`, what counts,
            such as `Filters(exclude=...)`; `drop_last=False`; `shard=True`, False where the loader deals batches
            to the ranks, as accelerate's does, "whole" where every rank is to have whole batches; `rearrange`, a hook
            that may exchange ids between batches. `EpochBatchSampler` describes them.

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
        code: Code = "signs",
        max_bits: int = MAX_BITS,
        target_overlap: float = TARGET,
        center: float = CENTER,
        guard: float | None = None,
        warm_start: WarmStartMode = "auto",
        warm_hardness: float = WARM_HARDNESS,
        self_pairs: bool = False,
        same: Any = None,
        k: int = NEIGHBOURS,
        seed: int = 0,
        **options: Unpack[MiningOptions],
    ) -> None:
        pairing = make_pairing(labels, pairs, self_pairs=self_pairs, same=same)
        self._codes = CodeMemory(
            pairing, bits, code=code, max_bits=max_bits, target_overlap=target_overlap, k=k, center=center, seed=seed
        )
        keep_apart = None if guard is None else Guard(guard)
        super().__init__(
            pairing,
            batch_size,
            memory=self._codes,
            guard=keep_apart,
            warm_start=warm_start,
            warm_hardness=warm_hardness,
            k=k,
            seed=seed,
            **options,
        )

    @property
    def memory(self) -> CodeMemory:
        """The codes and what they are made with."""
        return self._codes

    @property
    def bits(self) -> int:
        """Bits in use: the length of the codes, or of the prefix that "auto" has chosen."""
        return self._codes.bits

    @property
    def plan(self) -> BitsPlan | None:
        """The last choice of "auto", on rank 0."""
        return self._codes.plan

    @property
    def codes(self) -> dict[str, CodeTable]:
        """The codes of all samples, by tower: "embeddings", or "query" and "reference".

        With `code="scalar"`, those of samples that were observed in the present epoch are of its own statistics.
        """
        return self._codes.tables

    @property
    def scheme(self) -> Scheme | None:
        """What reads the codes that the present epoch was composed from; None if they are signs."""
        return self._codes.scheme
