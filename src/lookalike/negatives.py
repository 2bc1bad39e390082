"""Neighbours -> hard negatives: exclusion of the own label, rank windows, score filters, the hardest positive."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lookalike.search import Neighbours, hamming_topk
from lookalike.search.plain import popcount
from lookalike.search.request import take_lists
from lookalike.utils.checks import checked_codes, checked_integers, checked_labels, checked_positive

logger = logging.getLogger("lookalike")

SMALL_CLASS = 32  # classes up to this size are compared all at once, larger ones searched one by one
GATHER_BYTES = 1 << 21  # larger ones leave the cache and take longer
WINDOW_ELEMENTS = 1 << 27  # neighbours in memory at a time while filters ask for more


def hard_negatives(
    codes: Any,
    labels: Any,
    k: int,
    *,
    reference: Any = None,
    reference_labels: Any = None,
    positives: Any = None,
    exclude: tuple[Any, Any] | None = None,
    range_min: int = 0,
    range_max: int | None = None,
    max_score: float | None = None,
    min_score: float | None = None,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    backend: str = "auto",
    progress: bool = False,
) -> Neighbours:
    """The k nearest samples of another label that pass the filters, for every sample.

    The filters are those of sentence-transformers' `mine_hard_negatives`, on the cosine that a Hamming distance h of
    b bits implies, cos(pi * h / b). The search goes on until k negatives are found or none is left, so filters that
    drop the nearest candidates do not leave a sample short.

    Args:
        codes: Packed codes of the samples, uint8 `[n, bits / 8]`.
        labels: Integers `[n]`, or None: every sample is a class of its own (pairs: reference i is its positive).
        k: Negatives per sample.
        reference: Codes to find negatives in, for two towers; by default the samples themselves.
        reference_labels: Integers, one per reference; by default `labels`.
        positives: For the margins, the positive of each sample as an index into the reference, -1 for none; by
            default its hardest positive.
        exclude: Further reference ids per sample, as in `hamming_topk`.
        range_min: Skip this many of the nearest candidates.
        range_max: Consider no more than this many of the nearest candidates.
        max_score: Drop candidates more similar than this.
        min_score: Drop candidates less similar than this.
        absolute_margin: Drop candidates more similar than the positive's score minus this.
        relative_margin: Drop candidates more similar than the positive's score minus this share of its magnitude.
        backend: As in `hamming_topk`.
        progress: As in `hamming_topk`.

    Returns:
        `Neighbours(distances, indices)`, `[n, k]`, padded with -1. A sample without a positive is not subject to the
        margins.

    Examples:
        >>> import torch
        >>> codes = torch.tensor([[0b0000], [0b0001], [0b0111], [0b1111]], dtype=torch.uint8)
        >>> hard_negatives(codes, [0, 0, 1, 1], k=1).indices.flatten().tolist()
        [2, 2, 1, 1]
    """
    k = checked_positive("k", k)
    codes = checked_codes("codes", codes)
    targets = codes if reference is None else checked_codes("reference", reference).to(codes.device)
    labels, target_labels = _both_labels(codes, labels, targets, reference_labels)
    filters = _Filters(range_min, range_max, max_score, min_score, absolute_margin, relative_margin, k)
    if not filters.on_scores:
        found = hamming_topk(
            codes,
            targets,
            range_min + k,
            query_labels=labels,
            reference_labels=target_labels,
            exclude=exclude,
            backend=backend,
            progress=progress,
        )
        return Neighbours(found.distances[:, range_min:], found.indices[:, range_min:])
    ceiling = filters.ceilings(codes, labels, targets, target_labels, positives, reference is None)
    distances = torch.full((len(codes), k), -1, dtype=torch.int32, device=codes.device)
    indices = torch.full((len(codes), k), -1, dtype=torch.int64, device=codes.device)
    farthest = len(targets) if range_max is None else min(len(targets), range_max)
    window = min(farthest, range_min + 2 * k)
    rows = torch.arange(len(codes), device=codes.device)
    while len(rows) and window > 0:
        unfinished = []
        for part in torch.split(rows, max(1, WINDOW_ELEMENTS // window)):
            everyone = len(part) == len(codes)
            found = hamming_topk(
                codes if everyone else codes[part],
                targets,
                window,
                query_labels=labels[part],
                reference_labels=target_labels,
                exclude=exclude if everyone or exclude is None else _take_exclude(exclude, part),
                backend=backend,
                progress=progress,
            )
            passed = filters.passed(found, codes.shape[1] * 8, ceiling[part])
            first = passed.int().argsort(dim=1, descending=True, stable=True)[:, :k]  # those that passed, in order
            kept = passed.gather(1, first)
            distances[part, : first.shape[1]] = found.distances.gather(1, first).masked_fill(~kept, -1)
            indices[part, : first.shape[1]] = found.indices.gather(1, first).masked_fill(~kept, -1)
            unfinished.append(part[(passed.sum(1) < k) & ~filters.exhausted(found, codes.shape[1] * 8)])
        if window == farthest:
            break
        rows, window = torch.cat(unfinished), min(farthest, 4 * window)
    return Neighbours(distances, indices)


def hardest_positives(codes: Any, labels: Any, *, reference: Any = None, reference_labels: Any = None) -> Tensor:
    """The farthest sample of the same label, ties by the smaller id; -1 where there is none.

    Args:
        codes: Packed codes, uint8 `[n, bits / 8]`.
        labels: Integers `[n]`.
        reference: Codes to choose from, for two towers; by default the samples themselves, each without itself.
        reference_labels: Integers, one per reference; by default `labels`.

    Returns:
        Indices into the reference, int64 `[n]`.

    Examples:
        >>> import torch
        >>> codes = torch.tensor([[0b0000], [0b0001], [0b0111], [0b1111]], dtype=torch.uint8)
        >>> hardest_positives(codes, [5, 5, 5, 7]).tolist()
        [2, 2, 0, -1]
    """
    codes = checked_codes("codes", codes)
    targets = codes if reference is None else checked_codes("reference", reference).to(codes.device)
    labels, target_labels = _both_labels(codes, labels, targets, reference_labels)
    by_label = target_labels.argsort(stable=True)  # ids ascend within a label
    sorted_labels = target_labels[by_label]
    starts = torch.searchsorted(sorted_labels, labels)
    sizes = torch.searchsorted(sorted_labels, labels, right=True) - starts
    hardest = torch.full((len(codes),), -1, dtype=torch.int64, device=codes.device)
    size = 1
    while size <= SMALL_CLASS:
        rows = ((sizes <= size) & (sizes > size // 2)).nonzero().flatten()
        for part in torch.split(rows, max(1, GATHER_BYTES // (size * codes.shape[1]))):
            positions = starts[part, None] + torch.arange(size, device=codes.device)  # [m, size]
            candidates = by_label[positions.clamp(max=len(by_label) - 1)]
            distances = popcount(codes[part, None] ^ targets[candidates]).sum(-1, dtype=torch.int32)
            distances[positions >= (starts + sizes)[part, None]] = -1
            if reference is None:
                distances[candidates == part[:, None]] = -1
            farthest = distances.argmax(1)  # the first of equals
            best = candidates.gather(1, farthest[:, None]).flatten()
            hardest[part] = best.masked_fill(distances.gather(1, farthest[:, None]).flatten() < 0, -1)
        size *= 2
    for label in labels[sizes > SMALL_CLASS].unique():
        rows = (labels == label).nonzero().flatten()
        members = (target_labels == label).nonzero().flatten()
        # Of complements, the nearest is the farthest. A sample's own complement is excluded.
        itself = None if reference is not None else (torch.arange(len(rows) + 1), torch.arange(len(rows)))
        hardest[rows] = members[hamming_topk(codes[rows], ~targets[members], 1, exclude=itself).indices[:, 0]]
    return hardest


def implied_cosine(distances: Tensor, bits: int) -> Tensor:
    """The cosine that a Hamming distance implies, float64: cos(pi * h / b)."""
    return torch.cos(distances.double() * (math.pi / bits))


@dataclass(frozen=True)
class _Filters:
    range_min: int
    range_max: int | None
    max_score: float | None
    min_score: float | None
    absolute_margin: float | None
    relative_margin: float | None
    k: int

    def __post_init__(self) -> None:
        if self.range_min < 0:
            raise ValueError(f"range_min must be at least 0, got {self.range_min}.")
        if self.range_max is not None and self.range_max - self.range_min < self.k:
            raise ValueError(
                f"range_max - range_min must leave room for k={self.k} negatives, got range_min={self.range_min} and "
                f"range_max={self.range_max}; lower k or range_min, or raise range_max."
            )
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            raise ValueError(f"min_score={self.min_score} is above max_score={self.max_score}: nothing can pass.")

    @property
    def uses_positives(self) -> bool:
        return self.absolute_margin is not None or self.relative_margin is not None

    @property
    def on_scores(self) -> bool:
        return self.max_score is not None or self.min_score is not None or self.uses_positives

    def ceilings(
        self, codes: Tensor, labels: Tensor, targets: Tensor, target_labels: Tensor, positives: Any, one_table: bool
    ) -> Tensor:
        """The highest score a negative of each sample may have, float64 [n]."""
        ceiling = torch.full((len(codes),), math.inf, dtype=torch.float64, device=codes.device)
        if self.max_score is not None:
            ceiling.clamp_(max=self.max_score)
        if not self.uses_positives:
            return ceiling
        if positives is None:
            other = {} if one_table else {"reference": targets, "reference_labels": target_labels}
            positives = hardest_positives(codes, labels, **other)
            if len(positives) and not (positives >= 0).any():
                logger.warning(
                    "no sample has a positive, because all labels are different, so that absolute_margin and "
                    "relative_margin have no effect: give positives=, labels that repeat, or max_score= instead."
                )
        else:
            positives = checked_labels("positives", positives, len(codes)).to(codes.device)
            if len(positives) and not -1 <= int(positives.min()) <= int(positives.max()) < len(targets):
                raise ValueError(f"positives must be between -1 and {len(targets) - 1}: indices into the reference.")
        distances = popcount(codes ^ targets[positives.clamp(min=0)]).sum(1, dtype=torch.int32)
        score = implied_cosine(distances, codes.shape[1] * 8)
        has_positive = positives >= 0
        for margin, scale in ((self.absolute_margin, 1.0), (self.relative_margin, score.abs())):
            if margin is not None:
                ceiling = torch.where(has_positive, torch.minimum(ceiling, score - margin * scale), ceiling)
        return ceiling

    def passed(self, found: Neighbours, bits: int, ceiling: Tensor) -> Tensor:
        """Which neighbours are kept: bool [rows, window]."""
        score = implied_cosine(found.distances, bits)
        passed = (found.indices >= 0) & (score <= ceiling[:, None])
        passed[:, : self.range_min] = False
        return passed if self.min_score is None else passed & (score >= self.min_score)

    def exhausted(self, found: Neighbours, bits: int) -> Tensor:
        """Where looking further is pointless: nothing is left, or only what is too dissimilar. bool [rows]"""
        none_left = found.indices[:, -1] < 0
        if self.min_score is None:
            return none_left
        return none_left | (implied_cosine(found.distances[:, -1], bits) < self.min_score)


def _both_labels(codes: Tensor, labels: Any, targets: Tensor, target_labels: Any) -> tuple[Tensor, Tensor]:
    if target_labels is not None and targets is codes:
        raise ValueError("reference_labels were given without a reference.")
    labels = torch.arange(len(codes)) if labels is None else checked_labels("labels", labels, len(codes))
    if target_labels is None:
        target_labels = checked_labels("reference_labels (by default the labels)", labels, len(targets))
    target_labels = checked_labels("reference_labels", target_labels, len(targets))
    return labels.to(codes.device), target_labels.to(codes.device)


def _take_exclude(exclude: tuple[Any, Any], rows: Tensor) -> tuple[Tensor, Tensor]:
    offsets, ids = (checked_integers("exclude", part).to(rows.device) for part in exclude)
    return take_lists(offsets, ids, rows)
