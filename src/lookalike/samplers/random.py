"""Random batches, one pair per label: the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from lookalike.samplers.epochs import EpochBatchSampler
from lookalike.samplers.pairing import make_pairing

if TYPE_CHECKING:
    from lookalike.samplers.options import EpochOptions


class RandomBatchSampler(EpochBatchSampler):
    """Random pairs; the only rule is that no label appears twice in a batch.

    Args:
        labels: Integers, one per sample; or, with `pairs`, one per pair or None.
        batch_size: Ids that a batch lists: two sample ids per pair; with `pairs`, one pair id per pair.
        pairs: Number of pairs of a paired data set.
        self_pairs: Pair a label's only sample with itself instead of leaving it out.
        same: Pairs of samples that a person marked as the same: a file, as `read_same` reads it, or ids `[m, 2]`. The
            two count as one label, so they never meet as negatives. With `pairs`, ids are those of pairs.
        seed: Decides the order; the same on all ranks.
        options: `drop_last` and `shard`, as in `EpochBatchSampler`.

    Examples:
        >>> sampler = RandomBatchSampler([0, 0, 1, 1, 2, 2], batch_size=4)
        >>> len(sampler), [len(batch) for batch in sampler]
        (2, [4, 2])
    """

    def __init__(
        self,
        labels: Any,
        batch_size: int,
        *,
        pairs: int | None = None,
        self_pairs: bool = False,
        same: Any = None,
        seed: int = 0,
        **options: Unpack[EpochOptions],
    ) -> None:
        pairing = make_pairing(labels, pairs, self_pairs=self_pairs, same=same)
        super().__init__(pairing, batch_size, hardness=0.0, seed=seed, **options)
