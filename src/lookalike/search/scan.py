"""The numba kernels of the `cpu` backend: scan tiles, collect candidates, sort them.

Every query has a *candidate list*, up to 2k (distance, id) entries in the order they were met, and a *limit*. A
reference row is a candidate if its distance is within the limit and it is not excluded. Columns are visited in
ascending order of id, so lists stay sorted by id, which gives two things for free: a counting sort by distance leaves
ties in order of id, and a full list can be cut to its best k with a limit one below the k-th distance (a later row at
that distance would lose the tie anyway). A row that was cut can never come back, so the cut is exact.
"""

from typing import Any, NamedTuple

import numpy as np

from lookalike.search.simd import GROUP, TILE, count_ones, distance_tile, trailing_zeros
from lookalike.utils.jit import kernel

MASK_WORDS = GROUP * TILE // 64

_TILE_BITS = TILE.bit_length() - 1


class Rows(NamedTuple):
    """The queries."""

    codes: Any  # uint32 [groups, slots, GROUP]
    labels: Any  # int64 [q], or empty: no labels
    exclude_offsets: Any  # int64 [q + 1], or empty: nothing excluded
    exclude_ids: Any  # int64 [m], ascending within a query


class Columns(NamedTuple):
    """The reference, or every `id_stride`-th row of it."""

    codes: Any  # uint32 [tiles, TILE / LANES, slots, LANES]
    labels: Any  # int64 [n], or empty: no labels
    num_columns: int
    id_stride: int  # column c is sample c * id_stride
    id_bits: int  # width of an id


class Lists(NamedTuple):
    """Candidate lists."""

    keys: Any  # uint32, or uint64 if that is too narrow, [rows, 2k]: distance << id_bits | id
    id_bits: int
    counts: Any  # int32 [rows]
    limits: Any  # int32 [rows], for mirrored lists padded to whole tiles with -1


class Scratch(NamedTuple):
    """Working memory of one thread."""

    distances: Any  # int32 [GROUP * TILE]
    row_hits: Any  # uint64 [MASK_WORDS]
    column_hits: Any  # uint64 [MASK_WORDS]
    positions: Any  # int32 [GROUP * TILE + 2]
    row_limits: Any  # int32 [GROUP]
    histogram: Any  # int64 [max_distance + 2], zero between uses
    keys: Any  # as Lists.keys: one list


@kernel
def _is_excluded(rows: Rows, row: int, sample: int) -> bool:
    low, high = rows.exclude_offsets[row], rows.exclude_offsets[row + 1]
    end = high
    while low < high:
        middle = (low + high) // 2
        if rows.exclude_ids[middle] < sample:
            low = middle + 1
        else:
            high = middle
    return bool(low < end and rows.exclude_ids[low] == sample)


@kernel
def _keep_best(lists: Lists, row: int, k: int, histogram: Any) -> None:
    """Cut a list to its k nearest, ties by the earlier entry, and tighten its limit."""
    count = lists.counts[row]
    for i in range(count):
        histogram[lists.keys[row, i] >> lists.id_bits] += 1
    last, nearer = 0, 0  # the k-th distance, and how many are nearer than that
    while nearer + histogram[last] < k:
        nearer += histogram[last]
        last += 1
    ties, kept = k - nearer, 0
    for i in range(count):
        key = lists.keys[row, i]
        distance = int(key >> lists.id_bits)
        histogram[distance] = 0
        tied = distance == last
        if distance < last or (tied and ties > 0):
            lists.keys[row, kept] = key
            kept += 1
            ties -= tied
    lists.counts[row] = kept
    lists.limits[row] = last - 1


@kernel
def _push(lists: Lists, row: int, distance: int, sample: int, k: int, histogram: Any) -> None:
    if lists.counts[row] == lists.keys.shape[1]:
        _keep_best(lists, row, k, histogram)
    if distance > lists.limits[row]:  # the limit may have tightened since the tile was compared with it
        return
    slot = lists.counts[row]
    lists.keys[row, slot] = (int(distance) << lists.id_bits) | sample
    lists.counts[row] = slot + 1


@kernel
def _positions(hits: Any, positions: Any) -> int:
    """List the set bits. Most words have at most two: writing two unconditionally saves a mispredicted branch each."""
    found = 0
    for word in range(MASK_WORDS):
        mask = hits[word]
        count = count_ones(mask)
        for i in range(2):
            positions[found + i] = word * 64 + trailing_zeros(mask)
            mask &= mask - np.uint64(1)
        for i in range(2, count):
            positions[found + i] = word * 64 + trailing_zeros(mask)
            mask &= mask - np.uint64(1)
        found += count
    return found


@kernel
def scan(
    rows: Rows,
    first_row: int,  # a multiple of GROUP
    last_row: int,
    columns: Columns,
    first_tile: int,
    last_tile: int,
    lists: Lists,
    list_offset: int,  # the list of row r is number r - list_offset
    mirror: bool,  # self-join: column c is row c; visit c >= r only and offer each pair to both sides
    mirror_lists: Lists,  # if mirror: the lists of the columns; else its limits are one tile of -1
    k: int,
    scratch: Scratch,
) -> None:
    """Offer every column of the tiles to the list of every row."""
    slots = columns.codes.shape[2]
    has_labels, has_exclude = rows.labels.size > 0, rows.exclude_offsets.size > 0
    for tile in range(first_tile, last_tile):
        first_column = tile * TILE
        for group_row in range(first_row, last_row, GROUP):
            if mirror and first_column + TILE <= group_row:
                break
            for r in range(GROUP):
                row = group_row + r
                scratch.row_limits[r] = lists.limits[row - list_offset] if row < last_row else -1
            distance_tile(
                rows.codes[group_row // GROUP].ctypes.data,
                columns.codes[tile].ctypes.data,
                slots,
                scratch.row_limits.ctypes.data,
                mirror_lists.limits.ctypes.data + (first_column * 4 if mirror else 0),
                scratch.distances.ctypes.data,
                scratch.row_hits.ctypes.data,
                scratch.column_hits.ctypes.data,
            )
            # Columns first: on the diagonal, a row meets those above it before those below, in order of id.
            for i in range(_positions(scratch.column_hits, scratch.positions) if mirror else 0):
                position = scratch.positions[i]
                row, column = group_row + (position >> _TILE_BITS), first_column + (position & (TILE - 1))
                if column <= row or row >= last_row:
                    continue
                if has_labels and rows.labels[column] == columns.labels[row]:  # the column is the query here
                    continue
                if has_exclude and _is_excluded(rows, column, row):
                    continue
                _push(mirror_lists, column, scratch.distances[position], row, k, scratch.histogram)
            for i in range(_positions(scratch.row_hits, scratch.positions)):
                position = scratch.positions[i]
                row, column = group_row + (position >> _TILE_BITS), first_column + (position & (TILE - 1))
                if column >= columns.num_columns or (mirror and column < row):
                    continue
                if has_labels and rows.labels[row] == columns.labels[column]:
                    continue
                sample = column * columns.id_stride
                if has_exclude and _is_excluded(rows, row, sample):
                    continue
                _push(lists, row - list_offset, scratch.distances[position], sample, k, scratch.histogram)


@kernel
def append(
    lists: Lists, more: Lists, first_row: int, last_row: int, more_offset: int, k: int, scratch: Scratch
) -> None:
    """Offer the entries of `more`, all of later ids, to the lists of the same rows."""
    for row in range(first_row, last_row):
        for i in range(more.counts[row - more_offset]):
            key = int(more.keys[row - more_offset, i])
            distance, sample = key >> more.id_bits, key & ((1 << more.id_bits) - 1)
            _push(lists, row, distance, sample, k, scratch.histogram)


@kernel
def emit(
    lists: Lists,
    first_row: int,
    last_row: int,
    list_offset: int,
    max_distance: int,
    distances: Any,  # int32 [q, k] out
    indices: Any,  # int64 [q, k] out
    proven: Any,  # bool [q] out
    scratch: Scratch,
) -> None:
    """Write the k nearest of each list in order of (distance, id), padded with -1.

    A list with fewer than k entries is complete only if its limit was the largest distance. A row's list may share
    memory with its indices, so it is copied before they are written.
    """
    k = distances.shape[1]
    starts = scratch.histogram
    for row in range(first_row, last_row):
        entry = row - list_offset
        count = lists.counts[entry]
        proven[row] = count >= k or lists.limits[entry] >= max_distance
        nearest, farthest = max_distance, 0
        for i in range(count):
            key = lists.keys[entry, i]
            scratch.keys[i] = key
            distance = int(key >> lists.id_bits)
            starts[distance + 1] += 1
            nearest, farthest = min(nearest, distance), max(farthest, distance)
        for distance in range(nearest, farthest + 1):
            starts[distance + 1] += starts[distance]
        for i in range(count):
            key = int(scratch.keys[i])
            distance = key >> lists.id_bits
            slot = starts[distance]
            starts[distance] += 1
            if slot < k:
                distances[row, slot] = distance
                indices[row, slot] = key & ((1 << lists.id_bits) - 1)
        for distance in range(nearest, farthest + 2):
            starts[distance] = 0
        for slot in range(count, k):
            distances[row, slot] = -1
            indices[row, slot] = -1
