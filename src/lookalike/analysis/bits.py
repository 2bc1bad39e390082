"""How many bits: what each length of the codes would find of the true neighbours, predicted from a few rows.

The share of the true top k of n samples that codes find (overlap@k) is the same, but for a bias of the order 1 / k', as
that of the true top k' of m rows drawn from them at k' = k (m - 1) / (n - 1). Halving the rows doubles the bias, which
is how it is removed. Codes are nested, so one set of long codes answers for all lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from lookalike.analysis import overlap
from lookalike.analysis.theory import METHODS, smallest_bits, typical_between
from lookalike.hashing import SignHasher
from lookalike.search import hamming_topk, load_kernel
from lookalike.search.cosine import cosine_topk
from lookalike.utils.checks import checked_bits, checked_positive
from lookalike.utils.tensors import as_tensor, checked_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

GRID = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
MAX_BITS = 1024
TARGET = 0.5
MIN_ROWS = 64
MAX_ANCHORS = 2048  # whose neighbours are looked for; more would narrow the error little
ERRORS = 4  # standard errors on either side: anchors share their neighbours, so one is too narrow
LOWEST_RANK = 2.0  # k' below which nothing can be measured, and the ranks above it have to answer
RANKS_ABOVE = (2.0, 4.0, 8.0)
MUCH = 1 << 25  # pairs of codes


@dataclass(frozen=True)
class BitsPlan:
    """A chosen length, and what speaks for it."""

    bits: int
    """The choice."""
    meets_target: bool
    """Whether the predicted overlap reaches the target; if not, `bits` is the longest length there is."""
    reason: str
    """One sentence."""
    lengths: tuple[int, ...]
    """What could be chosen,"""
    overlap: tuple[float, ...]
    """the share of the true k nearest that each would find among n,"""
    error: tuple[float, ...]
    """and how far that may be off: four naive standard errors, and what was extrapolated."""
    target: float
    k: int
    n: int
    rows: int
    """Rows that the prediction comes from."""

    def predicted(self, bits: int) -> tuple[float, float]:
        """The overlap of one of the lengths, and its error."""
        place = self.lengths.index(bits)
        return self.overlap[place], self.error[place]


def lengths_up_to(max_bits: int) -> tuple[int, ...]:
    """The lengths to choose from.

    Examples:
        >>> lengths_up_to(320)
        (64, 128, 192, 256, 320)
    """
    return (*(length for length in GRID if length < checked_bits(max_bits)), max_bits)


def plan_bits(
    embeddings: Any,
    n: int | None = None,
    *,
    k: int = 128,
    target: float = TARGET,
    labels: Any = None,
    max_bits: int = MAX_BITS,
    center: float = 1.0,
    seed: int = 0,
) -> BitsPlan:
    """Choose the shortest codes that find a given share of the true k nearest samples.

    Two thousand rows do for some ten thousand samples; beyond, take about 6 n / k. With fewer, ranks that cannot be
    measured are extrapolated from those that can, and the error says so.

    Args:
        embeddings: Floats `[m, dim]`, drawn at random from those of the n samples, or all of them. Only their
            directions count.
        n: Number of samples that will be searched; by default those given.
        k: Hard negatives per sample.
        target: The share of them to find.
        labels: Integers `[m]`; samples of the same label are no negatives.
        max_bits: The longest codes to consider.
        center: As in `SignHasher`.
        seed: Of the rotation.

    Raises:
        TypeError: Embeddings are not floats.
        ValueError: A row is not finite, too few rows, fewer samples than rows, or a target outside (0, 1].

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
        raise ValueError(f"n is the number of samples that the {len(x)} rows were drawn from, got {n}.")
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
    """Choose a prefix of codes that are at hand: row i of all arguments is the same sample or pair.

    With `current`, the length in use, small changes change nothing: it grows once its prediction misses the target,
    and shrinks once a shorter length clears the target by its error.
    """
    if not 0 < target <= 1:
        raise ValueError(f"target is the share of the true neighbours to find, above 0 and at most 1, got {target}.")
    if len(queries) < min(n, MIN_ROWS):
        raise ValueError(f"{len(queries)} rows are too few to predict from; give at least {MIN_ROWS}.")
    lengths = lengths_up_to(query_codes.shape[1] * 8)
    shares, errors = _predict(queries, references, query_codes, reference_codes, labels, n, k, lengths)
    bits, reason = _choose(lengths, shares, errors, target, k, current)
    return BitsPlan(
        bits,
        shares[lengths.index(bits)] >= target,
        reason,
        lengths,
        tuple(shares),
        tuple(errors),
        target,
        k,
        n,
        len(queries),
    )


def bits_for_order(eps: float, a: float, n: int, f: float = 10.0) -> dict[str, int]:
    """The theory's answers: bits at which none of n samples at a * eps comes before one at eps, but once in f.

    Angles are shares of pi, rows independent. "exact" is what such a guarantee takes in the worst geometry, "typical"
    in the usual one; the others are as in `theory.smallest_bits`. They are far more than mining needs, which can do
    with neighbours that are nearly the nearest: see `plan_bits`.

    Examples:
        >>> bits_for_order(0.3, 1.5, n=40_000)["exact"]
        689
    """
    answers = {method: smallest_bits(eps, a, n, f, method=method) for method in METHODS}
    return answers | {"typical": smallest_bits(eps, a, n, f, between=typical_between(eps, a * eps))}


def _predict(
    queries: Tensor,
    references: Tensor,
    query_codes: Tensor,
    reference_codes: Tensor,
    labels: Tensor,
    n: int,
    k: int,
    lengths: Sequence[int],
) -> tuple[list[float], list[float]]:
    """The overlap at every length among n samples, and its error."""
    m = len(queries)
    order = torch.randperm(m, generator=torch.Generator().manual_seed(0))
    anchors = order[:MAX_ANCHORS]
    share = (m - 1) / max(1, n - 1)
    rank = checked_positive("k", k) * share
    ranks = [rank] if rank >= LOWEST_RANK else [each for each in RANKS_ABOVE if each < m / 2]
    if 2 * len(anchors) * m * len(lengths) > MUCH:  # each search is small, and together they are worth it
        load_kernel()

    def measure(rows: Tensor, ranks: list[float]) -> Tensor:  # [ranks, lengths, anchors]
        width = math.floor(max(ranks)) + 1
        true = cosine_topk(
            queries[anchors], references[rows], width, query_labels=labels[anchors], reference_labels=labels[rows]
        ).indices
        shares = []
        for bits in lengths:
            prefix = slice(bits // 8)
            found = hamming_topk(
                query_codes[anchors, prefix],
                reference_codes[rows, prefix],
                width,
                query_labels=labels[anchors],
                reference_labels=labels[rows],
            ).indices
            shares.append(torch.stack([_overlap_at(found, true, each) for each in ranks]))
        return torch.stack(shares, dim=1)

    measured = measure(torch.arange(m), ranks)
    if share < 1:
        halves = [measure(rows, [each / 2 for each in ranks]) for rows in (order[: m // 2], order[m // 2 :])]
        # The bias is c / k' - c / k, and c / k' is what half the rows add to it.
        measured = measured + (1 - share) * (measured - (halves[0] + halves[1]) / 2)
    shares = torch.einsum("r,rla->la", _weights(ranks, rank), measured)
    mean = shares.mean(1)
    error = ERRORS * shares.std(1) / math.sqrt(len(anchors))
    if len(ranks) > 1:
        error = error + (mean - measured[0].mean(1)).abs()
    return mean.clamp(0, 1).tolist(), error.tolist()


def _overlap_at(found: Tensor, true: Tensor, rank: float) -> Tensor:
    """The overlap of the first `rank` entries, [anchors]; between whole ranks it is interpolated."""
    whole = math.floor(rank)
    shares = overlap(found[:, :whole], true[:, :whole])
    if rank == whole:
        return shares
    return torch.lerp(shares, overlap(found[:, : whole + 1], true[:, : whole + 1]), rank - whole)


def _weights(ranks: list[float], rank: float) -> Tensor:
    """What makes of values at several ranks the value at another: a straight line over the logarithm of the rank."""
    if len(ranks) == 1:
        return torch.ones(1, dtype=torch.float64)
    line = np.stack([np.ones(len(ranks)), np.log(np.array(ranks) / rank)], axis=1)
    return torch.from_numpy(np.linalg.pinv(line)[0].copy())


def _choose(
    lengths: Sequence[int], shares: list[float], errors: list[float], target: float, k: int, current: int | None
) -> tuple[int, str]:
    """A length, and why."""
    surely = [b for b, share, error in zip(lengths, shares, errors, strict=True) if share - error >= target]
    longest = lengths[-1]
    bits = surely[0] if surely else longest
    if current is not None and bits > current and shares[lengths.index(current)] >= target:
        bits = current
    found, error = shares[lengths.index(bits)], errors[lengths.index(bits)]
    said = (
        f"{bits} bits are predicted to find {found:.1%} ± {error:.1%} of the true {k} nearest, wanted are {target:.0%}"
    )
    if found < target:
        return bits, f"{said}: no length up to {longest} reaches it, so the longest is taken"
    if not surely and bits == longest:
        return bits, f"{said}: no length up to {longest} clears it by its error"
    if bits == current:
        return bits, f"{said}: there is no reason to change"
    return bits, f"{said}, and no shorter length clears it by its error"
