"""Search by matrix products, on any torch device.

Sign codes are +-1 vectors, and their distance is (bits - dot product) / 2; codes of several bits are vectors of small
integers. The sums stay exact: float16 holds every integer up to 2048, float32 up to 2^24.
Within a tile, a key (distance, column) fits into 32 bits, which are selected from several times as fast as 64.
"""

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lookalike.hashing import Scheme
from lookalike.hashing.scheme import Integers
from lookalike.hashing.signs import unpack_bits
from lookalike.search.request import Neighbours, Request
from lookalike.utils.progress import progress_bar

QUERY_TILE = 1024
REFERENCE_TILE = 16384
CPU_QUERIES, CPU_REFERENCE_TILE = 256, 4096  # keys of a tile fit in a cache
ABSENT = torch.iinfo(torch.int64).max


def topk(request: Request) -> Neighbours:
    """Answer a request: the `matmul` backend."""
    vectors: _Vectors = _SignVectors(request) if request.scheme is None else _ScalarVectors(request.scheme)
    device = request.query.device.type
    distances, indices = [], []
    with (
        torch.autocast(device, enabled=False),  # bfloat16 holds integers up to 256 only
        progress_bar("searching", request.num_queries, shown=request.progress) as bar,
    ):
        for first in range(0, request.num_queries, QUERY_TILE):
            last = min(first + QUERY_TILE, request.num_queries)
            keys = _nearest_keys(request, first, last, vectors)
            found = keys != ABSENT
            distances.append(torch.where(found, keys >> 32, -1).to(torch.int32))
            indices.append(torch.where(found, keys & 0xFFFFFFFF, -1))
            bar.advance(last - first)
    return Neighbours(torch.cat(distances), torch.cat(indices))


class _Vectors(Protocol):
    """How codes become vectors, and dot products of these become keys."""

    def of(self, codes: Tensor) -> Any:
        """Unpack codes."""

    def keys(self, query: Any, part: slice, reference: Any, tile: int, columns: Tensor) -> Tensor:
        """Return distance * tile + column for some of the queries and the reference, in the type of the columns."""


class _SignVectors:
    def __init__(self, request: Request) -> None:
        self.bits = request.bits
        # Half-precision products are slow on CPUs, and crash on some virtual ones.
        self.dtype = torch.float16 if request.query.is_cuda and request.bits <= 2048 else torch.float32

    def of(self, codes: Tensor) -> Tensor:
        return unpack_bits(codes).to(self.dtype) * 2 - 1

    def keys(self, query: Tensor, part: slice, reference: Tensor, tile: int, columns: Tensor) -> Tensor:
        half = tile // 2
        return (query[part] @ reference.T).to(columns.dtype).mul_(-half).add_(columns + self.bits * half)


class _ScalarVectors:
    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme

    def of(self, codes: Tensor) -> Integers:
        integers = self.scheme.unpack(codes)
        return integers._replace(values=integers.values.float())

    def keys(self, query: Integers, part: slice, reference: Integers, tile: int, columns: Tensor) -> Tensor:
        products = (query.values[part] @ reference.values.T).to(torch.int32)
        rows = Integers(query.values, query.factors[part, None], query.offsets[part, None])
        return self.scheme.distances(products, rows, reference).to(columns.dtype).mul_(tile).add_(columns)


def _nearest_keys(request: Request, first: int, last: int, vectors: _Vectors) -> Tensor:
    """Return the k smallest keys (distance << 32 | id) per query, ascending: in order of (distance, id). [chunk, k]"""
    query, on_cpu = vectors.of(request.query[first:last]), request.query.device.type == "cpu"
    rows, tile = (CPU_QUERIES, CPU_REFERENCE_TILE) if on_cpu else (QUERY_TILE, REFERENCE_TILE)
    excluded_rows, excluded_ids = request.excluded_pairs(first, last)
    best = torch.full((last - first, request.k), ABSENT, device=request.query.device)
    narrow = torch.int32 if (request.farthest + 1) * tile < 1 << 31 else torch.int64
    absent = torch.iinfo(narrow).max
    for start in range(0, request.num_references, tile):
        stop = min(start + tile, request.num_references)
        reference = vectors.of(request.reference[start:stop])
        columns = torch.arange(stop - start, dtype=narrow, device=request.query.device)
        here = (excluded_ids >= start) & (excluded_ids < stop)
        tile_rows, tile_columns = excluded_rows[here], excluded_ids[here] - start
        for row in range(0, last - first, rows):
            part = slice(row, min(row + rows, last - first))
            keys = vectors.keys(query, part, reference, tile, columns)
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
