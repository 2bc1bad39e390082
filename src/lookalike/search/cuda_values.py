"""Search of codes of several bits on NVIDIA GPUs: unpacked into bytes, which tensor cores multiply.

The course is that of any search there. The scan tests sums of products in a way that never misses a hit and lets a few
other rows pass, and computes the distances of what passes from the same products, as integers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lookalike.search import cuda_plan
from lookalike.search.cuda_search import Codes, Search, part_of, stream_of

if TYPE_CHECKING:
    from lookalike.hashing import Scheme
    from lookalike.search.request import Request

SLICE = 32  # values that one product takes of each row
MAX_DIMS = 1024
MAX_GROUPS, MAX_WIDTH = 6, 8  # of dimensions, and bits in one
CLOSENESS_BITS = 15
SPAN_STEP = 512  # a multiple of any stage


class Shape(NamedTuple):
    """The layout of the products for one number of values: macros of the kernels."""

    tiles: int  # sixteens of queries that a warp holds in registers
    warps: int  # per block
    resident: int  # blocks per multiprocessor, which bounds the registers
    stage: int  # columns in shared memory at a time; another stage of them is on its way


SHAPES = {  # by the most slices of values
    6: Shape(4, 4, 3, 64),
    9: Shape(4, 4, 2, 64),
    13: Shape(2, 4, 3, 32),
    20: Shape(2, 4, 2, 32),
    32: Shape(1, 4, 2, 32),
}


class Tables(NamedTuple):
    """What codes of a scheme are read with, on a device."""

    levels: Tensor  # int8
    factors: Tensor  # int32 [256]
    offsets: Tensor  # int32 [256]
    extremes: Tensor  # float32 [3]: the least factor, the largest offset, and the one farthest from zero


def takes(scheme: Scheme) -> bool:
    """Return whether the kernels read codes of this scheme."""
    narrow = all(width <= MAX_WIDTH for width, _ in scheme.groups)
    return scheme.dims <= MAX_DIMS and len(scheme.groups) <= MAX_GROUPS and narrow


def slices_of(scheme: Scheme) -> int:
    """Return how many products the values of a row take."""
    return max(1, -(-scheme.dims // SLICE))


def macros_of(slices: int) -> tuple[tuple[str, int], ...]:
    """Return what to define for a number of slices."""
    shape = next(shape for most, shape in SHAPES.items() if slices <= most)
    return tuple((name.upper(), value) for name, value in {"slices": slices, **shape._asdict()}.items())


@lru_cache(maxsize=8)
def tables_of(scheme: Scheme, device: torch.device, _stream: int) -> Tables:
    """Move the tables of a scheme to a device; only the first search with it on a stream may wait for that."""
    here = scheme.to(device)
    extremes = torch.stack([here.factors.min(), here.offsets.max(), here.offsets.abs().max()]).float()
    return Tables(here.levels, here.factors, here.offsets, extremes)


class ValueSearch(Search):
    """A search of codes of several bits."""

    def __init__(self, request: Request, scheme: Scheme) -> None:
        self.scheme = scheme
        self.tables = tables_of(scheme, request.query.device, stream_of(request.query.device))
        slices = slices_of(scheme)
        self.layout = next(shape for most, shape in SHAPES.items() if slices <= most)
        super().__init__(request, 8 * slices + 4, self.layout, macros_of(slices))

    def _prepared(self, codes: Tensor, labels: Tensor | None, is_reference: bool) -> Codes:
        padded = -(-len(codes) // cuda_plan.ALIGNMENT) * cuda_plan.ALIGNMENT
        rows = torch.empty(len(codes), self.words, dtype=torch.int32, device=self.device)
        parts = torch.empty(padded, 2, dtype=torch.float32, device=self.device) if is_reference else None
        marks = None if labels is None else torch.empty(padded, dtype=torch.int32, device=self.device)
        groups = [width << 32 | count for width, count in self.scheme.groups]
        self._launch(
            "prepare",
            (-(-len(codes) * (self.words // 4) // 256), 1),
            256,
            codes,
            labels,
            *self.tables[:3],
            self.scheme.shift,
            *groups,
            *[0] * (MAX_GROUPS - len(groups)),
            rows,
            parts,
            marks,
            self.wide_labels,
            len(codes),
            codes.shape[1],
        )
        return Codes(rows, None, parts, marks)

    def _place_bits(self) -> int:
        return (cuda_plan.GROUPS * self.plan.run - 1).bit_length()

    def _for_survey(self) -> tuple[int, ...]:
        bits = self._place_bits()
        return bits, max(0, CLOSENESS_BITS + bits - 32)

    def _for_limits(self, rows: slice) -> tuple[Tensor | int | None, ...]:
        return self.query.words[rows], self.reference.words, self._place_bits()

    def _scan(self, rows: slice, limits: Tensor, keys: Tensor, counts: Tensor) -> None:
        size, n, shape = rows.stop - rows.start, self.request.num_references, self.layout
        blocks = -(-size // (16 * shape.tiles * shape.warps))
        span = self._span(blocks, SPAN_STEP)
        values = 64 * -(-(self.words - 4) // 16)  # bytes of a column, in whole blocks
        self._launch(
            "filter",
            (blocks, -(-n // span)),
            32 * shape.warps,
            self.query.words[rows],
            self.reference.words,
            self.reference.parts,
            part_of(self.query.marks, rows),
            self.reference.marks,
            self.wide_labels,
            self.tables.extremes,
            limits,
            *self._filters(rows),
            keys,
            counts,
            size,
            n,
            self.plan.capacity,
            span,
            shared=2 * shape.stage * (values + 16 + 8 + 4),
        )
