"""Codes -> neighbours: exact search that leaves out labels and excluded ids."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from lookalike.hashing import ScalarCodes, Scheme
from lookalike.search.choice import (
    LONGEST,
    Work,
    choose_backend,
    cuda_obstacle,
    load_kernel,
    search_backend,
    search_device,
)
from lookalike.search.request import Neighbours, Request, checked_request
from lookalike.utils.checks import check_choice

__all__ = ["Neighbours", "hamming_topk", "load_kernel", "scalar_topk", "search_backend", "search_device"]

BACKENDS = ("plain", "cpu", "matmul", "cuda")


def hamming_topk(
    query: Any,
    reference: Any,
    k: int,
    *,
    query_labels: Any = None,
    reference_labels: Any = None,
    exclude: tuple[Any, Any] | None = None,
    backend: str = "auto",
    progress: bool = False,
    memory: int | None = None,
    limits: Any = None,
) -> Neighbours:
    """Find the k codes nearest to each query by Hamming distance, exactly.

    Neighbours come nearest first, ties by the smaller id, padded with -1 where fewer than k remain. Every backend
    returns the same arrays.

    Args:
        query: Packed codes, uint8 `[q, bits / 8]`, a tensor on any device or a NumPy array.
        reference: Packed codes, uint8 `[n, bits / 8]`.
        k: Neighbours per query.
        query_labels: Integers `[q]`. Reference rows with the query's label are left out.
        reference_labels: Integers `[n]`; by default the query labels, if query and reference are the same object.
        exclude: Reference ids to leave out, per query, as a CSR pair of integer arrays: `offsets` `[q + 1]` and `ids`,
            where query i excludes `ids[offsets[i]:offsets[i + 1]]`.
        backend: "cpu" (compiled, on `torch.get_num_threads()` threads), "cuda" (NVIDIA GPUs of compute capability 8.0
            and later, with `cuda-core` installed), "matmul" (any torch device), "plain" (slow; the others are tested
            against it) or "auto": the fastest one that is loaded or worth loading, which `search_backend` names.
        progress: Show a progress bar on a terminal.
        memory: Bytes of working memory for "cuda" besides codes and answer; by default 4 GiB, or half of what is free
            if that is less. Less memory means more passes.
        limits: The largest distance that counts, per query: integers `[q]`; if negative, nothing counts. Rows farther
            away are left out. A bound that is known from an earlier search makes this one faster.

    Returns:
        `Neighbours(distances, indices)`, int32 and int64 `[q, k]`, on the device of the queries.

    Raises:
        TypeError: Codes are not uint8, or labels, ids or limits are not integers.
        ValueError: Shapes do not fit together, k is not positive, an id is out of range, or the backend is unknown or
            cannot be used here.

    Examples:
        >>> import torch
        >>> codes = torch.tensor([[0b0000], [0b0001], [0b0111], [0b1111]], dtype=torch.uint8)
        >>> hamming_topk(codes, codes, k=2, query_labels=[0, 0, 1, 1]).indices.tolist()
        [[2, 3], [2, 3], [1, 0], [1, 0]]
    """
    request = checked_request(
        query,
        reference,
        k,
        labels=(query_labels, reference_labels),
        exclude=exclude,
        progress=progress,
        memory=memory,
        limits=limits,
    )
    return answer(request, backend)


def scalar_topk(
    query: ScalarCodes,
    reference: ScalarCodes,
    k: int,
    *,
    query_labels: Any = None,
    reference_labels: Any = None,
    exclude: tuple[Any, Any] | None = None,
    backend: str = "auto",
    progress: bool = False,
    memory: int | None = None,
    limits: Any = None,
) -> Neighbours:
    """Find the k codes nearest to each query by estimated cosine, exactly, among codes of several bits per dimension.

    Like `hamming_topk`, with the same arguments. Distances are integers, 16384 times one minus the estimated cosine
    (more where all embeddings lie close together), so every backend returns the same arrays; the codes'
    `scheme.cosines` turns them into cosines.

    Args:
        query: Codes that a `ScalarHasher` made.
        reference: Codes that the same hasher made with the same statistics.
        k: Neighbours per query.
        query_labels: As in `hamming_topk`.
        reference_labels: As in `hamming_topk`.
        exclude: As in `hamming_topk`.
        backend: As in `hamming_topk`.
        progress: As in `hamming_topk`.
        memory: As in `hamming_topk`.
        limits: As in `hamming_topk`.

    Returns:
        `Neighbours(distances, indices)`, int32 and int64 `[q, k]`, on the device of the queries.

    Raises:
        TypeError: Codes are not `ScalarCodes`, or labels, ids or limits are not integers.
        ValueError: The two were made with different statistics, or as in `hamming_topk`.

    Examples:
        >>> import torch
        >>> from lookalike import ScalarHasher
        >>> x = torch.randn(500, 32)
        >>> hasher = ScalarHasher(dim=32, bits=128)
        >>> hasher.update(x)
        >>> codes = hasher.encode(x)
        >>> found = scalar_topk(codes, codes, k=1)
        >>> bool((found.indices.flatten() == torch.arange(500)).all())
        True
    """
    is_self_join = reference is query
    scheme = checked_scheme(query, reference)
    packed = query.packed
    request = checked_request(
        packed,
        packed if is_self_join else reference.packed,
        k,
        labels=(query_labels, reference_labels),
        exclude=exclude,
        progress=progress,
        memory=memory,
        limits=limits,
        scheme=scheme,
    )
    return answer(request, backend)


def checked_scheme(*tables: ScalarCodes) -> Scheme:
    """Return the scheme that tables of codes share.

    Raises:
        TypeError: One is not of several bits per dimension.
        ValueError: Their schemes differ.
    """
    for table in tables:
        if not isinstance(table, ScalarCodes):
            raise TypeError(f"codes must be ScalarCodes, which ScalarHasher.encode makes, got {type(table).__name__}.")
    if len({table.scheme.identity for table in tables}) > 1:
        raise ValueError(
            "codes were made with different statistics and mean different things: encode both with the same "
            "ScalarHasher, without a fit in between."
        )
    return tables[0].scheme


def answer(request: Request, backend: str = "auto") -> Neighbours:
    """Answer a checked request, as `hamming_topk` and `scalar_topk` do.

    Raises:
        ValueError: The backend is unknown or cannot be used here.
    """
    check_choice("backend", backend, ("auto", *BACKENDS))
    dtype = torch.int32 if request.narrow else torch.int64
    if request.num_queries == 0 or request.num_references == 0:
        absent = torch.full((request.num_queries, request.k), -1, dtype=torch.int32, device=request.query.device)
        return Neighbours(absent, absent.to(dtype, copy=True))
    name = choose_backend(request) if backend == "auto" else backend
    Work.note(request, name)
    device = request.query.device
    if name == "cuda":
        why_not = cuda_obstacle(device, request.bits, request.k, request.scheme)
        if why_not is not None:
            raise ValueError(f"backend 'cuda' cannot be used here: {why_not}.")
    if name == "cpu" and request.bits > LONGEST:
        raise ValueError(
            f"backend 'cpu' takes codes of up to {LONGEST} bits, got {request.bits}; use 'matmul' or 'auto'."
        )
    if name == "cpu" or (name == "cuda" and device.type != "cuda"):
        request = request.to(name)
    distances, indices = importlib.import_module(f"lookalike.search.{name}").topk(request)
    return Neighbours(distances.to(device), indices.to(device, dtype))
