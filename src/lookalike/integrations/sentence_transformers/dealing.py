"""Batches composed for all ranks together, for loaders that deal whole batches to the ranks."""

from collections.abc import Iterator

from torch.utils.data import BatchSampler

from lookalike.samplers import LSHBatchSampler


class DealtBatches(BatchSampler):
    """This rank's share of every batch, repeated once per rank, so that a loader that deals batches gets it back.

    On n ranks accelerate's loaders take every n-th batch. Where the loss gathers the embeddings of all ranks, what it
    gathers should have been composed together: hard, and no label twice. The sampler composes such batches and takes
    this rank's share; whichever of the repetitions the loader picks, it gets that share.

    Args:
        share: A sampler that shards its batches, all of one size: `shard=True, drop_last=True`.
        num_ranks: How many ranks there are.
    """

    def __init__(self, share: LSHBatchSampler, num_ranks: int) -> None:
        self.share, self.num_ranks = share, num_ranks
        self.batch_size, self.drop_last = share.batch_size, True
        self.sampler = share.sampler

    def __len__(self) -> int:
        return len(self.share) * self.num_ranks

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.share:
            for _ in range(self.num_ranks):
                yield batch

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch, as `EpochBatchSampler.set_epoch` does."""
        self.share.set_epoch(epoch)
