"""Check the CUDA kernels on the GPU at hand before a search relies on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lookalike.search import cuda, cuda_plan, matmul
from lookalike.search.request import Request, checked_request
from lookalike.utils.messages import LONGEST_QUOTE

if TYPE_CHECKING:
    from lookalike.search.request import Neighbours

QUERIES, ROWS, K = 100, cuda_plan.DIRECT + 1000, 24  # enough rows for limits by sampling
FEW = 300  # rows that the first query may find, so few that its limit is too tight and it is searched again

_known: dict[tuple[torch.device, tuple[tuple[str, int], ...]], str | None] = {}


def fault(request: Request) -> str | None:
    """Return why the kernels that would answer a request cannot be relied on, None if they can.

    They can if they answer a small search as matrix products do. It is made, and the device waited for, once per
    process and program: GPUs and compilers differ, and nobody would notice a wrong neighbour.

    Raises:
        RuntimeError: The kernels failed in a way after which this process cannot use the GPU.
    """
    program = request.query.device, cuda.program_of(request)
    if program not in _known:
        _known[program] = _fault(_small(request), request.num_references)
    return _known[program]


def _small(request: Request) -> Request:
    """Make a search of codes of the same kind and length."""
    shape, device = (ROWS, request.query.shape[1]), request.query.device
    codes = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).to(device)
    labels, left_out = torch.arange(ROWS) // 4, torch.arange(ROWS - FEW)
    exclude = torch.tensor([0] + QUERIES * [len(left_out)]), left_out
    return checked_request(codes[:QUERIES], codes, K, (labels[:QUERIES], labels), exclude, scheme=request.scheme)


def _fault(asked: Request, size: int) -> str | None:
    expected = _on_host(matmul.topk(asked))
    try:
        found = _on_host(cuda.topk(asked, size))
    except torch.OutOfMemoryError:
        raise  # by no fault of theirs
    except Exception as error:  # noqa: BLE001 - of compilers, drivers and kernels, each with classes of its own
        message = " ".join(str(error).replace("\0", "").split())[:LONGEST_QUOTE] or type(error).__name__
        try:
            _on_host(matmul.topk(asked))
        except RuntimeError:
            raise RuntimeError(
                f"the CUDA kernels failed a test on this GPU ({message}), and this process cannot use it any more: "
                "start again with backend='matmul' or without the package cuda-core; please report it, with the name "
                "of the GPU."
            ) from error
        return f"these do not run on this GPU ({message})"
    if all(torch.equal(*pair) for pair in zip(found, expected, strict=True)):
        return None
    return "these gave a wrong answer to a test on this GPU; please report it, with the name of the GPU"


def _on_host(found: Neighbours) -> list[torch.Tensor]:
    """Wait for an answer, and for what went wrong on the way."""
    return [part.cpu() for part in found]
