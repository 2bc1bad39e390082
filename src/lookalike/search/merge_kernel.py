"""The numba kernel that merges neighbours on the CPU, in place."""

from typing import Any

from lookalike.utils.jit import kernel


@kernel
def merge_rows(distances: Any, indices: Any, more_distances: Any, more_indices: Any, first: int) -> None:
    """Merge ascending lists, padded with -1, row by row: the k nearest of both, ties with the first list's ahead.

    Rows without news cost nothing. Others are written from the end, so nothing is overwritten before it is read.
    """
    k = indices.shape[1]
    for row in range(indices.shape[0]):
        new = 0
        while new < k and more_indices[row, new] >= 0:
            new += 1
        if new == 0:
            continue
        held = k
        while held > 0 and indices[row, held - 1] < 0:
            held -= 1
        while held + new > k:  # drop the farthest
            if held == 0 or (new > 0 and more_distances[row, new - 1] >= distances[row, held - 1]):
                new -= 1
            else:
                held -= 1
        while new > 0:
            slot = held + new - 1
            if held > 0 and distances[row, held - 1] > more_distances[row, new - 1]:
                held -= 1
                distances[row, slot] = distances[row, held]
                indices[row, slot] = indices[row, held]
            else:
                new -= 1
                distances[row, slot] = more_distances[row, new]
                indices[row, slot] = more_indices[row, new] + first
