"""Lists of ids of different lengths, one per row, as a CSR pair `(offsets, ids)`: the one form of `exclude`."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.utils.tensors import checked_integers

if TYPE_CHECKING:
    from collections.abc import Sequence

Lists = tuple[Tensor, Tensor]  # int64 [rows + 1] and int64 [m]: row i lists ids[offsets[i]:offsets[i + 1]]


def make_lists(rows: Sequence[Sequence[int]]) -> Lists:
    """Turn a list of lists into a CSR pair.

    Examples:
        >>> [part.tolist() for part in make_lists([[4], [], [2, 3]])]
        [[0, 1, 1, 3], [4, 2, 3]]
    """
    lengths = np.array([len(row) for row in rows], np.int64)
    ids = np.array([i for row in rows for i in row], np.int64)
    return torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])), torch.from_numpy(ids)


def each_itself(n: int) -> Lists:
    """Make lists in which row i holds i alone: what to exclude when a set is searched in itself."""
    return torch.arange(n + 1), torch.arange(n)


def checked_lists(name: str, lists: tuple[Any, Any], rows: int, n: int, device: torch.device) -> Lists:
    """Check lists of ids below n, one per row, and sort each of them.

    Raises:
        TypeError: `lists` is not a pair of integer arrays.
        ValueError: The offsets do not fit the ids, or an id is out of range.
    """
    if not isinstance(lists, (tuple, list)) or len(lists) != 2:
        raise TypeError(f"{name} must be a pair (offsets, ids), as in a CSR matrix.")
    offsets = checked_integers(f"{name} offsets", lists[0]).to(device)
    ids = checked_integers(f"{name} ids", lists[1]).to(device)
    if len(offsets) != rows + 1:
        raise ValueError(f"{name} offsets must have length {rows + 1} (rows + 1), got {len(offsets)}.")
    lengths = offsets.diff()
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(ids) or bool((lengths < 0).any()):
        raise ValueError(f"{name} offsets must rise from 0 to the number of ids, {len(ids)}, without falling.")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= n):
        raise ValueError(f"{name} ids must be between 0 and {n - 1}, got {int(ids.min())} to {int(ids.max())}.")
    by_id = ids.argsort(stable=True)
    return offsets, ids[by_id[row_numbers((offsets, ids))[by_id].argsort(stable=True)]]


def row_numbers(lists: Lists) -> Tensor:
    """Return the row that each id belongs to, int64 [m]; does not wait for the device."""
    offsets, ids = lists
    rows = torch.arange(len(offsets) - 1, device=offsets.device)
    return torch.repeat_interleave(rows, offsets.diff(), output_size=len(ids))


def lists_mask(lists: Lists, columns: int, device: torch.device) -> Tensor:
    """Mark the ids of each list, bool [rows, columns], on `device`; does not wait for it.

    Examples:
        >>> import torch
        >>> lists_mask(make_lists([[0, 2], []]), 3, torch.device("cpu")).tolist()
        [[True, False, True], [False, False, False]]
    """
    offsets, ids = lists
    places = (row_numbers(lists) * columns + ids).to(device, non_blocking=True)
    mask = torch.zeros((len(offsets) - 1) * columns, dtype=torch.bool, device=device)
    return mask.index_fill_(0, places, True).view(-1, columns)


def take_lists(lists: Lists, rows: Tensor) -> Lists:
    """Return the lists of some of the rows."""
    offsets, ids = lists
    lengths = offsets[rows + 1] - offsets[rows]
    taken = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    positions = torch.arange(int(taken[-1]), device=ids.device)
    positions += torch.repeat_interleave(offsets[rows] - taken[:-1], lengths)
    return taken, ids[positions]


def joined_lists(a: Lists, b: Lists) -> Lists:
    """Append the lists of b to those of a, row by row.

    Examples:
        >>> [part.tolist() for part in joined_lists(make_lists([[4], []]), make_lists([[2, 3], [1]]))]
        [[0, 3, 4], [4, 2, 3, 1]]
    """
    rows = torch.cat([row_numbers(a), row_numbers(b)])
    return a[0] + b[0], torch.cat([a[1], b[1]])[rows.argsort(stable=True)]


def lists_among(lists: Lists, rows: Tensor, columns: Tensor) -> Lists:
    """Return the lists of some of the rows as positions in `columns`, dropping ids that are not among them.

    Args:
        lists: Lists of ids.
        rows: Which lists to take, int64.
        columns: Distinct ids, int64.

    Examples:
        >>> import torch
        >>> some = lists_among(make_lists([[1], [0, 2], []]), torch.tensor([1, 2]), torch.tensor([2, 1]))
        >>> [part.tolist() for part in some]
        [[0, 1, 1], [0]]
    """
    offsets, ids = take_lists(lists, rows)
    ordered, places = columns.sort()
    found = torch.searchsorted(ordered, ids)
    is_among = found < len(columns)
    is_among[is_among.clone()] = ordered[found[is_among]] == ids[is_among]
    kept = torch.cat([offsets.new_zeros(1), is_among.long().cumsum(0)])
    return kept[offsets], places[found[is_among]]


def lists_within(lists: Lists, first: int, last: int) -> Lists:
    """Return the ids from `first` to `last` - 1 of each list, counted from `first`.

    Examples:
        >>> [part.tolist() for part in lists_within(make_lists([[1, 5], [], [4]]), 4, 6)]
        [[0, 1, 1, 2], [1, 0]]
    """
    offsets, ids = lists
    is_within = (ids >= first) & (ids < last)
    kept = torch.cat([offsets.new_zeros(1), is_within.long().cumsum(0)])
    return kept[offsets], ids[is_within] - first


def lists_checksum(lists: Lists) -> int:
    """Return a checksum, by which processes compare their lists."""
    offsets, ids = (part.cpu().numpy().tobytes() for part in lists)
    return zlib.crc32(ids, zlib.crc32(offsets))
