"""Merge the neighbours of one page of the reference into those of the pages before it."""

import torch
from torch import Tensor

from lookalike.search.choice import is_loaded
from lookalike.search.request import Neighbours

FAR = torch.iinfo(torch.int32).max
ROOM = 1 << 22  # neighbours that are merged at a time


def keep_nearest(best: Neighbours, found: Neighbours, first: int) -> None:
    """Put what was found in a page into the answer so far, in place; ids of the page count from `first`.

    They come after all ids in the answer, so where distances tie, its own neighbours stay ahead.
    """
    if best.indices.device.type == "cpu" and is_loaded():
        from lookalike.search.merge_kernel import merge_rows  # noqa: PLC0415 - loads numba

        merge_rows(best.distances.numpy(), best.indices.numpy(), found.distances.numpy(), found.indices.numpy(), first)
        return
    width = int((found.indices >= 0).any(0).sum())
    step = max(1, ROOM // (best.indices.shape[1] + width))
    for start in range(0, len(best.indices) if width else 0, step):
        rows = slice(start, start + step)
        ids = found.indices[rows, :width]
        more = Neighbours(found.distances[rows, :width], torch.where(ids < 0, ids, ids + first))
        _merge(Neighbours(best.distances[rows], best.indices[rows]), more)


def _merge(best: Neighbours, more: Neighbours) -> None:
    """Move every neighbour to its place: as many further as the other list has neighbours ahead of it."""
    k = best.indices.shape[1]
    held, new = (_padded_far(part.distances) for part in (best, more))
    new_places = torch.searchsorted(held, new, right=True) + torch.arange(new.shape[1], device=new.device)
    held_places = torch.searchsorted(new, held) + torch.arange(k, device=new.device)
    for mine, theirs in zip(best, more, strict=True):
        both = mine.new_empty(len(mine), k + new.shape[1])
        both.scatter_(1, held_places, mine).scatter_(1, new_places, theirs)
        mine.copy_(both[:, :k])


def _padded_far(distances: Tensor) -> Tensor:
    return distances.masked_fill(distances < 0, FAR).contiguous()
