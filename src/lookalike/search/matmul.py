"""Hamming search by matrix products of +-1 vectors, on any torch device: distance = (bits - dot product) / 2.

All values are small integers and the sums stay exact: float16 holds every integer up to 2048, float32 up to 2^24.
Within a tile, a key (distance, column) fits into 32 bits, which are selected from several times as fast as 64.
"""

import numpy as np
import torch
from torch import Tensor

from lookalike.search.request import Neighbours, Request
from lookalike.utils.progress import progress_bar

QUERY_TILE = 1024
REFERENCE_TILE = 16384
CPU_QUERIES, CPU_REFERENCE_TILE = 256, 4096  # keys of a tile fit in a cache
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
    query, on_cpu = _signs(request.query[first:last], dtype), request.query.device.type == "cpu"
    rows, tile = (CPU_QUERIES, CPU_REFERENCE_TILE) if on_cpu else (QUERY_TILE, REFERENCE_TILE)
    excluded_rows, excluded_ids = request.excluded_pairs(first, last)
    best = torch.full((last - first, request.k), ABSENT, device=query.device)
    narrow = torch.int32 if (request.bits + 1) * tile < 1 << 31 else torch.int64
    absent = torch.iinfo(narrow).max
    for start in range(0, request.num_references, tile):
        stop = min(start + tile, request.num_references)
        reference = _signs(request.reference[start:stop], dtype).T
        columns = torch.arange(stop - start, dtype=narrow, device=query.device) + request.bits * (tile // 2)
        here = (excluded_ids >= start) & (excluded_ids < stop)
        tile_rows, tile_columns = excluded_rows[here], excluded_ids[here] - start
        for row in range(0, last - first, rows):
            part = slice(row, min(row + rows, last - first))
            keys = (query[part] @ reference).to(narrow)
            keys.mul_(-(tile // 2)).add_(columns)  # distance * tile + column
            if request.query_labels is not None and request.reference_labels is not None:
                labels = request.query_labels[first:last][part]
                keys.masked_fill_(labels[:, None] == request.reference_labels[start:stop], absent)
            if request.limits is not None:
                beyond = (request.limits[first:last][part, None] + 1).to(narrow) * tile
                keys.masked_fill_(keys >= beyond, absent)
            inside = (tile_rows >= part.start) & (tile_rows < part.stop)
            keys[tile_rows[inside] - part.start, tile_columns[inside]] = absent
            near = _smallest(keys, request.k)
            wide = (near // tile).long() << 32 | (near % tile + start)
            wide.masked_fill_(near == absent, ABSENT)
            best[part] = _smallest(torch.cat([best[part], wide], dim=1), request.k)
    return best.sort(dim=1).values


def _smallest(keys: Tensor, k: int) -> Tensor:
    """Return the k smallest keys of each row, or all, in any order."""
    if k >= keys.shape[1]:
        return keys
    if keys.device.type != "cpu":
        return keys.topk(k, largest=False).values
    return torch.from_numpy(np.partition(keys.numpy(), k - 1, axis=1)[:, :k])  # in vectors, as torch does not


def _signs(codes: Tensor, dtype: torch.dtype) -> Tensor:
    """Unpack codes uint8 [n, bytes] into +-1 [n, bits]."""
    shifts = torch.arange(8, dtype=torch.uint8, device=codes.device)
    return ((codes.unsqueeze(-1) >> shifts) & 1).flatten(1).to(dtype) * 2 - 1


def _dtype(request: Request) -> torch.dtype:
    # Half-precision products are slow on CPUs, and crash on some virtual ones.
    return torch.float16 if request.query.is_cuda and request.bits <= 2048 else torch.float32
