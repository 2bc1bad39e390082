"""Codes -> neighbours: exact Hamming search, with exclusions inside it."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from functools import cache
from typing import Any

import torch

from lookalike.search.request import Neighbours, Request, checked_request

__all__ = ["Neighbours", "hamming_topk"]

BACKENDS = ("reference", "cpu", "matmul", "cuda")
SMALL = 1 << 22  # pairs below which loading the compiled kernel takes longer than the search itself


def hamming_topk(
    queries: Any,
    database: Any,
    k: int,
    *,
    query_labels: Any = None,
    database_labels: Any = None,
    exclude: tuple[Any, Any] | None = None,
    backend: str = "auto",
    progress: bool = False,
    memory: int | None = None,
) -> Neighbours:
    """Find the k codes nearest to each query by Hamming distance, exactly.

    Neighbours come nearest first, ties by the smaller id, padded with -1 where fewer than k remain. Every backend
    returns the same arrays.

    Args:
        queries: Packed codes, uint8 `[q, bits / 8]`, a tensor on any device or a NumPy array.
        database: Packed codes, uint8 `[n, bits / 8]`.
        k: Neighbours per query.
        query_labels: Integers `[q]`. Database rows with the label of the query are left out.
        database_labels: Integers `[n]`; by default the query labels, if the queries are the database.
        exclude: Further database ids that a query must not get, as a pair of integer arrays: `offsets` `[q + 1]` and
            `ids`, where query i excludes `ids[offsets[i]:offsets[i + 1]]`.
        backend: "auto", "cpu" (compiled, threads as `torch.get_num_threads()`), "cuda" (NVIDIA GPUs of compute
            capability 8.0 and later, with `cuda-core` installed), "matmul" (any torch device) or "reference" (plain
            and slow).
        progress: Show a bar on a terminal, where a search takes long enough for one.
        memory: Bytes of device memory that "cuda" works with beside codes and answer; by default up to 4 GiB, and not
            more than half of what is free. Less means more passes.

    Returns:
        `Neighbours(distances, indices)`, int32 and int64 `[q, k]`, on the device of the queries.

    Raises:
        TypeError: Codes are not uint8, or labels or ids are not integers.
        ValueError: Shapes do not fit together, k is not positive, an id is out of range, or the backend is unknown or
            cannot be used here.

    Examples:
        >>> import torch
        >>> codes = torch.tensor([[0b0000], [0b0001], [0b0111], [0b1111]], dtype=torch.uint8)
        >>> hamming_topk(codes, codes, k=2, query_labels=[0, 0, 1, 1]).indices.tolist()
        [[2, 3], [2, 3], [1, 0], [1, 0]]
    """
    request = checked_request(
        queries, database, k, query_labels=query_labels, database_labels=database_labels, exclude=exclude,
        progress=progress, memory=memory,
    )  # fmt: skip
    if backend != "auto" and backend not in BACKENDS:
        raise ValueError(f"backend must be one of 'auto', {', '.join(map(repr, BACKENDS))}, got {backend!r}.")
    if request.num_queries == 0 or request.num_database == 0:
        absent = torch.full((request.num_queries, request.k), -1, device=request.queries.device)
        return Neighbours(absent.int(), absent)
    name = choose_backend(request) if backend == "auto" else backend
    device = request.queries.device
    if name == "cuda":
        why_not = _cuda_obstacle(device, request.bits, request.k)
        if why_not is not None:
            raise ValueError(f"backend 'cuda' cannot be used here: {why_not}.")
    if name == "cpu" or (name == "cuda" and device.type != "cuda"):
        request = request.to(name)
    distances, indices = importlib.import_module(f"lookalike.search.{name}").topk(request)
    return Neighbours(distances.to(device), indices.to(device))


def choose_backend(request: Request) -> str:
    """The backend that `backend="auto"` takes for this request."""
    if request.num_queries * request.num_database <= SMALL:
        return "matmul"
    if request.queries.device.type == "cuda":
        why_not = _cuda_obstacle(request.queries.device, request.bits, request.k)
        if why_not is None:
            return "cuda"
        _say_once(f"searching by matrix products, not with the CUDA kernels, because {why_not}.")
        return "matmul"
    return "cpu" if request.queries.device.type == "cpu" and _numba_is_installed() else "matmul"


def search_device(device: torch.device, bits: int, k: int) -> torch.device:
    """Where codes of embeddings from `device` are best searched: there, if the CUDA kernels run there."""
    if device.type != "cuda":
        return torch.device("cpu")
    why_not = _cuda_obstacle(device, bits, k)
    if why_not is None:
        return device
    _say_once(f"hard negatives are searched on the CPU, because the CUDA kernels cannot be used: {why_not}.")
    return torch.device("cpu")


def _cuda_obstacle(device: torch.device, bits: int, k: int) -> str | None:
    from lookalike.search.cuda import obstacle  # noqa: PLC0415 - not needed without a GPU

    return obstacle(device, bits, k)


@cache
def _say_once(sentence: str) -> None:
    logging.getLogger("lookalike").warning(sentence)


@cache
def _numba_is_installed() -> bool:
    installed = importlib.util.find_spec("numba") is not None
    if not installed:
        logging.getLogger("lookalike").warning(
            "numba is not installed: searching by matrix products, which is many times slower (pip install numba)."
        )
    return installed
