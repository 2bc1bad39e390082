"""Batches that the ranks of a process group train on together, for loaders that deal whole batches to them."""

from collections.abc import Iterator

from torch.utils.data import BatchSampler

from lookalike.samplers import LSHBatchSampler


class DealtBatches(BatchSampler):
    """The batches of a sampler, each cut into one piece per rank; pieces of one batch follow each other.

    A loader that deals batch after batch to the ranks, as accelerate's does, gives them one batch at a time. So where a
    loss gathers the embeddings of all ranks, what is gathered was composed together: hard, and no label twice.

    Args:
        whole: A sampler of batches for all ranks together, all of one size: `drop_last=True`.
        num_ranks: How many there are.
    """

    def __init__(self, whole: LSHBatchSampler, num_ranks: int) -> None:
        self.whole, self.num_ranks = whole, num_ranks
        self.batch_size, self.drop_last = whole.batch_size // num_ranks, True
        self.sampler = whole.sampler

    def __len__(self) -> int:
        """Pieces per epoch."""
        return len(self.whole) * self.num_ranks

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.whole:
            for first in range(0, len(batch), self.batch_size):
                yield batch[first : first + self.batch_size]

    def set_epoch(self, epoch: int) -> None:
        """As `EpochBatchSampler.set_epoch`."""
        self.whole.set_epoch(epoch)
