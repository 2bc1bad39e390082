"""Levels: how a normally distributed number is rounded to a few values, and how bits are shared out among numbers."""

from __future__ import annotations

import heapq
import itertools
import math
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from lookalike.utils.arrays import Array

WIDEST = 6  # bits for one number, at most: its 64 levels fit into a byte with room to tell them apart
ROUNDS = 200  # of Lloyd's algorithm, which begins near its end


class Levels(NamedTuple):
    """The best levels for a standard normal distribution (Lloyd-Max)."""

    thresholds: Array  # float64 [levels - 1], ascending
    values: Array  # float64 [levels], ascending; the mean of what is rounded to each, and -values[::-1]
    error: float  # the mean squared error


@cache
def normal_levels(width: int) -> Levels:
    """Compute the 2^width levels that a standard normal distribution is rounded to with the smallest squared error.

    Lloyd's algorithm starts from the density of levels that is best for many of them, the cube root of the
    distribution's own (Panter and Dite 1951), and needs few rounds from there.

    Examples:
        >>> normal_levels(1).values.round(4).tolist(), round(normal_levels(2).error, 4)
        ([-0.7979, 0.7979], 0.1175)
    """
    count, normal = 1 << width, NormalDist()
    values = np.array([math.sqrt(3) * normal.inv_cdf((i + 0.5) / count) for i in range(count)])
    below = density = np.zeros(count + 1)
    for _ in range(ROUNDS):
        thresholds = (values[1:] + values[:-1]) / 2
        below = np.array([0.0, *map(normal.cdf, thresholds.tolist()), 1.0])
        density = np.array([0.0, *map(normal.pdf, thresholds.tolist()), 0.0])
        values = -np.diff(density) / np.diff(below)
    values = (values - values[::-1]) / 2  # exactly symmetric
    return Levels((values[1:] + values[:-1]) / 2, values, 1.0 - float(np.diff(below) @ values**2))


def share_out(variances: Array, bits: int) -> Array:
    """Share bits out among independent numbers, so that dot products of two rows of them lose least.

    Rounding number i to w bits errs by `variances[i] * error(w)`, and a dot product multiplies this error by a number
    of the same variance. So each bit goes where it reduces `variances[i]^2 * error` most.

    Args:
        variances: float64 [dim], positive.
        bits: How many bits there are.

    Returns:
        Bits of each number, int64 [dim], up to `WIDEST`; in all `bits`, or all that the numbers can take.

    Examples:
        >>> share_out(np.array([1.0, 0.5, 0.25]), 6).tolist()
        [3, 2, 1]
    """
    errors = [1.0, *(normal_levels(width).error for width in range(1, WIDEST + 1))]
    steps = [before - after for before, after in itertools.pairwise(errors)]
    widths = np.zeros(len(variances), np.int64)
    gains = [(-(value**2) * steps[0], i) for i, value in enumerate(variances.tolist())]
    heapq.heapify(gains)
    for _ in range(min(bits, WIDEST * len(variances))):
        _, i = gains[0]
        widths[i] += 1
        if widths[i] < WIDEST:
            heapq.heapreplace(gains, (-(float(variances[i]) ** 2) * steps[widths[i]], i))
        else:
            heapq.heappop(gains)
    return widths
