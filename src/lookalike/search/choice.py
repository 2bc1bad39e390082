"""Choose the backend of a search: the fastest one that is loaded or worth loading."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from lookalike.search.request import Request, checked_request
from lookalike.utils.jit import numba_obstacle
from lookalike.utils.messages import warn_once

if TYPE_CHECKING:
    from lookalike.hashing import Scheme

SMALL = 1 << 22  # pairs up to which matrix products are faster than the CUDA kernels
LONGEST = (1 << 15) - 8  # bits of the longest codes that the compiled kernel takes: its distances have 16 bits
LOADING = 1 << 24  # pairs that matrix products compare on a CPU in the time it takes to load the compiled kernel


def search_backend(query: Any, reference: Any, k: int) -> str:
    """Name the backend that `hamming_topk` would choose for this search now.

    On a CPU this is "cpu", the compiled kernel, once it is loaded. The first search that is worth it loads it, and so
    does `load_kernel`.

    Examples:
        >>> import torch
        >>> load_kernel()
        >>> codes = torch.zeros(10, 8, dtype=torch.uint8)
        >>> search_backend(codes, codes, k=3)
        'cpu'
    """
    return choose_backend(checked_request(query, reference, k))


def load_kernel() -> None:
    """Load the compiled CPU kernel ahead of the first search; compile it if it is not cached.

    Does nothing if numba is not installed.
    """
    if _can_compile() and not is_loaded():
        from lookalike.search import cpu  # noqa: PLC0415 - loads numba

        codes = torch.arange(64, dtype=torch.uint8).view(-1, 1)
        cpu.topk(checked_request(codes, codes, 1, labels=(codes.flatten() // 2, None)))


def choose_backend(request: Request) -> str:
    """Return the backend that "auto" stands for."""
    pairs, device = request.num_queries * request.num_references, request.query.device
    if device.type == "cpu":
        if request.bits > LONGEST:
            return "matmul"
        if is_loaded():
            return "cpu"
        return "cpu" if Work.pairs + pairs > LOADING and _can_compile() else "matmul"
    if device.type != "cuda" or pairs <= SMALL:
        return "matmul"
    why_not = cuda_obstacle(device, request.bits, request.k, request.scheme)
    if why_not is None:
        why_not = _cuda_fault(request)
    if why_not is None:
        return "cuda"
    warn_once(f"searching with matrix products rather than the CUDA kernels, because {why_not}.")
    return "matmul"


class Work:
    """The pairs that this process has compared: many small searches are as worth the compiled kernel as a large one."""

    pairs = 0  # by matrix products, on the CPU

    @classmethod
    def note(cls, request: Request, backend: str) -> None:
        """Count the pairs of a search."""
        if backend == "matmul" and request.query.device.type == "cpu":
            cls.pairs += request.num_queries * request.num_references


def search_device(device: torch.device, bits: int, k: int, scheme: Scheme | None = None) -> torch.device:
    """Return where to search codes of embeddings from `device`: there, if the CUDA kernels run there, or the CPU."""
    if device.type != "cuda":
        return torch.device("cpu")
    why_not = cuda_obstacle(device, bits, k, scheme)
    if why_not is None:
        return device
    warn_once(f"searching hard negatives on the CPU, because the CUDA kernels cannot be used: {why_not}.")
    return torch.device("cpu")


def cuda_obstacle(device: torch.device, bits: int, k: int, scheme: Scheme | None = None) -> str | None:
    """Return why the CUDA kernels cannot search such codes on this device, or None if they can."""
    from lookalike.search.cuda import obstacle  # noqa: PLC0415 - not needed without a GPU

    return obstacle(device, bits, k, scheme)


def _cuda_fault(request: Request) -> str | None:
    from lookalike.search.cuda_check import fault  # noqa: PLC0415 - not needed without a GPU

    return fault(request)


def is_loaded() -> bool:
    """Return whether the compiled CPU kernel is loaded."""
    cpu = sys.modules.get("lookalike.search.cpu")
    return cpu is not None and cpu.is_loaded()


@cache
def _can_compile() -> bool:
    why_not = numba_obstacle()
    if why_not is not None:
        warn_once(f"{why_not}: searching by matrix products, which is many times slower (pip install numba).")
    return why_not is None
