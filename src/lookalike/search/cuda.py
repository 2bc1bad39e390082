"""Exact search on NVIDIA GPUs: tensor cores compare all pairs, sampled limits discard nearly all.

1. *Limits by sampling.* Each query is compared with a sample of the reference. One of its nearest samples, by the key
   (distance, id), becomes its limit, which slightly more than k rows of the reference should stay within. Keys have no
   ties, so this works even for codes that are all equal. Where the request has limits, a smaller sample guards against
   those that let too many rows pass.
2. *One scan.* Rows within the limit are appended to the query's list, in any order.
3. *Order.* Lists are sorted by key, so the order of arrival does not matter.
4. *Repair.* A list that is too short or overflowed proves nothing; its query is searched again without a limit, or with
   that of the request.

Everything runs on the caller's current stream, and nothing waits for the device: only the device knows which queries
need repair. The course of a search is in `cuda_search`; this module has what depends on sign codes, `cuda_values` what
depends on codes of several bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lookalike.search import cuda_plan, cuda_values
from lookalike.search.cuda_search import Codes, Search, part_of
from lookalike.search.nvrtc import cuda_core

if TYPE_CHECKING:
    from lookalike.hashing import Scheme
    from lookalike.search.request import Neighbours, Request


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
CHUNK = 2048  # columns between two looks at the limits, as in the kernel
MAX_K = 4096  # neighbours that can be sorted in the shared memory of any device


def topk(request: Request, size: int | None = None) -> Neighbours:
    """Answer a request: the `cuda` backend. `size` is as for `search_of`."""
    with torch.cuda.device(request.query.device):
        return search_of(request, size).run()


def search_of(request: Request, size: int | None = None) -> Search:
    """Prepare the search of a request, by the program that suits a reference of `size` rows, by default its own."""
    return SignSearch(request, size) if request.scheme is None else cuda_values.ValueSearch(request, request.scheme)


def program_of(request: Request) -> tuple[tuple[str, int], ...]:
    """Return the macros of the program that answers a request."""
    if request.scheme is not None:
        return cuda_values.macros_of(cuda_values.slices_of(request.scheme))
    words = words_of(request.bits)
    return macros_of(words, hopper_shape(words, request.num_references, request.query.device))


def obstacle(device: torch.device, bits: int, k: int, scheme: Scheme | None = None) -> str | None:
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
    if scheme is not None and not cuda_values.takes(scheme):
        return f"the CUDA kernels take codes of up to {cuda_values.MAX_DIMS} dimensions, and these have {scheme.dims}"
    if scheme is None and bits > MAX_BITS:
        return f"the CUDA kernels take codes of up to {MAX_BITS} bits, and these have {bits}"
    if k > MAX_K:
        return f"the CUDA kernels take k up to {MAX_K}, got {k}"
    return None


def words_of(bits: int) -> int:
    """Return to how many words the kernels pad sign codes of this length."""
    return next(words for words in SHAPES if bits <= 32 * words)


def hopper_shape(words: int, size: int, device: torch.device) -> HopperShape | None:
    """Return the layout of the scan for Hopper, or None where that for any GPU is faster or the only one."""
    is_faster = size >= HOPPER_FROM[words]
    return HOPPER_SHAPES[words] if is_faster and torch.cuda.get_device_capability(device) == HOPPER else None


def macros_of(words: int, hopper: HopperShape | None) -> tuple[tuple[str, int], ...]:
    """Return what to define for a code length, for Hopper or for any GPU."""
    macros = {"words": words, **SHAPES[words]._asdict()}
    if hopper is not None:
        macros |= {"hopper": 1, **hopper._asdict()}
    return tuple((name.upper(), value) for name, value in macros.items())


class SignSearch(Search):
    """A search of sign codes."""

    def __init__(self, request: Request, size: int | None = None) -> None:
        words = words_of(request.bits)
        self.hopper = hopper_shape(words, size or request.num_references, request.query.device)
        super().__init__(request, words, SHAPES[words], macros_of(words, self.hopper))

    def _scan(self, rows: slice, limits: Tensor, keys: Tensor, counts: Tensor) -> None:
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
            part_of(self.query.weights, rows),
            self.reference.parts,
            part_of(self.query.marks, rows),
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

    def _prepared(self, codes: Tensor, labels: Tensor | None, is_reference: bool) -> Codes:
        words = _padded(codes, self.words, 8 if is_reference and self.hopper is None else 1)
        padded = -(-len(codes) // cuda_plan.ALIGNMENT) * cuda_plan.ALIGNMENT

        def column() -> Tensor:
            return torch.empty(padded, dtype=torch.int32, device=self.device)

        prepared = Codes(words, column(), column() if is_reference else None, None if labels is None else column())
        self._launch(
            "prepare", (padded // 256, 1), 256, words, labels, *prepared[1:], self.wide_labels, len(codes), padded
        )
        return prepared

    def _for_survey(self) -> tuple[int, ...]:
        return ()

    def _for_limits(self, rows: slice) -> tuple[Tensor | int | None, ...]:
        return (part_of(self.query.weights, rows),)


def _padded(codes: Tensor, words: int, multiple: int) -> Tensor:
    """Pad uint8 [n, bytes] with zeros to int32 [padded, words]; a view if there is nothing to pad."""
    n, num_bytes = codes.shape
    if num_bytes == 4 * words and n % multiple == 0 and codes.data_ptr() % 16 == 0:
        return codes.view(torch.int32)
    padded = torch.zeros(-(-n // multiple) * multiple, 4 * words, dtype=torch.uint8, device=codes.device)
    padded[:n, :num_bytes] = codes
    return padded.view(torch.int32)
