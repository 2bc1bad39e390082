"""What codes of several bits promise: how far an estimated cosine is from the true one, and how likely an order holds.

The model is that of the codes themselves: the principal components of centred embeddings are independent and normally
distributed, which the random rotation of components of equal width brings about approximately, and each is rounded to
the best levels for its variance. A component of variance s that got w bits is rounded with the mean squared error
s D(w), D(w) of `normal_levels`; one without bits is lost, D(0) = 1. Rounded values are the means of what is rounded to
them, so they are uncorrelated with their own errors, and an estimated dot product errs by

    sum of s^2 (1 - (1 - D)^2)   two codes
    sum of s^2 D                 floats of the query with a code

in the mean square, for two rows that have nothing to do with each other.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from lookalike.hashing.levels import WIDEST, normal_levels, share_out
from lookalike.hashing.scheme import HEADER

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

CORRECTIONS = 8 * HEADER  # bits of a code that hold no levels


def cosine_error(variances: ArrayLike, bits: int, *, float_query: bool = False) -> float:
    """Return the standard deviation of an estimated cosine from the true one, for two unrelated rows.

    Args:
        variances: Variances of the principal components of normalised embeddings, floats `[dim]`.
        bits: Length of the codes.
        float_query: Compare the floats of the query with what a code stands for, rather than two codes.

    Raises:
        ValueError: Variances are not positive and finite, or the code is too short to hold levels.

    Examples:
        >>> variances = np.full(384, 1 / 384)
        >>> round(cosine_error(variances, 16 + 384), 3), round(cosine_error(variances, 16 + 3 * 384), 4)
        (0.039, 0.0133)
        >>> round(cosine_error(variances, 16 + 384, float_query=True), 3)
        0.031
    """
    spread = _checked(variances)
    if bits <= CORRECTIONS:
        raise ValueError(f"codes of several bits have more than {CORRECTIONS} bits, got {bits}.")
    errors = np.array([1.0, *(normal_levels(width).error for width in range(1, WIDEST + 1))])
    lost = errors[share_out(spread, bits - CORRECTIONS)]
    each = lost if float_query else 1 - (1 - lost) ** 2
    return math.sqrt(float(spread**2 @ each))


def order_probability(gap: float, variances: ArrayLike, bits: int, *, float_query: bool = False) -> float:
    """Return how likely two samples whose cosines to a query differ by `gap` are put in the right order.

    By the normal approximation, with errors that have nothing to do with each other. Two codes that resemble each
    other err alike with respect to the query's code, which keeps their order more likely than this.

    Examples:
        >>> variances = np.full(384, 1 / 384)
        >>> [round(order_probability(0.05, variances, bits), 3) for bits in (16 + 384, 16 + 2 * 384, 16 + 4 * 384)]
        [0.816, 0.93, 1.0]
    """
    error = cosine_error(variances, bits, float_query=float_query)
    return NormalDist().cdf(gap / (math.sqrt(2) * error)) if error else float(gap >= 0)


def _checked(variances: ArrayLike) -> NDArray[np.float64]:
    spread = np.asarray(variances, np.float64)
    if spread.ndim != 1 or not np.isfinite(spread).all() or not (spread > 0).all():
        raise ValueError("variances must be positive numbers, one per principal component.")
    return spread
