"""Queries and references, laid out for the compiled scan: rows side by side, so that one vector holds many."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lookalike.hashing.scheme import FACTORS_SHIFT, ONE
from lookalike.search import simd, simd_scalar
from lookalike.search.scan import Columns, Rows, Terms

if TYPE_CHECKING:
    import torch

    from lookalike.hashing import Scheme
    from lookalike.search.request import Request
    from lookalike.utils.arrays import Array


class Queries(NamedTuple):
    """The queries of a scan."""

    rows: Rows
    terms: Array | None  # int32 [groups, 3, GROUP], of codes of several bits


class References(NamedTuple):
    """The reference of a scan, or a sample of it."""

    columns: Columns
    terms: Array | None  # int32 [tiles, 2, TILE], of codes of several bits
    shifts: int = 0

    def terms_with(self, queries: Queries) -> Terms | None:
        """Return what turns dot products with the queries into distances; None for sign codes."""
        if queries.terms is None or self.terms is None:
            return None
        return Terms(queries.terms, self.terms, self.shifts)


def lay_out_queries(request: Request) -> Queries:
    """Lay out the queries of a request."""
    offsets, ids = request.exclude or (None, None)
    others = _int64(request.query_labels), _int64(offsets), _int64(ids)
    if request.scheme is None:
        codes = _interleaved(request.query.numpy(), simd.ROWS, simd.GROUP)
        groups = simd.twice(codes).reshape(-1, simd.GROUP // simd.ROWS, *codes.shape[1:])
        return Queries(Rows(groups, *others), None)
    values, terms = _unpacked(request.query, request.scheme, simd.GROUP)
    sums, factors, offset = -simd_scalar.SIGN * values.sum(1, dtype=np.int32), terms[0], ONE - terms[1]
    by_group = np.stack([sums, factors, offset]).reshape(3, -1, simd.GROUP).swapaxes(0, 1)
    groups = _words_side_by_side(values, simd.ROWS).reshape(len(by_group), simd.GROUP // simd.ROWS, -1, simd.ROWS)
    return Queries(Rows(groups, *others), np.ascontiguousarray(by_group))


def lay_out_reference(request: Request, stride: int = 1) -> References:
    """Lay out the reference of a request, or every `stride`-th row of it."""
    codes = request.reference[::stride]
    labels = None if request.reference_labels is None else request.reference_labels[::stride].contiguous()
    others = _int64(labels), len(codes), stride, request.num_references.bit_length()
    if request.scheme is None:
        blocks = _interleaved(codes.numpy(), simd.LANES, simd.TILE)
        tiles = blocks.reshape(-1, simd.TILE // simd.LANES, *blocks.shape[1:])
        return References(Columns(tiles, *others), None)
    values, terms = _unpacked(codes, request.scheme, simd.TILE)
    unsigned = (values.view(np.uint8) ^ simd_scalar.SIGN).view(np.int8)  # plus 128
    blocks = _words_side_by_side(unsigned, simd_scalar.LANES)
    tiles = blocks.reshape(len(values) // simd.TILE, simd.TILE // simd_scalar.LANES, -1, simd_scalar.LANES)
    by_tile = np.ascontiguousarray(terms.reshape(2, -1, simd.TILE).swapaxes(0, 1))
    return References(Columns(tiles, *others), by_tile, FACTORS_SHIFT | request.scheme.shift << 8)


def _int64(values: torch.Tensor | None) -> Array:
    return np.empty(0, np.int64) if values is None else values.numpy()


def _interleaved(codes: Array, lanes: int, multiple: int) -> Array:
    """Lay out [n, bytes] as uint16 [blocks, slots, lanes], 64-byte aligned: one slot of `lanes` rows side by side."""
    if codes.shape[1] % 2:
        codes = np.pad(codes, ((0, 0), (0, 1)))
    words = np.ascontiguousarray(codes).view(np.uint16)
    num_rows = -(-len(words) // multiple) * multiple
    blocks = _aligned((num_rows // lanes, simd.num_slots(words.shape[1]), lanes), np.uint16)
    blocks[:] = 0
    simd.interleave(words, blocks)
    return blocks


def _unpacked(codes: torch.Tensor, scheme: Scheme, multiple: int) -> tuple[Array, Array]:
    """Unpack codes into int8 [n, dims] and int32 [2, n], factors and offsets, both padded with zeros."""
    integers = scheme.unpack(codes)
    missing = -len(codes) % multiple
    values = np.pad(integers.values.numpy(), ((0, missing), (0, -scheme.dims % 4)))
    terms = np.pad(np.stack([integers.factors.numpy(), integers.offsets.numpy()]), ((0, 0), (0, missing)))
    return values, terms


def _words_side_by_side(values: Array, lanes: int) -> Array:
    """Lay out int8 [n, 4 words] as uint32 [n / lanes, words, lanes], 64-byte aligned."""
    words = np.ascontiguousarray(values).view(np.uint32)
    blocks = _aligned((len(words) // lanes, words.shape[1], lanes), np.uint32)
    blocks[:] = words.reshape(-1, lanes, words.shape[1]).swapaxes(1, 2)
    return blocks


def _aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Allocate an array that starts at a multiple of 64 bytes."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    array: Array = memory[start : start + size].view(dtype).reshape(shape)
    return array
