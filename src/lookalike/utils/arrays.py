"""The type of a NumPy array whose contents a comment describes, and arrays that shrink where they are."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

PIECE = 1 << 20  # numbers that are copied at a time


def narrowed(wide: Array) -> Array:
    """Turn int64 into int32 in the array's own memory and give the other half of it back; `wide` is gone afterwards.

    A copy would need half as much memory again, which matters for the neighbours of a whole training set.
    """
    shape, size = wide.shape, wide.size
    numbers = wide.reshape(-1)
    narrow = numbers.view(np.int32)[:size]
    for first in range(0, size, PIECE):
        narrow[first : first + PIECE] = numbers[first : first + PIECE]  # NumPy copies what overlaps before it writes
    del numbers, narrow
    wide.resize((size + 1) // 2, refcheck=False)
    return wide.view(np.int32)[:size].reshape(shape)
