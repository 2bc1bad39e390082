"""Exact Hamming search on the CPU with numba kernels and threads; sampled limits skip most of the work.

1. *Limits by sampling.* From its distances to a few thousand rows, each query gets a limit that slightly more than k
   rows should fall within, unless the request has a limit that does the same. The scan keeps only those.
2. *One scan.* In a self-join every pair is computed once and offered to both sides.
3. *Repair.* A query whose limit was too tight is searched again without one, or with the limit of the request, so the
   answer is always exact.

Threads are Python's own (the kernels release the GIL): no second OpenMP runtime alongside torch's, nothing that breaks
when a `DataLoader` forks later, and the result does not depend on their number.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from lookalike.search.layout import Queries, References, lay_out_queries, lay_out_reference
from lookalike.search.plain import scalar_distances
from lookalike.search.request import Neighbours, Request
from lookalike.search.scan import AT_ONCE, FAR, Columns, Lists, Scratch, append, emit, pad, scan
from lookalike.search.simd import BLOCKS, GROUP, TILE
from lookalike.utils.arrays import Array, narrowed
from lookalike.utils.progress import Bar, progress_bar

CHUNK = 4096  # query rows per task, a multiple of TILE; a list of a column is fetched from memory once per chunk
SAMPLE = 1536  # reference rows to estimate limits from, if there are enough
SORTED = 1 << 18  # bytes of lists sorted at a time: they stay in the second-level cache

_SHUT = np.full(TILE, -1, np.int16)

Run = Callable[[Callable[..., None], list[tuple[Any, ...]]], None]


class Answer(NamedTuple):
    """Neighbours, and the queries for which they are proven to be the nearest."""

    distances: Array  # int32 [q, k]
    indices: Array  # int64 [q, k]
    proven: Array  # bool [q]

    @classmethod
    def empty(cls, num_queries: int, k: int) -> "Answer":
        """Allocate an answer."""
        return cls(
            np.empty((num_queries, k), np.int32), np.empty((num_queries, k), np.int64), np.empty(num_queries, bool)
        )


class Limits(NamedTuple):
    """The last key (distance, id) that may be among a query's nearest: rows beyond it are left out."""

    distances: Array  # int32 [q]
    ids: Array  # int64 [q]

    @classmethod
    def same(cls, num_queries: int, distance: int) -> "Limits":
        """Return the same limit for all queries, whatever the id."""
        return cls(np.full(num_queries, distance, np.int32), np.full(num_queries, FAR, np.int64))

    def take(self, first: int, last: int) -> "Limits":
        """Return the limits of some of the queries."""
        return Limits(self.distances[first:last], self.ids[first:last])


def topk(request: Request) -> Neighbours:
    """Answer a request: the `cpu` backend."""
    queries, reference = lay_out_queries(request), lay_out_reference(request)
    num_queries, farthest, k = request.num_queries, request.farthest, request.k
    mirror = _same(request.query, request.reference)
    work = num_queries * request.num_references / (2 if mirror else 1)
    with _threads() as run, progress_bar("searching", work, shown=request.progress) as bar:
        limits = _limits(request, queries, run)
        answer = Answer.empty(num_queries, k)
        if mirror:
            _scan_mirrored(queries, reference, limits, farthest, answer, run, bar)
        else:
            _scan_chunks(queries, reference, limits, farthest, answer, run, bar)
        complete = (limits.distances == _bounds(request).distances) & (limits.ids == FAR)
        answer.proven[complete] = True  # a list that is short holds all that count
        _repair(request, reference, answer, run)
    indices = narrowed(answer.indices) if request.narrow else answer.indices
    return Neighbours(torch.from_numpy(answer.distances), torch.from_numpy(indices))


def is_loaded() -> bool:
    """Return whether this process has compiled the kernels or loaded them from numba's cache."""
    return bool(getattr(scan, "signatures", ()))


def _bounds(request: Request) -> Limits:
    """Return the largest distance that counts, per query."""
    bounds = Limits.same(request.num_queries, request.farthest)
    return bounds if request.limits is None else bounds._replace(distances=request.limits.numpy())


def _limits(request: Request, queries: Queries, run: Run) -> Limits:
    """Return the limit that each query is searched with: the request's, or a sampled one that is tighter.

    A request's limit is taken as it is if it shuts out at least half of all random codes: lists that it lets grow are
    cut, which tightens it, so a sample would save little.
    """
    if request.limits is None:
        return _sampled_limits(request, queries, run)
    limits = Limits(*(part.copy() for part in _bounds(request)))
    loose = np.flatnonzero(limits.distances >= request.middle)
    if len(loose):
        some = replace(request.take(torch.from_numpy(loose)), limits=None)
        sampled = _sampled_limits(some, lay_out_queries(some), run)
        is_tighter = sampled.distances <= limits.distances[loose]
        for limit, tighter in zip(limits, sampled, strict=True):
            limit[loose[is_tighter]] = tighter[is_tighter]
    return limits


def _sampled_limits(request: Request, queries: Queries, run: Run) -> Limits:
    """Estimate a limit per query that at least k admissible rows should lie within, from every `stride`-th row.

    On average the sample holds `mean` of a query's k nearest. Its `rank`-th nearest sample is too tight a limit only if
    the sample holds `rank` of them, two standard deviations more than the mean.
    """
    num_queries, n, k = request.num_queries, request.num_references, request.k
    stride = max(8, n // max(SAMPLE, n // 32))
    unlimited = Limits.same(num_queries, request.farthest)
    if 16 * k > n:  # a sample pays only if its limits skip most rows
        return unlimited
    sample = lay_out_reference(request, stride)
    num_columns = sample.columns.num_columns
    mean = num_columns * k / n
    rank = math.ceil(mean + 2 * math.sqrt(mean) + 1)
    answer = Answer.empty(num_queries, rank)
    guess = Limits.same(num_queries, _typical_limit(request, stride, min(1.0, 6 * rank / num_columns)))
    _scan_chunks(queries, sample, guess, request.farthest, answer, run)
    _repair(request, sample, answer, run)
    found = answer.distances[:, -1] >= 0
    last = Limits(answer.distances[:, -1], answer.indices[:, -1])
    return Limits(*(np.where(found, *both) for both in zip(last, unlimited, strict=True)))


def _typical_limit(request: Request, stride: int, share: float) -> int:
    """Return the distance that this fraction of all admissible pairs falls within."""
    some = slice(None, None, max(1, request.num_queries // 64))
    stride *= max(1, request.num_references // (2048 * stride))
    query, reference, scheme = request.query[some][:64], request.reference[::stride], request.scheme
    if scheme is None:
        rows = reference.numpy()
        distances = np.stack([np.bitwise_count(row ^ rows).sum(-1, dtype=np.int32) for row in query.numpy()])
    else:
        distances = scalar_distances(query, reference, scheme).numpy()
    if request.query_labels is not None and request.reference_labels is not None:
        query_labels = request.query_labels[some].numpy()[:64]
        distances = distances[query_labels[:, None] != request.reference_labels[::stride].numpy()]
    return int(np.quantile(distances, share, method="higher")) if distances.size else request.farthest


def _scan_chunks(
    queries: Queries,
    reference: References,
    limits: Limits,
    farthest: int,
    answer: Answer,
    run: Run,
    bar: Bar | None = None,
) -> None:
    """Search each query on its own, one chunk of queries per task."""
    num_queries, k = answer.distances.shape
    rows, columns, terms = queries.rows, reference.columns, reference.terms_with(queries)

    def search(first: int, last: int) -> None:
        scratch = _scratch()
        lists = _lists(answer.indices[first:last], columns, farthest, limits.take(first, last))
        no_mirror = lists._replace(limits=_SHUT)
        scan(rows, first, last, columns, 0, len(columns.codes), lists, first, False, no_mirror, k, scratch, terms)
        _emit(lists, first, last, first, farthest, answer)
        if bar is not None:
            bar.advance((last - first) * columns.num_columns)

    share = -(-num_queries // (4 * torch.get_num_threads()))  # several tasks per thread, so that none idles for long
    chunk = min(CHUNK, -(-share // GROUP) * GROUP)
    run(search, [(first, min(first + chunk, num_queries)) for first in range(0, num_queries, chunk)])


def _scan_mirrored(
    queries: Queries, reference: References, limits: Limits, farthest: int, answer: Answer, run: Run, bar: Bar
) -> None:
    """Search a reference in itself, computing each pair once.

    Rows are scanned in chunks from the top; each thread takes one ascending piece of the columns right of the diagonal
    and owns the lists of these columns. The lists of the chunk's rows are shared, so all pieces but the first write
    into lists of their own, which are appended in order afterwards: entries arrive in ascending order of id for any
    number of threads.
    """
    n, k = answer.distances.shape
    rows, columns, terms = queries.rows, reference.columns, reference.terms_with(queries)
    num_tiles, threads = len(columns.codes), torch.get_num_threads()
    padding = Limits.same(num_tiles * TILE - n, -1)
    padded = Limits(*(np.append(*both) for both in zip(limits, padding, strict=True)))
    lists = _lists(answer.indices, columns, farthest, padded)
    rooms = np.empty((threads - 1, CHUNK, k), np.int64)
    pieces = [_lists(room, columns, farthest, Limits.same(CHUNK, -1)) for room in rooms]
    scratches = [_scratch() for _ in range(threads)]

    def search(piece: int, first: int, last: int, first_tile: int, last_tile: int) -> None:
        own = lists if piece == 0 else pieces[piece - 1]
        offset = 0 if piece == 0 else first
        scan(rows, first, last, columns, first_tile, last_tile, own, offset, True, lists, k, scratches[piece], terms)

    def finish(chunk: int, first: int, last: int) -> None:
        for more in pieces:
            append(lists, more, first, last, chunk, k)
        _emit(lists, first, last, 0, farthest, answer)

    for first in range(0, n, CHUNK):
        last = min(first + CHUNK, n)
        for more in pieces:
            more.counts[:] = 0
            more.limits[: last - first] = lists.limits[first:last]
            more.last_ids[: last - first] = lists.last_ids[first:last]
        tiles = np.linspace(first // TILE, num_tiles, threads + 1).astype(int).tolist()
        run(search, [(p, first, last, tiles[p], tiles[p + 1]) for p in range(threads)])
        edges = np.linspace(first, last, threads + 1).astype(int).tolist()
        run(finish, [(first, edges[p], edges[p + 1]) for p in range(threads)])
        bar.advance((last - first) * (n - (first + last) / 2))


def _emit(lists: Lists, first_row: int, last_row: int, list_offset: int, farthest: int, answer: Answer) -> None:
    """Write the k nearest of some lists in order of (distance, id); lists may live in the memory of the answer."""
    first, last = first_row - list_offset, last_row - list_offset
    pad(lists, first, last)
    step = max(1, SORTED // lists.keys.strides[0])
    for start in range(first, last, step):
        end = min(start + step, last)
        ordered = np.sort(lists.keys[start:end])
        emit(ordered, lists, start + list_offset, end + list_offset, list_offset, farthest, *answer)


def _repair(request: Request, reference: References, answer: Answer, run: Run) -> None:
    """Search again, with no limits but the request's own, the queries whose limit may have been too tight."""
    short = np.flatnonzero(~answer.proven)
    if not len(short):
        return
    repaired = Answer.empty(len(short), answer.distances.shape[1])
    again = request.take(torch.from_numpy(short))
    _scan_chunks(lay_out_queries(again), reference, _bounds(again), request.farthest, repaired, run)
    for field, found in zip(answer, repaired, strict=True):
        field[short] = found


def _same(query: torch.Tensor, reference: torch.Tensor) -> bool:
    return query.shape == reference.shape and torch.equal(query, reference)


def _lists(room: Array, columns: Columns, farthest: int, limits: Limits) -> Lists:
    """Make empty lists of 2 k keys; 32-bit keys live in `room`, int64 [rows, k], which will hold the answer."""
    rows, k = room.shape
    dtype = _key_type(columns, farthest)
    keys = room.view(dtype) if dtype.itemsize == 4 else np.empty((rows, 2 * k), dtype)
    absent = np.array(np.iinfo(dtype).max, dtype)[()]
    counts = np.zeros(rows, np.uint32)
    return Lists(keys, columns.id_bits, absent, counts, limits.distances.astype(np.int16), limits.ids.copy())


def _key_type(columns: Columns, farthest: int) -> np.dtype[Any]:
    return np.dtype(np.uint32 if columns.id_bits + farthest.bit_length() <= 32 else np.uint64)


def _scratch() -> Scratch:
    return Scratch(
        np.empty(GROUP * TILE, np.int16),
        np.empty(GROUP * BLOCKS, np.uint64),
        np.empty(2 * GROUP, np.int16),
        np.empty(GROUP * TILE + AT_ONCE, np.uint16),
    )


@contextmanager
def _threads() -> Iterator[Run]:
    """Yield a function that runs tasks on as many threads as torch uses, in the calling thread if that is one."""
    if torch.get_num_threads() == 1:

        def run_here(task: Callable[..., None], arguments: list[tuple[Any, ...]]) -> None:
            for each in arguments:
                task(*each)

        yield run_here
        return
    with ThreadPoolExecutor(torch.get_num_threads(), "lookalike-search") as pool:

        def run(task: Callable[..., None], arguments: list[tuple[Any, ...]]) -> None:
            for done in [pool.submit(task, *each) for each in arguments]:
                done.result()

        yield run
