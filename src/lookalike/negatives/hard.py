"""Search, filter and search further: the k nearest samples of another label that pass the filters."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from lookalike.negatives.filters import Filters
from lookalike.negatives.positives import least_similar_positives
from lookalike.negatives.same import merge_both
from lookalike.negatives.spaces import COSINE, space_of_codes
from lookalike.search.cosine import Similar
from lookalike.search.request import Neighbours
from lookalike.utils.checks import checked_positive
from lookalike.utils.lists import Lists, checked_lists, take_lists
from lookalike.utils.tensors import (
    as_tensor,
    both_labels,
    check_embeddings,
    check_one_dimension,
    checked_labels,
)

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.negatives.spaces import Space

logger = logging.getLogger("lookalike")

WINDOW_ELEMENTS = 1 << 27  # neighbours in memory at a time while filters ask for more
NO_FILTERS = Filters()


def hard_negatives(
    codes: Any,
    labels: Any,
    k: int,
    *,
    filters: Filters = NO_FILTERS,
    reference: Any = None,
    reference_labels: Any = None,
    positives: Any = None,
    same: Any = None,
    backend: str = "auto",
    progress: bool = False,
) -> Neighbours:
    """Find the k nearest samples of another label that pass the filters, for every sample.

    The search continues until k negatives are found or none is left, so filters that drop the nearest candidates do not
    leave a sample short.

    Args:
        codes: Packed codes of the queries, uint8 `[n, bits / 8]`, or `ScalarCodes`.
        labels: Integers `[n]`, or None: every sample is a class of its own (pairs: reference i is its positive).
        k: Negatives per sample.
        filters: Which neighbours count.
        reference: Codes to find negatives in, for two towers; by default the queries themselves.
        reference_labels: Integers, one per reference; by default `labels`.
        positives: The positive from which margins are measured, as an index into the reference, -1 for none; by
            default the sample's hardest positive.
        same: Pairs of samples that a person marked as the same: a file, as `read_same` reads it, or ids `[m, 2]`. The
            two count as one label. With `reference_labels`, each pair is a query and a reference.
        backend: As in `hamming_topk`.
        progress: As in `hamming_topk`.

    Returns:
        `Neighbours(distances, indices)`, `[n, k]`, nearest first, padded with -1.

    Examples:
        >>> import torch
        >>> codes = torch.tensor([[0b0000], [0b0001], [0b0111], [0b1111]], dtype=torch.uint8)
        >>> hard_negatives(codes, [0, 0, 1, 1], k=1).indices.flatten().tolist()
        [2, 2, 1, 1]
        >>> hard_negatives(codes, [0, 0, 1, 1], k=1, filters=Filters(range_min=1)).indices.flatten().tolist()
        [3, 3, 0, 0]
    """
    space, query, reference = space_of_codes(codes, reference)
    labels, reference_labels = merge_both(labels, reference_labels, same, len(query), len(reference))
    options = {"backend": backend, "progress": progress}
    found = _mine(space, query, labels, reference, reference_labels, positives, k, filters, options)
    return Neighbours(*found)


def exact_hard_negatives(
    embeddings: Any, labels: Any, k: int, *, reference: Any = None, filters: Filters = NO_FILTERS, same: Any = None
) -> Similar:
    """Find hard negatives like `hard_negatives`, but from floats by exact cosine, which codes are measured against.

    Args:
        embeddings: Finite floats of the queries, `[n, dim]`.
        labels: As in `hard_negatives`.
        k: Negatives per sample.
        reference: Finite floats to find negatives in, `[n, dim]`, with the labels of the queries; by default the
            queries themselves.
        filters: Which neighbours count.
        same: As in `hard_negatives`.

    Raises:
        TypeError: Embeddings are not floats.
        ValueError: A row is not finite, or the two sides have different dimensions.

    Examples:
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.6, 0.6], [0.0, 1.0]])
        >>> exact_hard_negatives(x, [0, 0, 1, 1], k=1).indices.flatten().tolist()
        [2, 2, 1, 1]
    """
    towers = {"embeddings": as_tensor(embeddings, "embeddings", "floats")}
    if reference is not None:
        towers["reference"] = as_tensor(reference, "reference", "floats").to(towers["embeddings"].device)
    for name, x in towers.items():
        check_embeddings(name, x, len(x))
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{name} has a row that is not finite: leave such rows out, no cosine can rank them.")
    check_one_dimension(towers)
    query, *others = towers.values()
    labels, _ = merge_both(labels, None, same, len(query), len(query))
    return Similar(*_mine(COSINE, query, labels, others[0] if others else query, None, None, k, filters, {}))


def hard_negatives_of(
    rows: range,
    space: Space,
    query: Tensor,
    labels: Tensor,
    k: int,
    *,
    reference: Tensor | None = None,
    filters: Filters = NO_FILTERS,
) -> tuple[Tensor, Tensor]:
    """Find the hard negatives of some of the samples, exactly as if all were searched, so that searches can be shared.

    Args:
        rows: Which samples, one after another.
        space: The kind of row.
        query: Rows of all samples, [n, width]; floats must be finite.
        labels: int64 [n].
        k: Negatives per sample.
        reference: Rows to find negatives in, [n, width], with the labels of the queries; by default the queries.
        filters: Which neighbours count; `exclude` lists ids for all samples.

    Returns:
        Distances or similarities, and indices, int32, both [len(rows), k].
    """
    options: dict[str, Any] = {"narrow": True}
    among = query if reference is None else reference
    if len(rows) == len(query):
        return _mine(space, query, labels, among, None, None, k, filters, options)
    part = slice(rows.start, rows.stop)
    if filters.exclude is not None:
        filters = replace(filters, exclude=take_lists(filters.exclude, torch.arange(rows.start, rows.stop)))
    itself = torch.arange(rows.start, rows.stop, device=query.device) if reference is None else None
    return _mine(space, query[part], labels[part], among, labels, None, k, filters, options, itself)


def _mine(
    space: Space,
    query: Tensor,
    labels: Any,
    reference: Tensor,
    reference_labels: Any,
    positives: Any,
    k: int,
    filters: Filters,
    options: dict[str, Any],
    itself: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Search, filter and search further, until every query has k negatives or has seen every candidate.

    `itself` says which reference each query is, int64 [q], where the queries are some of the references.
    """
    k = checked_positive("k", k)
    filters.check_room(k)
    labels, reference_labels = both_labels(query, labels, reference, reference_labels)
    exclude: Lists | None = None
    if filters.exclude is not None:
        exclude = checked_lists("exclude", filters.exclude, len(query), len(reference), query.device)
    options = {**options, "reference_labels": reference_labels}
    wanted = filters.range_min + k
    if not filters.on_scores:
        values, indices = space.topk(query, reference, wanted, query_labels=labels, exclude=exclude, **options)
        return values[:, filters.range_min :], indices[:, filters.range_min :]
    hardest = None
    if filters.uses_positives:
        hardest = _positive_scores(space, query, labels, reference, reference_labels, positives, itself)
    values, indices = space.nothing(len(query), k, query.device, narrow=options.get("narrow", False))
    farthest = len(reference) if filters.range_max is None else min(len(reference), filters.range_max)
    window = min(farthest, filters.range_min + 2 * k)
    rows = torch.arange(len(query), device=query.device)
    while len(rows) and window > 0:
        unfinished = []
        for part in torch.split(rows, max(1, WINDOW_ELEMENTS // window)):
            everyone = len(part) == len(query)
            found = space.topk(
                query if everyone else query[part],
                reference,
                window,
                query_labels=labels[part],
                exclude=exclude if everyone or exclude is None else take_lists(exclude, part),
                **options,
            )
            scores = space.scores(found[0], query.shape[1])
            passed = found[1] >= 0
            for mask in filters.dropped(scores, None if hardest is None else hardest[part]).values():
                passed &= ~mask
            order = passed.int().argsort(dim=1, descending=True, stable=True)[:, filters.range_min : wanted]
            kept = passed.gather(1, order)
            width = order.shape[1]
            values[part, :width] = found[0].gather(1, order).masked_fill(~kept, space.absent)
            indices[part, :width] = found[1].gather(1, order).masked_fill(~kept, -1)
            none_left = found[1][:, -1] < 0
            if filters.min_score is not None:  # what comes next is less similar still
                none_left |= scores[:, -1] < filters.min_score
            unfinished.append(part[(passed.sum(1) < wanted) & ~none_left])
        if window == farthest:
            break
        rows, window = torch.cat(unfinished), min(farthest, 4 * window)
    return values, indices


def _positive_scores(
    space: Space,
    query: Tensor,
    labels: Tensor,
    reference: Tensor,
    reference_labels: Tensor,
    positives: Any,
    itself: Tensor | None,
) -> Tensor:
    """Score each query's least similar positive, or the given one; infinity where there is none."""
    if positives is None:
        chosen = least_similar_positives(space, query, labels, reference, reference_labels, itself)
        is_first = itself is None or (len(itself) > 0 and int(itself[0]) == 0)  # one part of a search speaks for all
        if is_first and not _has_positive(chosen, reference_labels if itself is not None else None):
            logger.warning(
                "no sample has a positive, because all labels are different, so absolute_margin and relative_margin "
                "have no effect: pass positives=, repeat labels, or filter by max_score instead."
            )
    else:
        chosen = checked_labels("positives", positives, len(query)).to(query.device)
        if len(chosen) and not -1 <= int(chosen.min()) <= int(chosen.max()) < len(reference):
            raise ValueError(f"positives must be between -1 and {len(reference) - 1}: indices into the reference.")
    scores = space.scores(space.compare(query, reference[chosen.clamp(min=0)]), query.shape[1])
    return scores.masked_fill(chosen < 0, torch.inf)


def _has_positive(chosen: Tensor, all_labels: Tensor | None) -> bool:
    """Return whether some query has a positive; where only a part was searched, whether some sample has one."""
    if len(chosen) == 0 or bool((chosen >= 0).any()):
        return True
    return all_labels is not None and len(torch.unique(all_labels)) < len(all_labels)
