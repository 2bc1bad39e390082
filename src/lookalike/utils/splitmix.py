"""Random numbers that are the same on every machine and in every version of NumPy."""

from typing import TypeVar

import numpy as np

T = TypeVar("T", np.uint64, np.ndarray[tuple[int, ...], np.dtype[np.uint64]])

STEP = np.uint64(0x9E3779B97F4A7C15)  # between two states of the generator


def splitmix64(state: T) -> T:
    """Mix a state of the generator into a random number: uint64, or an array of them.

    A generator adds `STEP` to its state before each call. Written so that numba can compile it.
    """
    z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
