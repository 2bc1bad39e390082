"""Hamming search by matrix products of +-1 vectors, on any torch device: distance = (bits - dot product) / 2.

All values are small integers and the sums stay exact: float16 holds every integer up to 2048, float32 up to 2^24.
"""

import torch
from torch import Tensor

from lookalike.search.request import Neighbours, Request
from lookalike.utils.progress import progress_bar

QUERY_TILE = 1024
REFERENCE_TILE = 16384
ABSENT = torch.iinfo(torch.int64).max


def topk(request: Request) -> Neighbours:
    """Answer a request: the `matmul` backend of `hamming_topk`."""
    dtype, device = _dtype(request), request.query.device.type
    distances, indices = [], []
    with (
        torch.autocast(device, enabled=False),  # bfloat16 holds integers up to 256 only
        progress_bar("searching", request.num_queries, shown=request.progress) as bar,
    ):
        for first in range(0, request.num_queries, QUERY_TILE):
            last = min(first + QUERY_TILE, request.num_queries)
            keys = _nearest_keys(request, first, last, dtype)
            found = keys != ABSENT
            distances.append(torch.where(found, keys >> 32, -1).to(torch.int32))
            indices.append(torch.where(found, keys & 0xFFFFFFFF, -1))
            bar.advance(last - first)
    return Neighbours(torch.cat(distances), torch.cat(indices))


def _nearest_keys(request: Request, first: int, last: int, dtype: torch.dtype) -> Tensor:
    """Return the k smallest keys (distance << 32 | id) per query, ascending: in order of (distance, id). [chunk, k]"""
    query = _signs(request.query[first:last], dtype)
    excluded_rows, excluded_ids = request.excluded_pairs(first, last)
    best = torch.full((last - first, request.k), ABSENT, device=query.device)
    for start in range(0, request.num_references, REFERENCE_TILE):
        stop = min(start + REFERENCE_TILE, request.num_references)
        dot = query @ _signs(request.reference[start:stop], dtype).T
        keys = ((request.bits - dot.to(torch.int64)) // 2) << 32  # [chunk, tile]
        keys |= torch.arange(start, stop, device=keys.device)
        if request.query_labels is not None and request.reference_labels is not None:
            same = request.query_labels[first:last, None] == request.reference_labels[start:stop]
            keys.masked_fill_(same, ABSENT)
        here = (excluded_ids >= start) & (excluded_ids < stop)
        keys[excluded_rows[here], excluded_ids[here] - start] = ABSENT
        if request.limits is not None:
            keys.masked_fill_(keys >> 32 > request.limits[first:last, None], ABSENT)
        near = keys.topk(min(request.k, stop - start), largest=False).values
        best = torch.cat([best, near], dim=1).topk(request.k, largest=False, sorted=True).values
    return best


def _signs(codes: Tensor, dtype: torch.dtype) -> Tensor:
    """Unpack codes uint8 [n, bytes] into +-1 [n, bits]."""
    shifts = torch.arange(8, dtype=torch.uint8, device=codes.device)
    return ((codes.unsqueeze(-1) >> shifts) & 1).flatten(1).to(dtype) * 2 - 1


def _dtype(request: Request) -> torch.dtype:
    # Half-precision products are slow on CPUs, and crash on some virtual ones.
    return torch.float16 if request.query.is_cuda and request.bits <= 2048 else torch.float32
