"""The numba kernels of the `cpu` backend: scan tiles, collect candidates, sort them.

Every query has a *candidate list*, up to 2k (distance, id) entries in the order they were met, and a *limit*. A
reference row is a candidate if its distance is within the limit and it is not excluded. Columns are visited in
ascending order of id, so lists stay sorted by id, which gives two things for free: a full list can be cut to its best k
or slightly more, with a limit one below the distance of the cut (a later row at that distance would lose the tie), and
a limit can be a key (distance, id): once that id has passed, the limit drops by one. A row that was cut can never come
back, so the cut is exact.
"""

from typing import Any, NamedTuple

import numpy as np

from lookalike.search.simd import BLOCK, BLOCKS, GROUP, TILE, count_ones, distance_tile, trailing_zeros
from lookalike.search.simd_scalar import scalar_distance_tile
from lookalike.utils.jit import kernel

FAR = np.iinfo(np.int64).max
ALL = np.uint64(2**BLOCK - 1)
AT_ONCE = 2  # hits of a word that are listed without a branch


class Rows(NamedTuple):
    """The queries."""

    codes: Any  # uint32 [groups, GROUP / 4, slots, 4], each word twice; codes of several bits: words of four values
    labels: Any  # int64 [q], or empty: no labels
    exclude_offsets: Any  # int64 [q + 1], or empty: nothing excluded
    exclude_ids: Any  # int64 [m], ascending within a query


class Columns(NamedTuple):
    """The reference, or every `id_stride`-th row of it."""

    codes: Any  # uint16 [tiles, TILE / 32, slots, 32]; codes of several bits: uint32 [tiles, TILE / 16, words, 16]
    labels: Any  # int64 [n], or empty: no labels
    num_columns: int
    id_stride: int  # column c is sample c * id_stride
    id_bits: int  # width of an id


class Terms(NamedTuple):
    """What turns dot products into distances of codes of several bits."""

    rows: Any  # int32 [groups, 3, GROUP]
    columns: Any  # int32 [tiles, 2, TILE]
    shifts: int


class Lists(NamedTuple):
    """Candidate lists."""

    keys: Any  # uint32, or uint64 if that is too narrow, [rows, 2k]: distance << id_bits | id
    id_bits: int
    absent: Any  # a key beyond all others
    counts: Any  # uint32 [rows]
    limits: Any  # int16 [rows], for mirrored lists padded to whole tiles with -1
    last_ids: Any  # int64 [rows]: after this id, rows at the distance of the limit itself no longer count


class Scratch(NamedTuple):
    """Working memory of one thread."""

    distances: Any  # int16 [GROUP * TILE]
    hits: Any  # uint64 [GROUP * BLOCKS]
    row_limits: Any  # int16 [2 * GROUP], each limit twice
    positions: Any  # uint16 [GROUP * TILE + AT_ONCE]


@kernel
def _is_excluded(rows: Rows, row: Any, sample: Any) -> bool:
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
def _count_within(keys: Any, entry: int, count: Any, bound: Any) -> Any:
    total = np.uint32(0)
    for i in range(count):
        total = np.uint32(total + np.uint32(keys[entry, i] <= bound))
    return np.int64(total)


@kernel
def _keep_best(lists: Lists, entry: int, k: int) -> None:
    """Cut a list to its nearest, k to 9/8 k, ties by the earlier entry, and tighten its limit.

    The last key to keep is found by counting, which takes vector instructions; a histogram does not.
    """
    count = np.int64(lists.counts[entry])
    farthest = int(np.int64(lists.absent >> np.uint64(lists.id_bits)))
    nearest_out = min(int(lists.limits[entry]) + 1, farthest) + 1  # the limit may be one below what was kept before
    low, high = 0, (nearest_out << lists.id_bits) - 1
    while low < high:  # for the least bound with k keys within it, or any with slightly more
        middle = (low + high) // 2
        within = _count_within(lists.keys, entry, count, lists.keys.dtype.type(middle))
        if within < k:
            low = middle + 1
        elif within > k + k // 8:
            high = middle
        else:
            low = high = middle
    bound = lists.keys.dtype.type(low)
    kept = np.int64(0)
    for i in range(count):
        key = lists.keys[entry, i]
        lists.keys[entry, kept] = key  # always: whether it is kept is a coin flip, which no branch predicts
        kept += np.int64(key <= bound)
    lists.counts[entry] = kept
    lists.limits[entry] = (low >> lists.id_bits) - 1  # a later row at this distance would lose all ties
    lists.last_ids[entry] = FAR


@kernel
def _pass_ids(lists: Lists, entry: int, first_id: int) -> None:
    """Tighten the limit of a list to which no id below `first_id` will be offered any more."""
    if first_id > lists.last_ids[entry]:
        lists.limits[entry] -= 1
        lists.last_ids[entry] = FAR


@kernel
def _push(lists: Lists, entry: Any, distance: Any, sample: Any, k: int) -> None:
    """Append a row to a list if it is within the limit: always written, but counted only then, without a branch.

    `entry` is unsigned, as are all indices of the innermost loop: numba lets signed ones count from the end.
    """
    if lists.counts[entry] == lists.keys.shape[1]:
        _keep_best(lists, entry, k)
    slot = lists.counts[entry]
    lists.keys[entry, slot] = (distance << lists.id_bits) | sample
    lists.counts[entry] = slot + np.uint32(distance <= lists.limits[entry])


@kernel
def _inside(word: int, num_columns: int, num_rows: int, diagonal: int) -> Any:
    """Return the bits of a word of hits that are within columns and rows, and from the diagonal on."""
    row, column = word // BLOCKS, word % BLOCKS * BLOCK
    first, last = max(row + diagonal - column, 0), min(num_columns - column, BLOCK)
    if row >= num_rows or first >= last:
        return np.uint64(0)
    return (ALL >> np.uint64(BLOCK - last)) & (ALL << np.uint64(first))


@kernel
def _positions(words: Any, hits: Any, positions: Any, num_columns: int, num_rows: int, diagonal: int) -> Any:
    """List the set bits within columns and rows, and from the diagonal on, as positions in the tile; count them.

    `words` says which words of `hits` are not zero.
    """
    found, one = np.uint64(0), np.uint64(1)
    inside = num_columns >= TILE and num_rows >= GROUP and diagonal < 1 - GROUP
    while words:
        word = np.uint64(trailing_zeros(words))
        words &= words - one
        mask = hits[word]
        if not inside:
            mask &= _inside(int(np.int64(word)), num_columns, num_rows, diagonal)
        end = found + np.uint64(count_ones(mask))
        while mask:  # two at a time, even if one is left: whether there is another is what no branch predicts
            for i in range(AT_ONCE):
                positions[found + np.uint64(i)] = word * np.uint64(BLOCK) + np.uint64(trailing_zeros(mask))
                mask &= mask - one
            found += np.uint64(AT_ONCE)
        found = end
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
    terms: Any,  # None for sign codes
) -> None:
    """Offer every column of the tiles to the list of every row."""
    for tile in range(first_tile, last_tile):
        first_column = tile * TILE
        if mirror:
            for column in range(first_column, first_column + TILE):
                _pass_ids(mirror_lists, column, first_row)
        for group_row in range(first_row, last_row, GROUP):
            if mirror and first_column + TILE <= group_row:
                break
            for r in range(GROUP):
                row, limit = group_row + r, np.int16(-1)
                if row < last_row:
                    _pass_ids(lists, row - list_offset, first_column * columns.id_stride)
                    limit = lists.limits[row - list_offset]
                scratch.row_limits[2 * r] = scratch.row_limits[2 * r + 1] = limit
            group = group_row // GROUP
            column_limits = mirror_lists.limits.ctypes.data + (first_column * 2 if mirror else 0)
            if terms is None:
                words = distance_tile(
                    rows.codes[group].ctypes.data,
                    columns.codes[tile].ctypes.data,
                    columns.codes.shape[2],
                    scratch.row_limits.ctypes.data,
                    column_limits,
                    scratch.distances.ctypes.data,
                    scratch.hits.ctypes.data,
                )
            else:
                words = scalar_distance_tile(
                    rows.codes[group].ctypes.data,
                    columns.codes[tile].ctypes.data,
                    columns.codes.shape[2],
                    terms.rows[group].ctypes.data,
                    terms.columns[tile].ctypes.data,
                    terms.shifts,
                    scratch.row_limits.ctypes.data,
                    column_limits,
                    scratch.distances.ctypes.data,
                    scratch.hits.ctypes.data,
                )
            diagonal = group_row - first_column if mirror else -TILE
            num_columns, num_rows = columns.num_columns - first_column, last_row - group_row
            found = _positions(words, scratch.hits, scratch.positions, num_columns, num_rows, diagonal)
            # Columns first: on the diagonal, a row meets those above it before those below, in order of id.
            if mirror:
                _offer_to_columns(rows, group_row, columns, first_column, mirror_lists, k, scratch, found)
            _offer_to_rows(rows, group_row, columns, first_column, lists, list_offset, k, scratch, found)


@kernel
def _offer_to_columns(
    rows: Rows, group_row: int, columns: Columns, first_column: int, lists: Lists, k: int, scratch: Scratch, found: Any
) -> None:
    """Offer the rows to the columns that they were found near to, which are the queries here."""
    has_labels, has_exclude = rows.labels.size > 0, rows.exclude_offsets.size > 0
    for i in range(found):
        position = np.uint64(scratch.positions[i])
        row = position // np.uint64(TILE) + np.uint64(group_row)
        column = position % np.uint64(TILE) + np.uint64(first_column)
        if column == row or (has_labels and rows.labels[column] == columns.labels[row]):
            continue
        if has_exclude and _is_excluded(rows, np.int64(column), np.int64(row)):
            continue
        _push(lists, column, np.int64(scratch.distances[position]), np.int64(row), k)


@kernel
def _offer_to_rows(
    rows: Rows,
    group_row: int,
    columns: Columns,
    first_column: int,
    lists: Lists,
    list_offset: int,
    k: int,
    scratch: Scratch,
    found: Any,
) -> None:
    """Offer the columns to the rows that they were found near to."""
    has_labels, has_exclude = rows.labels.size > 0, rows.exclude_offsets.size > 0
    for i in range(found):
        position = np.uint64(scratch.positions[i])
        row = position // np.uint64(TILE) + np.uint64(group_row)
        column = position % np.uint64(TILE) + np.uint64(first_column)
        if has_labels and rows.labels[row] == columns.labels[column]:
            continue
        sample = np.int64(column) * columns.id_stride
        if has_exclude and _is_excluded(rows, np.int64(row), sample):
            continue
        _push(lists, row - np.uint64(list_offset), np.int64(scratch.distances[position]), sample, k)


@kernel
def append(lists: Lists, more: Lists, first_row: int, last_row: int, more_offset: int, k: int) -> None:
    """Offer the entries of `more`, all of later ids, to the lists of the same rows."""
    for row in range(first_row, last_row):
        for i in range(more.counts[row - more_offset]):
            key = int(more.keys[row - more_offset, i])
            distance, sample = key >> more.id_bits, key & ((1 << more.id_bits) - 1)
            _push(lists, np.uint64(row), distance, sample, k)


@kernel
def pad(lists: Lists, first_entry: int, last_entry: int) -> None:
    """Fill what lists leave empty with the largest key."""
    for entry in range(first_entry, last_entry):
        for slot in range(np.int64(lists.counts[entry]), lists.keys.shape[1]):
            lists.keys[entry, slot] = lists.absent


@kernel
def emit(
    keys: Any,  # as Lists.keys, [rows, >= k], ascending
    lists: Lists,
    first_row: int,
    last_row: int,
    list_offset: int,
    max_distance: int,
    distances: Any,  # int32 [q, k] out
    indices: Any,  # int64 [q, k] out
    proven: Any,  # bool [q] out
) -> None:
    """Write the k nearest of each list, padded with -1.

    A list with fewer than k entries is complete only if its limit was the largest distance.
    """
    k = distances.shape[1]
    for row in range(first_row, last_row):
        entry = row - list_offset
        found = min(k, np.int64(lists.counts[entry]))
        proven[row] = found == k or lists.limits[entry] >= max_distance
        for slot in range(found):
            key = np.int64(keys[row - first_row, slot])
            distances[row, slot] = key >> lists.id_bits
            indices[row, slot] = key & ((1 << lists.id_bits) - 1)
        for slot in range(found, k):
            distances[row, slot] = -1
            indices[row, slot] = -1
