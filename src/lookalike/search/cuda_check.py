"""Check the CUDA kernels on the GPU at hand before a search relies on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lookalike.search import cuda, cuda_plan, cuda_values, matmul
from lookalike.search.request import Request, checked_request

if TYPE_CHECKING:
    from lookalike.hashing import Scheme

QUERIES, ROWS, K = 100, cuda_plan.DIRECT + 1000, 24  # enough rows for limits by sampling

_known: dict[tuple[torch.device, bool, int], bool] = {}


def is_right(request: Request) -> bool:
    """Return whether kernels for codes of this kind and size answer a small search as matrix products do.

    A search is made, and the device waited for, once per process. GPUs and compilers differ, and nobody would notice a
    wrong neighbour.
    """
    scheme = request.scheme
    size = cuda.words_of(request.bits) if scheme is None else cuda_values.slices_of(scheme)
    program = request.query.device, scheme is None, size
    if program not in _known:
        _known[program] = _agree(request.query.device, request.query.shape[1], scheme)
    return _known[program]


def _agree(device: torch.device, num_bytes: int, scheme: Scheme | None) -> bool:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 256, (ROWS, num_bytes), dtype=torch.uint8, generator=generator).to(device)
    labels = torch.arange(ROWS, device=device) // 4
    asked = checked_request(codes[:QUERIES], codes, K, labels=(labels[:QUERIES], labels), scheme=scheme)
    found, expected = cuda.topk(asked), matmul.topk(asked)
    return all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
