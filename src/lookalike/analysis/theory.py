"""How likely sign codes are to keep the order of two samples by distance, and how many bits that takes.

Angles are fractions of pi, as the codes see them: measured from the mean where embeddings are centred. Take an anchor
c, a sample x at the angle `near`, a sample y at the angle `far`, and the angle `between` x and y. A random hyperplane
separates c from x with probability `near` and c from y with probability `far`, and Z = Hamming(c, x) - Hamming(c, y)
is a sum of `bits` steps of -1, 0 or 1. The codes keep the order where Z <= 0 (`strict`: Z < 0, a tie is a failure).

| function | P(Z <= 0) |
|---|---|
| `order_probability` | exact, for given angles and independent rows |
| `normal_order_probability` | its normal approximation |
| `worst_case_probability` | the normal approximation at the worst `between` |
| `certain_probability` | a lower bound without approximation, for every `between` |
| `paper_probability` | the published expression: the best case, not a bound |

All of these assume independent rows; the orthonormal rows of `SignHasher` vary less (`hamming_variance`).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lookalike.utils.checks import check_choice, checked_positive

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

BITS_METHODS = ("exact", "normal", "chernoff", "paper")  # of `smallest_bits`
ROUNDING = 1e-12  # tolerance for angles that were computed from one another


class Steps(NamedTuple):
    """The distribution of one step of Z."""

    wrong: float  # +1: the hyperplane separates c from x, not from y
    none: float  # 0
    right: float  # -1: it separates c from y, not from x


def separation(cosine: ArrayLike) -> NDArray[np.float64]:
    """Return the angle as a fraction of pi: the probability that a random hyperplane separates two embeddings.

    Examples:
        >>> separation([1.0, 0.0, -1.0]).tolist()
        [0.0, 0.5, 1.0]
    """
    angle: NDArray[np.float64] = np.arccos(np.clip(np.asarray(cosine, np.float64), -1, 1)) / np.pi
    return angle


def collision_probability(cosine: ArrayLike) -> NDArray[np.float64]:
    """Return the probability that two embeddings agree in a bit.

    Examples:
        >>> collision_probability([1.0, 0.0]).tolist()
        [1.0, 0.5]
    """
    return 1 - separation(cosine)


def joint_separation(near: float, far: float, between: float) -> float:
    """Return the probability that one hyperplane separates the anchor from both samples.

    A hyperplane separates x from y exactly if it separates c from one of them and not from the other.

    Examples:
        >>> joint_separation(0.25, 0.5, 0.25)  # y lies behind x
        0.25
    """
    _check_triple(near, far, between)
    return max(0.0, (near + far - between) / 2)


def steps(near: float, far: float, between: float) -> Steps:
    """Return the distribution of one step of Z.

    Raises:
        ValueError: No three directions have these angles.
    """
    _check_triple(near, far, between)
    wrong, right = max(0.0, (between - far + near) / 2), max(0.0, (between + far - near) / 2)
    return Steps(wrong, max(0.0, 1 - between), right)


def widest_between(near: float, far: float) -> float:
    """Return the largest angle between two samples at these angles from the anchor: the worst case for their order.

    Examples:
        >>> widest_between(0.25, 0.5)
        0.75
    """
    return min(near + far, 2 - near - far)


def typical_between(near: float, far: float) -> float:
    """Return the angle between samples in unrelated directions from the anchor, as is typical in high dimensions.

    Examples:
        >>> round(typical_between(0.25, 0.25), 6)
        0.333333
    """
    return float(separation(math.cos(math.pi * near) * math.cos(math.pi * far)))


def order_probability(near: float, far: float, between: float, bits: int, *, strict: bool = False) -> float:
    """Return the exact probability that x is at most as far as y by Hamming distance, for independent rows.

    Args:
        near: Angle between anchor and x, as a fraction of pi.
        far: Angle between anchor and y.
        between: Angle between x and y.
        bits: Length of the codes.
        strict: Count a tie as a failure.

    Raises:
        ValueError: No three directions have these angles, or `bits` is not positive.

    Examples:
        >>> round(order_probability(0.3, 0.33, 0.63, bits=128), 3)
        0.686
    """
    return 1 - order_failure(near, far, between, bits, strict=strict)


def order_failure(near: float, far: float, between: float, bits: int, *, strict: bool = False) -> float:
    """Return 1 - `order_probability` to full precision, however small.

    Tilting the steps until wrong and right are equally likely takes out the factor of Chernoff's bound; the symmetric
    distribution that is left is convolved by a Fourier transform without cancellation.

    Examples:
        >>> f"{order_failure(0.3, 0.4, 0.5, bits=4096):.2e}"
        '3.38e-20'
    """
    bits, step = checked_positive("bits", bits), steps(near, far, between)
    if near > far:  # swapping x and y changes the sign of Z
        return 1 - order_failure(far, near, between, bits, strict=not strict)
    if step.wrong == 0:
        return step.none**bits if strict else 0.0
    tilted = math.sqrt(step.wrong * step.right)
    base = step.none + 2 * tilted  # of the bound: base ** bits
    length = 1 << (2 * bits).bit_length()  # Z has 2 bits + 1 values, fewer than this
    waves = (step.none + 2 * tilted * np.cos(2 * np.pi / length * np.arange(length // 2 + 1))) / base
    mass = np.fft.irfft(waves**bits, length)[: bits + 1]  # of Z = 0, 1, ..., bits, tilted
    weights = np.exp(0.5 * math.log(step.wrong / step.right) * np.arange(bits + 1))  # the tilt, taken back
    first = 0 if strict else 1
    return min(1.0, max(0.0, base**bits * float(mass[first:] @ weights[first:])))


def normal_order_probability(near: float, far: float, between: float, bits: int) -> float:
    """Approximate `order_probability` by a normal Z of mean -bits delta and variance bits (between - delta^2).

    Examples:
        >>> round(normal_order_probability(0.3, 0.33, 0.63, bits=128), 3)
        0.666
    """
    _check_triple(near, far, between)
    delta = far - near
    variance = between - delta * delta
    if variance <= 0:
        return 1.0 if delta >= 0 else 0.0
    return _phi(delta * math.sqrt(checked_positive("bits", bits) / variance))


def worst_case_probability(eps: float, a: float, bits: int) -> float:
    """Return what the paper's expression should be: the normal approximation at the worst angle between x and y.

    For (a + 1) eps <= 1 it is Phi((a - 1) sqrt(bits eps) / sqrt((a + 1) - (a - 1)^2 eps)).

    Args:
        eps: Angle between anchor and x, as a fraction of pi.
        a: Ratio of the angle of y to that of x, above 1.
        bits: Length of the codes.

    Examples:
        >>> round(worst_case_probability(0.3, 1.1, bits=1024), 3)
        0.887
    """
    far = _far(eps, a)
    return normal_order_probability(eps, far, widest_between(eps, far), bits)


def certain_probability(near: float, far: float, bits: int, *, between: float | None = None) -> float:
    """Return Chernoff's lower bound of the strict `order_probability`, for independent rows.

    P(Z >= 0) <= (1 - q + sqrt(q^2 - delta^2))^bits, which grows with q = `between`. By default q is the widest angle,
    so that the bound holds for every y.

    Examples:
        >>> certain_probability(0.3, 0.45, bits=1024) <= order_probability(0.3, 0.45, 0.75, bits=1024, strict=True)
        True
    """
    return max(0.0, -math.expm1(checked_positive("bits", bits) * _chernoff_exponent(near, far, between)))


def paper_probability(eps: float, a: float, bits: int) -> float:
    """Return the published expression, Phi(sqrt((a - 1) bits eps)): the best case, **not** a lower bound.

    It follows from Pr(both separated) <= eps. That inequality makes the variance of Z smaller and so bounds the
    probability from above: it describes a y exactly behind x (`between` = `far` - `near`), for which Z <= 0 is certain.
    Use it to reproduce the paper's figures, and `worst_case_probability` or `certain_probability` as a bound.

    Examples:
        >>> round(paper_probability(0.3, 1.1, bits=128), 3)
        0.975
    """
    _far(eps, a)
    return _phi(math.sqrt((a - 1) * checked_positive("bits", bits) * eps))


def smallest_bits(
    eps: float,
    a: float,
    n: int,
    f: float = 10.0,
    *,
    method: str = "exact",
    between: float | None = None,
    strict: bool = True,
) -> int:
    """Return the fewest bits with which any of n samples at a * eps precedes one at eps with probability <= 1 / f.

    Each of the n competitors may precede it with probability 1 / (f n); by the union bound these add up at most,
    however dependent they are. Hence, with K samples within eps, at most K / f of the K nearest codes are expected to
    lie beyond a * eps.

    Args:
        eps: Angle between anchor and x, as a fraction of pi.
        a: Ratio of the competitors' angles to eps, above 1.
        n: Number of competitors.
        f: One in f anchors may fail.
        method: "exact"; "normal"; "chernoff", an upper bound of "exact"; or "paper", which is too few bits, see
            `paper_probability`.
        between: Angle between x and its competitors; by default the widest, see also `typical_between`.
        strict: Whether a tie is a failure, for "exact". It always is for "chernoff"; the others know no ties.

    Raises:
        ValueError: The angles, the method or the failure probability are impossible.

    Examples:
        >>> [smallest_bits(0.3, 1.1, n=40_000, method=method) for method in ("paper", "normal", "exact", "chernoff")]
        [695, 14566, 14606, 18043]
    """
    far = _far(eps, a)
    check_choice("method", method, BITS_METHODS)
    if not f * checked_positive("n", n) > 2:
        raise ValueError(f"f must be above 2 / n, because one in f anchors may fail, got {f}.")
    failure = 1 / (f * n)
    if method == "chernoff":
        return math.ceil(math.log(failure) / _chernoff_exponent(eps, far, between))
    z = -NormalDist().inv_cdf(failure)
    if method == "paper":
        return math.ceil(z * z / ((a - 1) * eps))
    q = widest_between(eps, far) if between is None else between
    _check_triple(eps, far, q)
    normal = max(1, math.ceil(z * z * (q / (far - eps) ** 2 - 1)))
    if method == "normal":
        return normal

    def holds(bits: int) -> bool:  # if nearly every bit separates x from y, ties need an even number of bits
        return all(order_failure(eps, far, q, length, strict=strict) <= failure for length in (bits, bits + 1))

    return _first_true(holds, normal)


def hamming_variance(cosine: ArrayLike, bits: int, *, dim: int | None = None) -> NDArray[np.float64]:
    """Return the variance of the Hamming distance of two embeddings.

    For independent rows it is bits p (1 - p), where p is their separation. Orthonormal rows (`dim` given) are spread
    more evenly, which subtracts e (1 - cosine^2) / pi^2 (to first order, in high dimensions) with e = bits^2 / dim for
    up to one rotation; further rotations are independent.

    Args:
        cosine: Cosine of the two embeddings, as the codes see them.
        bits: Length of the codes.
        dim: Dimension of the embeddings, for orthonormal rows; None for independent ones.

    Examples:
        >>> independent, orthonormal = hamming_variance(0.0, 384), hamming_variance(0.0, 384, dim=384)
        >>> round(float(orthonormal / independent), 3)
        0.595
    """
    rho = np.asarray(cosine, np.float64)
    p = separation(rho)
    variance: NDArray[np.float64] = checked_positive("bits", bits) * p * (1 - p)
    if dim is None:
        return variance
    rotations, rest = divmod(bits, checked_positive("dim", dim))
    even = rotations * dim + rest * rest / dim
    return np.maximum(variance - even * (1 - rho * rho) / np.pi**2, 0.0)


def cosine_standard_error(cosine: ArrayLike, bits: int, *, dim: int | None = None) -> NDArray[np.float64]:
    """Return the standard error of `implied_cosine`, to first order: pi sqrt(1 - cosine^2) sd(h) / bits.

    Examples:
        >>> [round(float(cosine_standard_error(0.45, bits, dim=384)), 3) for bits in (128, 1024)]
        [0.111, 0.034]
    """
    rho = np.asarray(cosine, np.float64)
    error: NDArray[np.float64] = np.pi / bits * np.sqrt((1 - rho * rho) * hamming_variance(rho, bits, dim=dim))
    return error


def _phi(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _far(eps: float, a: float) -> float:
    if not (0 < eps < 1 and a > 1 and a * eps <= 1):
        raise ValueError(
            "eps must be an angle between 0 and 1 (a fraction of pi) and a above 1 with a * eps at most 1, got "
            f"eps={eps} and a={a}."
        )
    return a * eps


def _check_triple(near: float, far: float, between: float) -> None:
    shortest, longest = abs(far - near), widest_between(near, far)
    if not (0 <= near <= 1 and 0 <= far <= 1 and shortest - ROUNDING <= between <= longest + ROUNDING):
        raise ValueError(
            f"no three directions have the angles near={near}, far={far} and between={between}: fractions of pi are in "
            f"[0, 1], and here between must be in [{shortest:g}, {longest:g}]."
        )


def _chernoff_exponent(near: float, far: float, between: float | None) -> float:
    """Return the logarithm of Chernoff's bound per bit, which is negative."""
    q = widest_between(near, far) if between is None else between
    _check_triple(near, far, q)
    delta = far - near
    if delta <= 0:
        return 0.0
    root = math.sqrt(max(0.0, q * q - delta * delta))
    shortfall = delta * delta / (q + root)  # q - root, without cancellation
    return -math.inf if shortfall >= 1 else math.log1p(-shortfall)


def _first_true(holds: Callable[[int], bool], guess: int) -> int:
    """Find the smallest number for which a monotone condition holds."""
    low, high, width = 0, guess, guess // 64 + 1
    while not holds(high):
        low, high, width = high, high + width, 2 * width
    while low == 0 and high > width and holds(high - width):
        high, width = high - width, 2 * width
    low = max(low, high - width) if high > width else low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
