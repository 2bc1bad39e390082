"""Random batches, one pair per label: the baseline."""

from typing import Any

from lookalike.samplers.epochs import EpochBatchSampler


class RandomBatchSampler(EpochBatchSampler):
    """Random pairs; the only rule is that no label stands twice in a batch.

    Args:
        labels: Integers, one per sample; or, with `pairs`, one per pair or None.
        batch_size: Sample ids per batch, two per pair; with `pairs`, pair ids per batch.
        pairs: Number of pairs of a paired data set.
        seed: Decides the order; the same on all ranks.
        drop_last: Leave out the last batch if it is short.
        self_pairs: Pair a label's only sample with itself instead of leaving it out.
        shard: Deal batches to the ranks of `torch.distributed`; False where the loader does that.

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
        seed: int = 0,
        drop_last: bool = False,
        self_pairs: bool = False,
        shard: bool = True,
    ) -> None:
        super().__init__(
            labels,
            batch_size,
            pairs=pairs,
            hardness=0.0,
            seed=seed,
            drop_last=drop_last,
            self_pairs=self_pairs,
            shard=shard,
        )
