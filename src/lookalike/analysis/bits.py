"""Choose the number of bits: the shortest codes that find a given fraction of the true neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lookalike.analysis.measures import NEIGHBOURS
from lookalike.analysis.predicting import Sample, Sides, predict_overlaps
from lookalike.analysis.theory import BITS_METHODS, smallest_bits, typical_between
from lookalike.hashing import CENTER, ScalarHasher, SignHasher
from lookalike.utils.checks import Range, check_choice, check_code_length, checked_bits, checked_positive
from lookalike.utils.tensors import as_tensor, checked_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.hashing.moments import Moments

GRID = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
MAX_BITS = 1024
TARGET = 0.5  # fraction of the true neighbours to find
MIN_ROWS = 64

Kind = Literal["signs", "scalar"]


@dataclass(frozen=True)
class BitsPlan:
    """A code length and the predictions it was chosen by."""

    bits: int
    """The chosen length."""
    meets_target: bool
    """Whether the predicted overlap reaches the target; if not, `bits` is the longest length."""
    reason: str
    """Why this length, in one sentence."""
    lengths: tuple[int, ...]
    """The lengths to choose from."""
    overlap: tuple[float, ...]
    """For each length, the predicted fraction of the true k nearest of n samples that it finds."""
    error: tuple[float, ...]
    """For each length, how far the prediction may be off: four naive standard errors plus the extrapolated part."""
    target: float
    """The fraction to find."""
    k: int
    """Hard negatives per sample."""
    n: int
    """Number of samples to search."""
    rows: int
    """Number of rows that the prediction comes from."""
    code: str = "signs"
    """The kind of codes: "signs", or "scalar" for several bits per dimension."""

    def predicted(self, bits: int) -> tuple[float, float]:
        """Return the predicted overlap of one of the lengths, and its error."""
        place = self.lengths.index(bits)
        return self.overlap[place], self.error[place]


def lengths_up_to(max_bits: int) -> tuple[int, ...]:
    """Return the code lengths to choose from.

    Examples:
        >>> lengths_up_to(320)
        (64, 128, 192, 256, 320)
    """
    return (*(length for length in GRID if length < checked_bits(max_bits)), max_bits)


def plan_bits(
    embeddings: Any,
    n: int | None = None,
    *,
    code: Kind = "signs",
    k: int = NEIGHBOURS,
    target: float = TARGET,
    labels: Any = None,
    max_bits: int = MAX_BITS,
    center: float = CENTER,
    seed: int = 0,
) -> BitsPlan:
    """Choose the shortest codes that find a given fraction of the true k nearest samples.

    Two thousand rows are enough for about ten thousand samples; for more samples take about 6 n / k. With fewer rows,
    small ranks are extrapolated from larger ones and the error grows accordingly.

    Args:
        embeddings: Floats `[m, dim]`, drawn at random from the embeddings of the n samples, or all of them. Only their
            directions count.
        n: Number of samples to search; by default m.
        code: "signs", or "scalar" for several bits per dimension. Their components are those of the rows, which these
            fit a little better than others: if there are only a few rows per dimension, by up to 3 points.
        k: Hard negatives per sample.
        target: Fraction of the true k nearest to find.
        labels: Integers `[m]`; samples of the same label are not negatives of each other.
        max_bits: The longest codes to consider.
        center: Fraction of the mean to subtract from what sign codes are made of, as in `SignHasher`.
        seed: Seed of the rotation.

    Raises:
        TypeError: The embeddings are not floats.
        ValueError: A row is not finite, there are too few rows, n is below m, the target is outside (0, 1], or there
            is no such code.

    Examples:
        >>> from lookalike.data.synthetic import clustered_embeddings
        >>> x, labels = clustered_embeddings(2000, dim=64)
        >>> plan = plan_bits(x, n=10_000, target=0.4, labels=labels)
        >>> plan.bits, plan.meets_target
        (128, True)
        >>> plan_bits(x, n=10_000, code="scalar", target=0.4, labels=labels).bits
        64
    """
    check_choice("code", code, get_args(Kind))
    check_code_length(code, checked_bits(max_bits))
    x = as_tensor(embeddings, "embeddings", "floats")
    if not x.is_floating_point() or x.ndim != 2:
        raise TypeError(f"embeddings must be floats of the shape [m, dim], got {x.dtype} {list(x.shape)}.")
    n = len(x) if n is None else checked_positive("n", n)
    if n < len(x):
        raise ValueError(f"n must be at least {len(x)}, the number of rows drawn from the n samples, got {n}.")
    x = normalize(x.detach().float(), dim=1)
    names = torch.arange(len(x)) if labels is None else checked_labels("labels", labels, len(x))
    if code == "scalar":
        return plan_scalar(x, x, None, names, n=n, k=k, target=target, max_bits=max_bits, seed=seed)
    hasher = SignHasher(x.shape[1], max_bits, seed=seed, center=center)
    hasher.update_mean(x)
    codes = hasher.encode(x)
    return plan_from_codes(x, x, codes, codes, names, n=n, k=k, target=target)


def plan_from_codes(
    queries: Tensor,
    references: Tensor,
    query_codes: Tensor,
    reference_codes: Tensor,
    labels: Tensor,
    *,
    n: int,
    k: int,
    target: float,
    current: int | None = None,
) -> BitsPlan:
    """Choose a prefix of existing codes; row i of every argument belongs to the same sample or pair.

    All comparisons run on the device of `queries`; only the predictions come back from it.

    `current`, the length in use, damps changes: it grows once its prediction misses the target, and shrinks once a
    shorter length clears the target by its error.
    """
    _check(target, len(queries), n)
    device = queries.device
    query_codes, reference_codes = query_codes.to(device), reference_codes.to(device)
    lengths = lengths_up_to(query_codes.shape[1] * 8)
    codes: list[Sides] = [(query_codes[:, : b // 8], reference_codes[:, : b // 8]) for b in lengths]
    sample = Sample(queries, references.to(device), labels.to(device), codes)
    return _plan(sample, lengths, n=n, k=k, target=target, current=current)


def plan_scalar(
    queries: Tensor,
    references: Tensor,
    moments: Moments | None,
    labels: Tensor,
    *,
    n: int,
    k: int,
    target: float,
    current: int | None = None,
    max_bits: int = MAX_BITS,
    seed: int = 0,
) -> BitsPlan:
    """Choose the length of a `ScalarHasher`'s codes; row i of queries, references and labels is one sample or pair.

    Codes of several bits are not nested: the rows are encoded at every length, on the device of `queries`.

    Args:
        queries: Floats `[m, dim]`, of samples drawn at random from n; only their directions count.
        references: Floats `[m, dim]`, the other tower's, or the queries again.
        moments: Statistics of the embeddings that will be encoded; by default those of the rows themselves. Where n is
            much larger than m, components of so few rows fit them better than they fit the rest.
        labels: Integers `[m]`; samples of the same label are not negatives of each other.
        n: Number of samples to search.
        k: Hard negatives per sample.
        target: Fraction of the true k nearest to find.
        current: The length in use, which damps changes as in `plan_from_codes`.
        max_bits: The longest codes to consider.
        seed: Seed of the hasher's rotations.

    Raises:
        ValueError: A row is not finite, there are too few rows, or the target is outside (0, 1].
    """
    _check(target, len(queries), n)
    references, labels = references.to(queries.device), labels.to(queries.device)
    sides = (queries,) if references is queries else (queries, references)
    lengths = lengths_up_to(max_bits)
    if moments is None:
        seen = ScalarHasher(queries.shape[1], lengths[0])
        for side in sides:
            seen.update(side)
        moments = seen.moments
    spectrum = moments.spectrum()
    codes: list[Sides] = []
    for bits in lengths:
        hasher = ScalarHasher(queries.shape[1], bits, seed=seed)
        hasher.fit(spectrum)
        coded = [hasher.encode(side) for side in sides]
        codes.append((coded[0], coded[-1]))
    sample = Sample(queries, references, labels, codes)
    return _plan(sample, lengths, n=n, k=k, target=target, current=current, code="scalar")


def needed_rows(n: int) -> int:
    """Return how many of n rows it takes to predict anything: all if there are few, but one has no neighbours."""
    return max(2, min(n, MIN_ROWS))


def _check(target: float, rows: int, n: int) -> None:
    Range(0, 1, with_low=False, with_high=True).check("target", target)
    if rows < needed_rows(n):
        raise ValueError(f"{rows} rows are too few to predict from; give at least {MIN_ROWS}.")


def _plan(
    sample: Sample,
    lengths: tuple[int, ...],
    *,
    n: int,
    k: int,
    target: float,
    current: int | None,
    code: str = "signs",
) -> BitsPlan:
    """Predict the overlap at every length and choose one."""
    overlaps, errors = predict_overlaps(sample, n, checked_positive("k", k))
    bits, reason = _choose(
        lengths, overlaps, errors, target, k, current, "" if code == "signs" else f" of {code} codes"
    )
    return BitsPlan(
        bits=bits,
        meets_target=overlaps[lengths.index(bits)] >= target,
        reason=reason,
        lengths=lengths,
        overlap=tuple(overlaps),
        error=tuple(errors),
        target=target,
        k=k,
        n=n,
        rows=len(sample.queries),
        code=code,
    )


def bits_for_order(eps: float, a: float, n: int, f: float = 10.0) -> dict[str, int]:
    """Return the theory's answers: bits at which a sample at eps precedes all n at a * eps for all but 1 in f anchors.

    Angles are fractions of pi and rows independent. "exact" holds in the worst geometry, "typical" in the typical one;
    the others are the methods of `theory.smallest_bits`. All are far more than mining needs, which works as well with
    neighbours that are nearly the nearest: see `plan_bits`.

    Examples:
        >>> bits_for_order(0.3, 1.5, n=40_000)["exact"]
        689
    """
    answers = {method: smallest_bits(eps, a, n, f, method=method) for method in BITS_METHODS}
    return answers | {"typical": smallest_bits(eps, a, n, f, between=typical_between(eps, a * eps))}


def _choose(
    lengths: Sequence[int],
    overlaps: list[float],
    errors: list[float],
    target: float,
    k: int,
    current: int | None,
    kind: str,
) -> tuple[int, str]:
    """Choose a length, and say why."""
    certain = [b for b, value, error in zip(lengths, overlaps, errors, strict=True) if value - error >= target]
    longest = lengths[-1]
    bits = certain[0] if certain else longest
    if current is not None and bits > current and overlaps[lengths.index(current)] >= target:
        bits = current
    found, error = overlaps[lengths.index(bits)], errors[lengths.index(bits)]
    share = f"{found:.1%} ± {error:.1%}"
    prediction = f"{bits} bits{kind} are predicted to find {share} of the true {k} nearest (target: {target:.0%})"
    if found < target:
        return bits, f"{prediction}: no length up to {longest} reaches it, so the longest is used"
    if not certain and bits == longest:
        return bits, f"{prediction}: no length up to {longest} clears it by its error"
    if bits == current:
        return bits, f"{prediction}: there is no reason to change"
    return bits, f"{prediction}, and no shorter length clears it by its error"
