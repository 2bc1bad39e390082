"""Score shortlisted pairs with floats: rows are read from files and multiplied at once, in threads.

The queries of a few hundred thousand pairs are in memory, about 16 MB of them. Their pairs are sorted by the row that
they need: each row is read once for all of them, and the rows of a file in their order.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.mining.rows import UnitRows
from lookalike.utils.jit import numba_obstacle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lookalike.mining.rows import Rows
    from lookalike.utils.arrays import Array

    Run = Callable[[Callable[[slice], None], list[slice]], Iterable[None]]

PAIRS = 1 << 18  # at a time
TASK = 1 << 14  # of a thread
FLOATS_IN_MEMORY = 1 << 22  # values of queries at a time, or of all rows where torch scores them
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
    if similarity is not None or not _can_multiply(queries, reference):
        _score_anyhow(queries, reference, owners, ids, similarity, scores)
        return torch.from_numpy(scores)
    with ExitStack() as stack:
        run: Run = map
        if torch.get_num_threads() > 1:
            run = stack.enter_context(ThreadPoolExecutor(torch.get_num_threads(), "lookalike-rescoring")).map
        for part in _tiles(owners, max(1, FLOATS_IN_MEMORY // max(1, reference.shape[1]))):
            _multiply(queries, reference, owners[part], ids[part], scores[part], run)
    return torch.from_numpy(scores)


def _tiles(owners: Array, most: int) -> Iterator[slice]:
    """Divide pairs into tiles of at most `most` queries, where equal neighbours count once."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    first = 0
    while first < len(owners):
        run = int(np.searchsorted(starts, first, side="right")) - 1
        last = min(first + PAIRS, int(starts[run + most]) if run + most < len(starts) else len(owners))
        yield slice(first, last)
        first = last


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


def _multiply(queries: Rows, reference: Rows, owners: Array, ids: Array, scores: Array, run: Run) -> None:
    """Score the pairs of a tile with the kernels."""
    from lookalike.mining.reading_kernel import BLOCK, multiply_rows, read_rows  # noqa: PLC0415 - needs numba

    width, unit = reference.shape[1], isinstance(reference, UnitRows)
    stride = -(-width // BLOCK) * BLOCK
    begins = np.diff(owners, prepend=-1) != 0
    query_ids, query_of_pair = owners[begins], np.cumsum(begins) - 1
    memory, norms = np.zeros((len(query_ids), stride), np.float32), np.empty(len(query_ids))
    there = np.flatnonzero(ids >= 0)
    order = there[np.argsort(ids[there], kind="stable")]

    def read(part: slice) -> None:
        located, first = _located(queries, query_ids[part]), 0
        mine, lengths = memory[part], norms[part]
        while True:
            first = read_rows(located.files, located.places, width, mine.ctypes.data, stride, lengths, first)
            if first == len(mine):
                return
            # A signal may have interrupted the system. If the file was truncated, reading it in Python says so.
            queries.read(query_ids[part][first : first + 1])

    def multiply(part: slice) -> None:
        targets = order[part]
        located, buffer, first = _located(reference, ids[targets]), np.zeros(stride, np.float32), 0
        asked = query_of_pair[targets], memory.ctypes.data, norms, buffer.ctypes.data, stride, unit, targets, scores
        while True:
            first = multiply_rows(located.files, located.places, width, *asked, first)
            if first == len(targets):
                return
            reference.read(ids[targets[first : first + 1]])

    for task, number, size in ((read, len(query_ids), TASK // 16), (multiply, len(order), TASK)):
        deque(run(task, [slice(first, first + size) for first in range(0, number, size)]), maxlen=0)


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
    step = max(1, FLOATS_IN_MEMORY // max(1, reference.shape[1]))
    for first in range(0, len(there), step):
        part = there[first : first + step]
        a, b = queries.read(owners[part]), reference.read(ids[part])
        scores[part] = ((a * b).sum(1) if similarity is None else similarity(a, b)).float().cpu().numpy()
