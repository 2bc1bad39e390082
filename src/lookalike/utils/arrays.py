"""The type of a NumPy array whose contents a comment describes; write arrays to files, and shrink them in memory."""

from typing import Any, BinaryIO

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


def write_array(file: BinaryIO, values: Array) -> None:
    """Write the values of an array, row by row.

    NumPy's own `tofile`, which `numpy.save` calls, loses the last few kilobytes in silence where they no longer fit on
    the disk, and otherwise raises an error without the number by which a full disk is recognised.
    """
    file.write(np.ascontiguousarray(values).data)


def save_array(file: BinaryIO, values: Array) -> None:
    """Write an array in C order as `numpy.save` does, byte for byte, but never in part."""
    values = np.ascontiguousarray(values)
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
    write_array(file, values)
