"""Choose the number of bits: predict from a few rows what fraction of the true neighbours each code length finds.

The fraction of the true top k of n samples that codes find (overlap@k) equals, up to a bias of order 1 / k', that of
the true top k' of m rows drawn from them, where k' = k (m - 1) / (n - 1). Halving the rows doubles the bias, which is
how it is removed. Codes are nested, so one set of long codes covers all lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from lookalike.analysis.measures import NEIGHBOURS, overlap
from lookalike.analysis.theory import BITS_METHODS, smallest_bits, typical_between
from lookalike.hashing import CENTER, SignHasher
from lookalike.search import hamming_topk, load_kernel
from lookalike.search.cosine import cosine_topk
from lookalike.utils.checks import Range, checked_bits, checked_positive
from lookalike.utils.tensors import as_tensor, checked_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

GRID = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
MAX_BITS = 1024
TARGET = 0.5  # fraction of the true neighbours to find
MIN_ROWS = 64
MAX_ANCHORS = 2048  # more would hardly narrow the error
ERRORS = 4  # standard errors on either side: anchors share neighbours, so one is too narrow
LOWEST_RANK = 2.0  # k' below which overlap cannot be measured and is extrapolated from larger ranks
RANKS_ABOVE = (2.0, 4.0, 8.0)
MUCH = 1 << 25  # pairs of codes that are worth loading the compiled kernel


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
        k: Hard negatives per sample.
        target: Fraction of the true k nearest to find.
        labels: Integers `[m]`; samples of the same label are not negatives of each other.
        max_bits: The longest codes to consider.
        center: Fraction of the mean to subtract, as in `SignHasher`.
        seed: Seed of the rotation.

    Raises:
        TypeError: The embeddings are not floats.
        ValueError: A row is not finite, there are too few rows, n is below m, or the target is outside (0, 1].

    Examples:
        >>> from lookalike.data.synthetic import clustered_embeddings
        >>> x, labels = clustered_embeddings(2000, dim=64)
        >>> plan = plan_bits(x, n=10_000, target=0.4, labels=labels)
        >>> plan.bits, plan.meets_target
        (128, True)
    """
    x = as_tensor(embeddings, "embeddings", "floats")
    if not x.is_floating_point() or x.ndim != 2:
        raise TypeError(f"embeddings must be floats of the shape [m, dim], got {x.dtype} {list(x.shape)}.")
    n = len(x) if n is None else checked_positive("n", n)
    if n < len(x):
        raise ValueError(f"n must be at least {len(x)}, the number of rows drawn from the n samples, got {n}.")
    x = normalize(x.detach().float(), dim=1)
    hasher = SignHasher(x.shape[1], max_bits, seed=seed, center=center)
    hasher.update_mean(x)
    codes = hasher.encode(x)
    names = torch.arange(len(x)) if labels is None else checked_labels("labels", labels, len(x))
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
    Range(0, 1, with_low=False, with_high=True).check("target", target)
    if len(queries) < min(n, MIN_ROWS):
        raise ValueError(f"{len(queries)} rows are too few to predict from; give at least {MIN_ROWS}.")
    lengths = lengths_up_to(query_codes.shape[1] * 8)
    sample = _Sample(queries, *(each.to(queries.device) for each in (references, query_codes, reference_codes, labels)))
    overlaps, errors = _predict(sample, n, checked_positive("k", k), lengths)
    bits, reason = _choose(lengths, overlaps, errors, target, k, current)
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
        rows=len(queries),
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


class _Sample(NamedTuple):
    """Rows that a prediction comes from; row i of every field belongs to the same sample or pair."""

    queries: Tensor  # float [m, dim]
    references: Tensor  # float [m, dim]
    query_codes: Tensor  # uint8 [m, bytes]
    reference_codes: Tensor  # uint8 [m, bytes]
    labels: Tensor  # int64 [m]

    def overlaps(self, anchors: Tensor, rows: Tensor, ranks: list[float], lengths: Sequence[int]) -> Tensor:
        """Measure the overlap of each anchor's nearest among some rows, float64 [ranks, lengths, anchors]."""
        width = math.floor(max(ranks)) + 1
        labels: dict[str, Any] = {"query_labels": self.labels[anchors], "reference_labels": self.labels[rows]}
        true = cosine_topk(self.queries[anchors], self.references[rows], width, **labels).indices
        by_length = []
        for bits in lengths:
            prefix = slice(bits // 8)
            codes = self.query_codes[anchors, prefix], self.reference_codes[rows, prefix]
            # On a GPU, the CUDA kernels would be compiled for every length, to save milliseconds.
            found = hamming_topk(*codes, width, backend="matmul" if codes[0].is_cuda else "auto", **labels).indices
            by_length.append(torch.stack([_overlap_at(found, true, rank) for rank in ranks]))
        return torch.stack(by_length, dim=1)


def _predict(sample: _Sample, n: int, k: int, lengths: Sequence[int]) -> tuple[list[float], list[float]]:
    """Predict the overlap at every length among n samples, and its error."""
    m = len(sample.queries)
    device = sample.queries.device
    order = torch.randperm(m, generator=torch.Generator().manual_seed(0)).to(device)
    anchors = order[:MAX_ANCHORS]
    share = (m - 1) / max(1, n - 1)
    rank = k * share
    ranks = [rank] if rank >= LOWEST_RANK else [each for each in RANKS_ABOVE if each < m / 2]
    if (
        device.type == "cpu" and 2 * len(anchors) * m * len(lengths) > MUCH
    ):  # each search is small, and together they are worth it
        load_kernel()
    measured = sample.overlaps(anchors, torch.arange(m, device=device), ranks, lengths)
    if share < 1:
        half_ranks = [each / 2 for each in ranks]
        halves = [sample.overlaps(anchors, rows, half_ranks, lengths) for rows in (order[: m // 2], order[m // 2 :])]
        # The bias is c / k' - c / k, and c / k' is what half the rows add to it.
        measured = measured + (1 - share) * (measured - (halves[0] + halves[1]) / 2)
    overlaps = torch.einsum("r,rla->la", _weights(ranks, rank).to(device), measured)
    mean = overlaps.mean(1)
    error = ERRORS * overlaps.std(1) / math.sqrt(len(anchors))
    if len(ranks) > 1:
        error = error + (mean - measured[0].mean(1)).abs()
    return mean.clamp(0, 1).tolist(), error.tolist()


def _overlap_at(found: Tensor, true: Tensor, rank: float) -> Tensor:
    """Return the overlap of the first `rank` entries, [anchors], interpolated between whole ranks."""
    whole = math.floor(rank)
    below = overlap(found[:, :whole], true[:, :whole])
    if rank == whole:
        return below
    return torch.lerp(below, overlap(found[:, : whole + 1], true[:, : whole + 1]), rank - whole)


def _weights(ranks: list[float], rank: float) -> Tensor:
    """Return weights that extrapolate values at some ranks to another rank, linearly in the logarithm of the rank."""
    if len(ranks) == 1:
        return torch.ones(1, dtype=torch.float64)
    line = np.stack([np.ones(len(ranks)), np.log(np.array(ranks) / rank)], axis=1)
    return torch.from_numpy(np.linalg.pinv(line)[0].copy())


def _choose(
    lengths: Sequence[int], overlaps: list[float], errors: list[float], target: float, k: int, current: int | None
) -> tuple[int, str]:
    """Choose a length, and say why."""
    certain = [b for b, value, error in zip(lengths, overlaps, errors, strict=True) if value - error >= target]
    longest = lengths[-1]
    bits = certain[0] if certain else longest
    if current is not None and bits > current and overlaps[lengths.index(current)] >= target:
        bits = current
    found, error = overlaps[lengths.index(bits)], errors[lengths.index(bits)]
    prediction = (
        f"{bits} bits are predicted to find {found:.1%} ± {error:.1%} of the true {k} nearest (target: {target:.0%})"
    )
    if found < target:
        return bits, f"{prediction}: no length up to {longest} reaches it, so the longest is used"
    if not certain and bits == longest:
        return bits, f"{prediction}: no length up to {longest} clears it by its error"
    if bits == current:
        return bits, f"{prediction}: there is no reason to change"
    return bits, f"{prediction}, and no shorter length clears it by its error"
