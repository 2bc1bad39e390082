"""The share of a batch that each rank embeds, and what all ranks learn from each other's shares."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from lookalike.utils import ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor


@dataclass(frozen=True)
class Share:
    """Which pairs of a batch a rank embeds: consecutive ones, as many as any other rank or one fewer."""

    lengths: list[int]
    """Pairs of each rank."""
    bounds: tuple[int, int]
    """This rank's first pair, and the one after its last."""

    @classmethod
    def of(cls, pairs: int, rank: int, world_size: int) -> Share:
        """Return the share of a rank.

        Examples:
            >>> Share.of(8, rank=2, world_size=3)
            Share(lengths=[2, 3, 3], bounds=(5, 8))
        """
        edges = [pairs * each // world_size for each in range(world_size + 1)]
        lengths = [last - first for first, last in pairwise(edges)]
        return cls(lengths, (edges[rank], edges[rank + 1]))

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole batch."""
        return len(self.lengths) == 1

    @property
    def counted_rows(self) -> int | None:
        """How many of the embedded rows count: all of them (None), unless the share is empty."""
        return None if self.bounds[0] < self.bounds[1] else 0

    def is_divided(self, size: int | None) -> bool:
        """Return whether any rank has more than one chunk of at most `size` pairs."""
        return size is not None and max(self.lengths) > size

    def chunks(self, size: int | None) -> list[slice]:
        """Divide it into chunks of at most `size` pairs; an empty one is the batch's first pair, which does not count.

        Examples:
            >>> Share.of(8, rank=2, world_size=3).chunks(2)
            [slice(5, 7, None), slice(7, 8, None)]
        """
        first, last = self.bounds
        if first == last:
            return [slice(0, 1)]
        size = size or last - first
        return [slice(start, min(start + size, last)) for start in range(first, last, size)]


@contextmanager
def restored_on_error(counts: Tensor) -> Iterator[Tensor]:
    """Yield a copy of a count, and put it back if the block fails, as it does if a rank is lost."""
    before = counts.clone()
    try:
        yield before
    except BaseException:
        counts.copy_(before)
        raise


def everyones(
    share: Share, towers: Sequence[Tensor], negatives: int, loss: Tensor, counts: Tensor, counted_before: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Return the embeddings and the loss of the whole batch on every rank.

    Args:
        share: What this rank has embedded.
        towers: Its embeddings of queries, references and, if there are any, explicit negatives `[n * m, dim]`.
        negatives: How many of those each pair has.
        loss: The loss of its rows, of which the mean over all ranks is that of the batch.
        counts: What `InfoNCE.masked` is computed from, changed in place to count for all ranks.
        counted_before: What it was before the batch.

    Returns:
        Normalised queries and references `[n, dim]`, explicit negatives `[n, m, dim]`, all float32; and the loss.
    """
    normalised = [F.normalize(x.float(), dim=1) for x in towers]
    pairs, dim = normalised[0].shape
    by_pair = [*normalised[:2], *(x.view(pairs, negatives, dim) for x in normalised[2:])]
    if share.is_whole:
        return by_pair, loss
    packed = torch.cat([x.flatten(1) for x in by_pair], dim=1)  # [n, (2 + m) * dim]
    everyone = ranks.concatenated(packed, share.lengths).view(-1, 2 + negatives, dim)
    sums = ranks.sum_in_place(
        torch.cat([(loss / len(share.lengths)).double().view(1), (counts - counted_before).double()])
    )
    counts.copy_(counted_before + sums[1:].long())
    return [everyone[:, 0], everyone[:, 1], *([everyone[:, 2:]] if negatives else [])], sums[0].to(loss.dtype)
