"""Score shortlisted pairs with floats: rows are read from files and multiplied at once, in threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.mining.rows import UnitRows
from lookalike.utils.jit import numba_obstacle

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.mining.rows import Rows
    from lookalike.utils.arrays import Array

PAIRS = 1 << 14  # of a task of one thread
FLOATS_IN_MEMORY = 1 << 22  # values of embeddings at a time, where they are scored by torch
MISSING = -np.inf


def list_scores(
    queries: Rows,
    reference: Rows,
    query_ids: Any,
    candidate_ids: Any,
    similarity: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Score the candidates of some queries.

    The result depends neither on the number of threads nor on which other queries are scored in the same call.

    Args:
        queries: The rows of queries.
        reference: The rows of candidates.
        query_ids: Integers [q].
        candidate_ids: Integers [q, k], -1 for none.
        similarity: Scores rows of both sides, pair by pair; by default the dot product.

    Returns:
        float32 [q, k], minus infinity for no candidate.

    Raises:
        ValueError: A file ends before a row.
        IndexError: There is no such row.

    Examples:
        >>> from lookalike.mining.rows import ArrayRows
        >>> rows = ArrayRows(np.array([[1, 0], [3, 4]], np.float32))
        >>> list_scores(rows, rows, [0, 1], [[1, 0], [1, -1]]).tolist()
        [[3.0, 1.0], [25.0, -inf]]
    """
    ids = np.asarray(candidate_ids, np.int64)
    owners = np.repeat(np.asarray(query_ids, np.int64), ids.shape[1])
    return pair_scores(queries, reference, owners, ids.reshape(-1), similarity).view(*ids.shape)


def pair_scores(
    queries: Rows,
    reference: Rows,
    query_ids: Any,
    ids: Any,
    similarity: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Score pairs of a query and a candidate: float32 [m], as `list_scores` does.

    Args:
        queries: The rows of queries.
        reference: The rows of candidates.
        query_ids: Integers [m]; equal neighbours are read once.
        ids: Integers [m], -1 for none.
        similarity: Scores rows of both sides, pair by pair; by default the dot product.

    Raises:
        ValueError: A file ends before a row.
        IndexError: There is no such row.
    """
    owners, ids = np.asarray(query_ids, np.int64), np.asarray(ids, np.int64)
    for name, numbers, rows in (("query", owners, queries), ("candidate", ids, reference)):
        if len(numbers) and not (int(numbers.min()) >= -(name == "candidate") and int(numbers.max()) < rows.shape[0]):
            raise IndexError(
                f"ids must be between 0 and {rows.shape[0] - 1}, or -1 for no candidate, got {name} ids from "
                f"{numbers.min()} to {numbers.max()}."
            )
    scores = np.full(len(ids), MISSING, np.float32)
    score: Callable[..., None] = _score_anyhow
    if similarity is None and _can_multiply(queries, reference):
        score = _multiply

    def run(part: slice) -> None:
        score(queries, reference, owners[part], ids[part], similarity, scores[part])

    step = PAIRS if score is _multiply else max(1, FLOATS_IN_MEMORY // max(1, reference.shape[1]))
    parts = [slice(first, first + step) for first in range(0, len(ids), step)]
    if score is _score_anyhow or len(parts) == 1 or torch.get_num_threads() == 1:
        for part in parts:
            run(part)
    else:
        with ThreadPoolExecutor(torch.get_num_threads(), "lookalike-rescoring") as pool:
            list(pool.map(run, parts))
    return torch.from_numpy(scores)


def _can_multiply(queries: Rows, reference: Rows) -> bool:
    """Return whether the kernel can read both sides: float32 in files or in memory, both or neither at unit length."""
    nothing = np.empty(0, np.int64)
    return (
        hasattr(os, "pread")
        and numba_obstacle() is None
        and isinstance(queries, UnitRows) == isinstance(reference, UnitRows)
        and _located(queries, nothing) is not None
        and _located(reference, nothing) is not None
    )


def _located(rows: Rows, ids: Array) -> Any:
    """Return where the rows are, as they are before they get unit length."""
    return (rows.rows if isinstance(rows, UnitRows) else rows).locate(ids)


def _multiply(queries: Rows, reference: Rows, owners: Array, ids: Array, _similarity: None, scores: Array) -> None:
    """Score pairs with the kernel."""
    from lookalike.mining.reading_kernel import BLOCK, NOWHERE, multiply_rows  # noqa: PLC0415 - needs numba

    asked, listed = _located(queries, owners), _located(reference, ids.clip(min=0))
    listed.files[ids < 0] = NOWHERE
    width = reference.shape[1]
    padded = -(-width // BLOCK) * BLOCK
    query, row, sums = np.zeros(padded), np.zeros(padded, np.float32), np.zeros(2)
    addresses = np.array([each.ctypes.data for each in (row, sums, query)])
    unit, first = isinstance(reference, UnitRows), 0
    while True:
        places = asked.files, asked.places, listed.files, listed.places
        first = multiply_rows(*places, width, unit, query, row, addresses, sums, first, scores)
        if first == len(ids):
            return
        # A signal may have interrupted the system. If the file was truncated, reading it in Python says so.
        one = slice(first, first + 1)
        _score_anyhow(queries, reference, owners[one], ids[one], None, scores[one])
        first += 1


def _score_anyhow(
    queries: Rows,
    reference: Rows,
    owners: Array,
    ids: Array,
    similarity: Callable[[Tensor, Tensor], Tensor] | None,
    scores: Array,
) -> None:
    """Score pairs with torch, whatever their rows are."""
    there = np.flatnonzero(ids >= 0)
    if len(there):
        a, b = queries.read(owners[there]), reference.read(ids[there])
        scores[there] = ((a * b).sum(1) if similarity is None else similarity(a, b)).float().cpu().numpy()
