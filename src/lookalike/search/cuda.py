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
    part: int = 2  # sixteens of queries that are tested for hits together
    queue: int = 160  # length of a warp's queue of hits


SHAPES = {  # by words of 32 bits; codes are padded to the next length
    4: Shape(8, 8, 2, part=4),
    8: Shape(8, 4, 4),
    16: Shape(8, 4, 3),
    24: Shape(8, 4, 2),
    32: Shape(8, 4, 2),
    48: Shape(2, 4, 3),
    64: Shape(2, 4, 3),
}
MAX_BITS = 32 * max(SHAPES)
MAX_K = 4096  # neighbours that can be sorted in the shared memory of any device
GROUPS, PLACE_BITS, CHUNK, ID_BITS = 512, 19, 2048, 40  # as in the kernels
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
        macros = {"words": self.words, **self.shape._asdict()}
        index = torch.cuda.current_device()
        self.kernels: Kernels = load_kernels(tuple((name.upper(), value) for name, value in macros.items()), index)
        self.processors = torch.cuda.get_device_properties(index).multi_processor_count
        self.query = _padded(request.query, self.words, 1)
        shared = request.reference is request.query and len(self.query) % 8 == 0
        self.reference = self.query if shared else _padded(request.reference, self.words, 8)
        memory = _affordable(self.device) if request.memory is None else request.memory
        self.spare = 0  # excluded rows per query that limits allow for, at most
        if request.exclude is not None:
            self.spare = max(request.k, 2 * len(request.exclude[1]) // request.num_queries)
        asked, scarcer = request.k + self.spare, 1 if request.limits is None else SCARCER
        self.plan = make_plan(request.num_queries, request.num_references, asked, memory, scarcer)

    def run(self) -> Neighbours:
        q, n, k = self.request.num_queries, self.request.num_references, self.request.k
        distances = torch.empty(q, k, dtype=torch.int32, device=self.device)
        indices = torch.empty(q, k, dtype=torch.int64, device=self.device)
        weights = self._weights(self.reference)
        query_weights = weights if self.reference is self.query else self._weights(self.query)
        halves = -((weights + 1) >> 1)
        sample = self._sample(weights) if self.plan.run else None
        bounds = None if self.request.limits is None else ((self.request.limits.long() + 1) << ID_BITS) - 1
        tile, capacity = min(self.plan.tile, q), self.plan.capacity
        keys = torch.empty(tile, capacity, dtype=torch.int64, device=self.device)
        limits = torch.full((tile,), torch.iinfo(torch.int64).max, device=self.device)
        for rows in _slices(q, tile):
            size = rows.stop - rows.start
            blocks = -(-size // (16 * self.shape.tiles * self.shape.warps))
            filters = self._filters(rows)
            counts = torch.zeros(tile, dtype=torch.int32, device=self.device)
            repairs = torch.zeros(1 + tile, dtype=torch.int32, device=self.device)
            if sample is not None:
                self._limit(rows, blocks, sample, query_weights[rows], keys, limits)
            given = None if bounds is None else bounds[rows]
            if given is not None:
                limits[:size] = given if sample is None else torch.minimum(limits[:size], given)
            span = self._span(blocks)
            self._launch(
                "filter",
                (blocks, -(-n // span)),
                32 * self.shape.warps,
                self.query[rows],
                self.reference,
                query_weights[rows],
                weights,
                halves,
                limits,
                *filters,
                keys,
                counts,
                size,
                n,
                capacity,
                span,
            )
            room = min(_power_of_two(capacity), max(_power_of_two(k), 1024))
            self._launch(
                "order",
                (size, 1),
                128,
                keys,
                counts,
                limits,
                given,
                distances[rows],
                indices[rows],
                repairs,
                capacity,
                room,
                k,
                shared=8 * room,
            )
            self._launch(
                "repair",
                (4 * self.processors, 1),
                256,
                self.query[rows],
                self.reference,
                *filters,
                repairs,
                given,
                distances[rows],
                indices[rows],
                n,
                k,
                shared=8 * _power_of_two(k),
            )
        return Neighbours(distances, indices)

    def _limit(
        self, rows: slice, blocks: int, sample: _Sample, query_weights: Tensor, keys: Tensor, limits: Tensor
    ) -> None:
        """Compute the limits of some queries, using their lists, still empty, for the best of each group."""
        size, stride = rows.stop - rows.start, 2 * self.plan.capacity
        labels = self.request.query_labels
        marks = None if labels is None else _marks(labels[rows])
        parts = min(GROUPS // 8, -(-8 * self.processors // blocks))
        self._launch(
            "survey" if marks is None else "survey_marked",
            (blocks, parts),
            32 * self.shape.warps,
            self.query[rows],
            sample.codes,
            sample.offsets,
            marks,
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
            query_weights,
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

    def _sample(self, weights: Tensor) -> _Sample:
        """Draw one row at random from each of many equal stretches of the reference.

        Rows are assigned to groups at random, because data are often sorted and a group names only one row.
        """
        n, size = self.request.num_references, GROUPS * self.plan.run
        places = torch.arange(size, device=self.device)
        first, after = places * n // size, (places + 1) * n // size
        ids = first + (places * 0x9E3779B1 >> 7) % (after - first)
        order = torch.randperm(size, generator=torch.Generator(self.device).manual_seed(0), device=self.device)
        labels = self.request.reference_labels
        drawn = ids[order]
        offsets = (1 << PLACE_BITS) - 1 - order
        if self.words > min(SHAPES):
            offsets = offsets - (weights[drawn] << PLACE_BITS)
        marks = None if labels is None else _marks(labels[drawn])
        return _Sample(self.reference[drawn], offsets.to(torch.int32), marks, ids)

    def _filters(self, rows: slice) -> tuple[Tensor | None, ...]:
        """Return labels and exclude lists of some queries, as the kernels take them."""
        query_labels, (offsets, ids) = self.request.query_labels, self.request.exclude or (None, None)
        return (
            None if query_labels is None else query_labels[rows],
            self.request.reference_labels,
            None if offsets is None else offsets[rows.start : rows.stop + 1],
            ids,
        )

    def _weights(self, codes: Tensor) -> Tensor:
        weights = torch.empty(len(codes), dtype=torch.int32, device=self.device)
        self._launch("weigh", (-(-len(codes) // 256), 1), 256, codes, weights, len(codes))
        return weights

    def _span(self, blocks: int) -> int:
        """Return the columns per block: enough blocks for an even load, few enough to be worth starting."""
        n = self.request.num_references
        span = n * blocks // (64 * self.processors)
        return min(max(2 * CHUNK, -(-span // CHUNK) * CHUNK, -(-n // (65535 * CHUNK)) * CHUNK), 1 << 24)

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


def _marks(labels: Tensor) -> Tensor:
    """Hash labels to int32; different labels rarely share a mark."""
    return (labels ^ (labels >> 32)).to(torch.int32)


def _affordable(device: torch.device) -> int:
    """Return the bytes of working memory to use: at most half of what is free."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min(MEMORY, (torch.cuda.mem_get_info(device)[0] + unused) // 2)


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _power_of_two(n: int) -> int:
    return max(2, 1 << (n - 1).bit_length())
