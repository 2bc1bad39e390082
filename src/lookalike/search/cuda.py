"""Exact Hamming search on NVIDIA GPUs: binary tensor cores compare all pairs, sampled limits discard nearly all.

1. *Limits by sampling.* Each query is compared with a sample of the reference. One of its nearest samples, by the key
   (distance, id), becomes its limit, which slightly more than k rows of the reference should stay within. Keys have no
   ties, so this works even for codes that are all equal. Where the request has limits, a smaller sample guards against
   those that let too many rows pass.
2. *One scan.* Rows within the limit are appended to the query's list, in any order.
3. *Order.* Lists are sorted by key, so the order of arrival does not matter.
4. *Repair.* A list that is too short or overflowed proves nothing; its query is searched again without a limit, or with
   that of the request.

Everything runs on the caller's current stream, and nothing waits for the device: only the device knows which queries
need repair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lookalike.search.nvrtc import Kernels, cuda_core, load_kernels
from lookalike.search.request import Neighbours, Request

if TYPE_CHECKING:
    from collections.abc import Iterator


class Shape(NamedTuple):
    """The layout of the products for one code length: macros of the kernels."""

    tiles: int  # sixteens of queries that a warp holds in registers
    warps: int  # per block
    resident: int  # blocks per multiprocessor, which bounds the registers
    queue: int = 160  # length of a warp's queue of hits


SHAPES = {  # by words of 32 bits; codes are padded to the next length
    4: Shape(8, 8, 2),
    8: Shape(8, 4, 4),
    16: Shape(8, 4, 3),
    24: Shape(8, 4, 2),
    32: Shape(8, 4, 2),
    48: Shape(2, 4, 3),
    64: Shape(2, 4, 3),
}


class HopperShape(NamedTuple):
    """The layout of the scan on GPUs of compute capability 9.0, for one code length: macros of the kernels."""

    warpgroups: int  # per block
    stripes: int  # of 64 queries, which a warpgroup holds in registers
    blocks: int  # per multiprocessor, which bounds the registers
    stage: int  # columns in shared memory at a time; another stage of them is on its way
    queue: int = 288  # length of a warp's queue of hits


HOPPER_SHAPES = {
    4: HopperShape(4, 2, 1, 2048),
    8: HopperShape(4, 2, 1, 1024),
    16: HopperShape(4, 2, 1, 1024),
    24: HopperShape(3, 1, 1, 512),
    32: HopperShape(4, 2, 1, 512),
    48: HopperShape(3, 1, 1, 256),
    64: HopperShape(4, 1, 1, 256),
}
# Rows from which this scan is faster than that by single warps. Its warps wait for each other's hits: the fewer of the
# rows are hits, the less.
HOPPER_FROM = {4: 1 << 24, 8: 1 << 24, 16: 1 << 20, 24: 1 << 20, 32: 0, 48: 0, 64: 0}
HOPPER = (9, 0)  # the compute capability that has asynchronous products of bits
MAX_BITS = 32 * max(SHAPES)
MAX_K = 4096  # neighbours that can be sorted in the shared memory of any device
GROUPS, PLACE_BITS, CHUNK, ID_BITS = 512, 19, 2048, 40  # as in the kernels
LANE_ROOM = 2048  # keys in shared memory with which warps put four lists in order
ALIGNMENT = 2048  # columns to which weights, parts and marks are padded
DIRECT = 4096  # rows up to which a reference is searched without a sample
DEVIATIONS = 3.5  # standard deviations by which a limit is wider than needed on average
SCARCER = 8  # how many times smaller the sample is where the request has limits
MEMORY = 1 << 32  # bytes of working memory, at most


@dataclass(frozen=True)
class Plan:
    """The sizes of a search; they do not change the answer."""

    capacity: int  # keys per list
    run: int  # columns in each of GROUPS groups of the sample; 0: no sample, no limits
    tile: int  # queries at a time


def topk(request: Request) -> Neighbours:
    """Answer a request: the `cuda` backend of `hamming_topk`."""
    with torch.cuda.device(request.query.device):
        return _Search(request).run()


def obstacle(device: torch.device, bits: int, k: int) -> str | None:
    """Return why this backend cannot search such codes on this device (or the current one), or None if it can."""
    try:
        cuda_core()
    except ImportError as error:
        return f"cuda-core is missing ({error}; pip install 'lookalike[cuda]')"
    if torch.version.hip is not None or not torch.cuda.is_available():
        return "there is no NVIDIA GPU"
    capability = torch.cuda.get_device_capability(device if device.type == "cuda" else None)
    if capability < (8, 0):
        return f"the CUDA kernels need compute capability 8.0, and this GPU has {capability[0]}.{capability[1]}"
    if bits > MAX_BITS:
        return f"the CUDA kernels take codes of up to {MAX_BITS} bits, and these have {bits}"
    if k > MAX_K:
        return f"the CUDA kernels take k up to {MAX_K}, got {k}"
    return None


def make_plan(num_queries: int, n: int, asked: int, memory: int, scarcer: int = 1) -> Plan:
    """Size the sample, the lists and the tiles of queries for `asked` rows per query.

    A sample of n / 16 rows holds a sixteenth of a query's nearest on average. The limit is `DEVIATIONS` standard
    deviations beyond that, so that few queries come up short, and lists have room for six more. The sample should hold
    at most half as many of a query's nearest as it has groups, because each group names only one row. `scarcer` divides
    the sample, where most limits are known beforehand.
    """
    run, capacity = 0, n
    if n > max(DIRECT, 5 * asked):
        run = max(8, -(-n // (GROUPS * scarcer * (16 if n < 1 << 21 else 32))))
        run = min(run, n // (2 * asked), n // GROUPS, (1 << PLACE_BITS) // GROUPS)
        share = GROUPS * run / n
        mean = asked * share
        wanted = mean + DEVIATIONS * math.sqrt(mean) + 1
        capacity = min(n, max(GROUPS // 2, asked, math.ceil(wanted / share * (1 + 6 / math.sqrt(wanted)))))
    affordable = max(1, memory // (8 * capacity + 24))
    tiles = -(-num_queries // affordable)
    return Plan(capacity, run, -(-num_queries // tiles))


@lru_cache(maxsize=8)
def sampled_rows(n: int, size: int, device: torch.device, _stream: int) -> tuple[Tensor, Tensor]:
    """Draw one row at random from each of `size` equal stretches of n rows; return their ids and their order.

    Rows are assigned to groups at random, because data are often sorted and a group names only one row. The next search
    of as many rows on the same stream uses the same sample.
    """
    places = torch.arange(size, device=device)
    first, after = places * n // size, (places + 1) * n // size
    ids = first + (places * 0x9E3779B1 >> 7) % (after - first)
    order = torch.randperm(size, generator=torch.Generator(device).manual_seed(0), device=device)
    return ids, order.to(torch.int32)


def macros_of(words: int, hopper: HopperShape | None) -> tuple[tuple[str, int], ...]:
    """Return what to define for a code length, for Hopper or for any GPU."""
    macros = {"words": words, **SHAPES[words]._asdict()}
    if hopper is not None:
        macros |= {"hopper": 1, **hopper._asdict()}
    return tuple((name.upper(), value) for name, value in macros.items())


class _Codes(NamedTuple):
    words: Tensor  # int32 [n, words]
    weights: Tensor  # int32 [n], padded
    parts: Tensor | None  # int32 [n], padded: what a column adds to a sum; only of the reference
    marks: Tensor | None  # int32 [n], padded: labels in 32 bits


class _Sample(NamedTuple):
    codes: Tensor  # int32 [samples, words]
    offsets: Tensor  # int32 [samples], the column's part of closeness << PLACE_BITS | place
    marks: Tensor | None  # int32 [samples]
    ids: Tensor  # int64 [samples], ascending


class _Search:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.device = request.query.device
        self.words = next(words for words in SHAPES if request.bits <= 32 * words)
        self.shape = SHAPES[self.words]
        index = torch.cuda.current_device()
        pays = request.num_references >= HOPPER_FROM[self.words]
        self.hopper = HOPPER_SHAPES[self.words] if pays and torch.cuda.get_device_capability(index) == HOPPER else None
        self.kernels: Kernels = load_kernels(macros_of(self.words, self.hopper), index)
        self.processors = torch.cuda.get_device_properties(index).multi_processor_count
        self.spare = 0  # excluded rows per query that limits allow for, at most
        if request.exclude is not None:
            self.spare = max(request.k, 2 * len(request.exclude[1]) // request.num_queries)
        scarcer = 1 if request.limits is None else SCARCER
        sizes = (request.num_queries, request.num_references, request.k + self.spare)
        self.plan = make_plan(*sizes, request.memory or MEMORY, scarcer)
        if request.memory is None and not _fits(8 * self.plan.tile * self.plan.capacity):
            self.plan = make_plan(*sizes, _affordable(self.device), scarcer)
        self.wide_labels = torch.zeros(1, dtype=torch.int32, device=self.device)
        shared = request.reference is request.query and request.reference_labels is request.query_labels
        self.reference = self._prepared(request.reference, request.reference_labels, True)
        self.query = self.reference if shared else self._prepared(request.query, request.query_labels, False)

    def run(self) -> Neighbours:
        q, k = self.request.num_queries, self.request.k
        distances = torch.empty(q, k, dtype=torch.int32, device=self.device)
        indices = torch.empty(q, k, dtype=torch.int64, device=self.device)
        sample = self._sample() if self.plan.run else None
        bounds = None if self.request.limits is None else ((self.request.limits.long() + 1) << ID_BITS) - 1
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
            room = max(LANE_ROOM, min(_power_of_two(capacity), _power_of_two(k)))
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

    def _limit(self, rows: slice, sample: _Sample, keys: Tensor, limits: Tensor) -> None:
        """Compute the limits of some queries, using their lists, still empty, for the best of each group.

        A limit is a key that the scan, the order and the repair take from `limits`, whoever wrote it: a bound that is
        known beforehand, beyond which no row of the answer lies, could stand there instead.
        """
        size, stride = rows.stop - rows.start, 2 * self.plan.capacity
        blocks = -(-size // (16 * self.shape.tiles * self.shape.warps))
        parts = min(GROUPS // 8, -(-8 * self.processors // blocks))
        self._launch(
            "survey" if sample.marks is None else "survey_marked",
            (blocks, parts),
            32 * self.shape.warps,
            self.query.words[rows],
            sample.codes,
            sample.offsets,
            _part(self.query.marks, rows),
            sample.marks,
            keys,
            size,
            self.plan.run,
            stride,
        )
        exclude_offsets = self._filters(rows)[2]
        self._launch(
            "limits",
            (-(-size // 8), 1),
            256,
            keys,
            self.query.weights[rows],
            sample.ids,
            exclude_offsets,
            limits,
            size,
            stride,
            self.request.k,
            self.spare,
            len(sample.ids) / self.request.num_references,
            float(DEVIATIONS),
        )

    def _scan(self, rows: slice, limits: Tensor, keys: Tensor, counts: Tensor) -> None:
        """Append the keys of all rows within the limits to the lists."""
        size, n, shape = rows.stop - rows.start, self.request.num_references, self.hopper
        if shape is None:
            height, step, block, shared = 16 * self.shape.tiles * self.shape.warps, CHUNK, 32 * self.shape.warps, 0
        else:
            height, step, block = 64 * shape.stripes * shape.warpgroups, shape.stage, 128 * shape.warpgroups
            shared = 2 * (self.words // 4 * (16 * step + 32) + 8 * step)
        blocks = -(-size // height)
        span = self._span(blocks, step)
        self._launch(
            "filter",
            (blocks, -(-n // span)),
            block,
            self.query.words[rows],
            self.reference.words,
            self.query.weights[rows],
            self.reference.parts,
            _part(self.query.marks, rows),
            self.reference.marks,
            self.wide_labels,
            limits,
            *self._filters(rows),
            keys,
            counts,
            size,
            n,
            self.plan.capacity,
            span,
            shared=shared,
        )

    def _prepared(self, codes: Tensor, labels: Tensor | None, is_reference: bool) -> _Codes:
        words = _padded(codes, self.words, 8 if is_reference and self.hopper is None else 1)
        padded = -(-len(codes) // ALIGNMENT) * ALIGNMENT

        def column() -> Tensor:
            return torch.empty(padded, dtype=torch.int32, device=self.device)

        prepared = _Codes(words, column(), column() if is_reference else None, None if labels is None else column())
        self._launch(
            "prepare", (padded // 256, 1), 256, words, labels, *prepared[1:], self.wide_labels, len(codes), padded
        )
        return prepared

    def _sample(self) -> _Sample:
        """Copy the sample of the reference, in the order of its groups."""
        size = GROUPS * self.plan.run
        ids, order = sampled_rows(self.request.num_references, size, self.device, _stream(self.device))
        marks = None if self.reference.marks is None else torch.empty(size, dtype=torch.int32, device=self.device)
        codes = torch.empty(size, self.words, dtype=torch.int32, device=self.device)
        sample = _Sample(codes, torch.empty(size, dtype=torch.int32, device=self.device), marks, ids)
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


def _padded(codes: Tensor, words: int, multiple: int) -> Tensor:
    """Pad uint8 [n, bytes] with zeros to int32 [padded, words]; a view if there is nothing to pad."""
    n, num_bytes = codes.shape
    if num_bytes == 4 * words and n % multiple == 0 and codes.data_ptr() % 16 == 0:
        return codes.view(torch.int32)
    padded = torch.zeros(-(-n // multiple) * multiple, 4 * words, dtype=torch.uint8, device=codes.device)
    padded[:n, :num_bytes] = codes
    return padded.view(torch.int32)


def _part(column: Tensor | None, rows: slice) -> Tensor | None:
    return None if column is None else column[rows]


def _affordable(device: torch.device) -> int:
    """Return the bytes of working memory to use: at most half of what is free, or reserved by torch and free."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min(MEMORY, (torch.cuda.mem_get_info(device)[0] + unused) // 2)


def _fits(num_bytes: int) -> bool:
    """Return whether this is at most half of the memory that nobody has; torch's own accounts take longer to read."""
    return num_bytes <= torch.cuda.mem_get_info()[0] // 2


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _power_of_two(n: int) -> int:
    return max(2, 1 << (n - 1).bit_length())
