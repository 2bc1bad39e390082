"""The course of a search on a GPU: limits by sampling, one scan, order, repair, for codes of any kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from lookalike.search import cuda_plan
from lookalike.search.nvrtc import Kernels, load_kernels
from lookalike.search.request import Neighbours, Request

if TYPE_CHECKING:
    from collections.abc import Iterator


class ShapeOfProducts(Protocol):
    """The layout of the products of a search."""

    @property
    def tiles(self) -> int:
        """Sixteens of queries that a warp holds in registers."""

    @property
    def warps(self) -> int:
        """Warps per block."""


class Codes(NamedTuple):
    """Codes as the kernels read them."""

    words: Tensor  # int32 [n, words]
    weights: Tensor | None  # int32 [n], padded; only of sign codes
    parts: Tensor | None  # int32 [n], padded, or float32 [n, 2]: what a column adds to a sum; only of the reference
    marks: Tensor | None  # int32 [n], padded: labels in 32 bits


class Sample(NamedTuple):
    """Some rows of the reference, in the order of their groups."""

    codes: Tensor  # int32 [samples, words]
    offsets: Tensor  # int32 [samples], what does not depend on the query in the value of a row
    marks: Tensor | None  # int32 [samples]
    ids: Tensor  # int64 [samples], ascending


class Search(ABC):
    """A search of one request; what depends on the kind of codes is left to a class for each."""

    def __init__(
        self, request: Request, words: int, shape: ShapeOfProducts, macros: tuple[tuple[str, int], ...]
    ) -> None:
        self.request, self.words, self.shape = request, words, shape
        self.device = request.query.device
        index = torch.cuda.current_device()
        self.kernels: Kernels = load_kernels(macros, index)
        self.processors = torch.cuda.get_device_properties(index).multi_processor_count
        self.spare = 0  # excluded rows per query that limits allow for, at most
        if request.exclude is not None:
            self.spare = max(request.k, 2 * len(request.exclude[1]) // request.num_queries)
        self.wide_labels = torch.zeros(1, dtype=torch.int32, device=self.device)
        shared = request.reference is request.query and request.reference_labels is request.query_labels
        self.reference = self._prepared(request.reference, request.reference_labels, True)
        self.query = self.reference if shared else self._prepared(request.query, request.query_labels, False)
        # What is prepared takes its part of the memory first: rows of bytes are several times as long as codes.
        scarcer = 1 if request.limits is None else cuda_plan.SCARCER
        sizes = (request.num_queries, request.num_references, request.k + self.spare)
        self.plan = cuda_plan.make_plan(*sizes, request.memory or cuda_plan.MEMORY, scarcer)
        if request.memory is None and not cuda_plan.fits(8 * self.plan.tile * self.plan.capacity):
            self.plan = cuda_plan.make_plan(*sizes, cuda_plan.affordable(self.device), scarcer)

    def run(self) -> Neighbours:
        """Search, tile by tile of the queries."""
        q, k = self.request.num_queries, self.request.k
        distances = torch.empty(q, k, dtype=torch.int32, device=self.device)
        indices = torch.empty(q, k, dtype=torch.int64, device=self.device)
        sample = self._sample() if self.plan.run else None
        bounds = None if self.request.limits is None else ((self.request.limits.long() + 1) << cuda_plan.ID_BITS) - 1
        tile, capacity = min(self.plan.tile, q), self.plan.capacity
        keys = torch.empty(tile, capacity, dtype=torch.int64, device=self.device)
        limits = torch.full((tile,), torch.iinfo(torch.int64).max, device=self.device)
        for rows in _slices(q, tile):
            size = rows.stop - rows.start
            zeros = torch.zeros(2 * size + 1, dtype=torch.int32, device=self.device)  # one launch for both
            counts, repairs = zeros[:size], zeros[size:]
            if sample is not None:
                self._limit(rows, sample, keys, limits)
            given = None if bounds is None else bounds[rows]
            if given is not None:
                limits[:size] = given if sample is None else torch.minimum(limits[:size], given)
            self._scan(rows, limits, keys, counts)
            room = max(cuda_plan.LANE_ROOM, min(_power_of_two(capacity), _power_of_two(k)))
            self._launch(
                "order",
                (-(-size // 4), 1),
                128,
                self.query.words[rows],
                self.reference.words,
                keys,
                counts,
                limits,
                given,
                distances[rows],
                indices[rows],
                repairs,
                size,
                capacity,
                room,
                k,
                (self.request.num_references - 1).bit_length(),
                shared=8 * room,
            )
            self._launch(
                "repair",
                (self.processors, 1),
                1024,
                self.query.words[rows],
                self.reference.words,
                *self._filters(rows),
                repairs,
                given,
                distances[rows],
                indices[rows],
                self.request.num_references,
                k,
                shared=8 * _power_of_two(k),
            )
        return Neighbours(distances, indices)

    def _limit(self, rows: slice, sample: Sample, keys: Tensor, limits: Tensor) -> None:
        """Compute the limits of some queries, using their lists, still empty, for the best of each group.

        A limit is a key that the scan, the order and the repair take from `limits`, whoever wrote it: a bound that is
        known beforehand, beyond which no row of the answer lies, could stand there instead.
        """
        size, stride = rows.stop - rows.start, 2 * self.plan.capacity
        blocks = -(-size // (16 * self.shape.tiles * self.shape.warps))
        parts = min(cuda_plan.GROUPS // 8, -(-8 * self.processors // blocks))
        self._launch(
            "survey" if sample.marks is None else "survey_marked",
            (blocks, parts),
            32 * self.shape.warps,
            self.query.words[rows],
            sample.codes,
            sample.offsets,
            part_of(self.query.marks, rows),
            sample.marks,
            keys,
            size,
            self.plan.run,
            stride,
            *self._for_survey(),
        )
        exclude_offsets = self._filters(rows)[2]
        self._launch(
            "limits",
            (-(-size // 8), 1),
            256,
            keys,
            *self._for_limits(rows),
            sample.ids,
            exclude_offsets,
            limits,
            size,
            stride,
            self.request.k,
            self.spare,
            len(sample.ids) / self.request.num_references,
            float(cuda_plan.DEVIATIONS),
        )

    @abstractmethod
    def _prepared(self, codes: Tensor, labels: Tensor | None, is_reference: bool) -> Codes:
        """Bring codes and labels into the form in which the kernels read them."""

    @abstractmethod
    def _for_survey(self) -> tuple[int, ...]:
        """Return what the survey takes besides codes and sample."""

    @abstractmethod
    def _for_limits(self, rows: slice) -> tuple[Tensor | int | None, ...]:
        """Return what makes a limit of a value of the survey."""

    @abstractmethod
    def _scan(self, rows: slice, limits: Tensor, keys: Tensor, counts: Tensor) -> None:
        """Append all rows within the limits to the lists, if filters admit them."""

    def _sample(self) -> Sample:
        """Copy the sample of the reference, in the order of its groups."""
        size = cuda_plan.GROUPS * self.plan.run
        ids, order = cuda_plan.sampled_rows(self.request.num_references, size, self.device, stream_of(self.device))
        marks = None if self.reference.marks is None else torch.empty(size, dtype=torch.int32, device=self.device)
        codes = torch.empty(size, self.words, dtype=torch.int32, device=self.device)
        sample = Sample(codes, torch.empty(size, dtype=torch.int32, device=self.device), marks, ids)
        drawn = (ids, order, sample.codes, sample.offsets, sample.marks)
        reference = (self.reference.words, self.reference.weights, self.reference.marks)
        self._launch("draw", (-(-size * self.words // 1024), 1), 256, *reference, *drawn, size)
        return sample

    def _filters(self, rows: slice) -> tuple[Tensor | None, ...]:
        """Return labels and exclude lists of some queries, as the kernels take them."""
        query_labels, (offsets, ids) = self.request.query_labels, self.request.exclude or (None, None)
        return (
            None if query_labels is None else query_labels[rows],
            self.request.reference_labels,
            None if offsets is None else offsets[rows.start : rows.stop + 1],
            ids,
        )

    def _span(self, blocks: int, step: int) -> int:
        """Return the columns per block: enough blocks for an even load, few enough to be worth starting."""
        n = self.request.num_references
        span = n * blocks // (64 * self.processors)
        return min(max(2 * step, -(-span // step) * step, -(-n // (65535 * step)) * step), 1 << 24)

    def _launch(
        self, name: str, grid: tuple[int, int], block: int, *arguments: Tensor | float | None, shared: int = 0
    ) -> None:
        self.kernels.launch(name, grid, block, *arguments, shared=shared)


def part_of(column: Tensor | None, rows: slice) -> Tensor | None:
    """Return what belongs to some rows of something that there may be for each."""
    return None if column is None else column[rows]


def stream_of(device: torch.device) -> int:
    """Name the current stream: what is computed on one is not yet there for another."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _power_of_two(n: int) -> int:
    return max(2, 1 << (n - 1).bit_length())
