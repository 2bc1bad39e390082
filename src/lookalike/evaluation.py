"""Measure how well embeddings retrieve: Recall@k, recall in the top 1% and MRR@10, exact."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from lookalike.utils.checks import checked_positive
from lookalike.utils.lists import checked_lists, row_numbers, take_lists
from lookalike.utils.tensors import as_tensor, check_embeddings, checked_labels

CHUNK_BYTES = 1 << 28
KS = (1, 5, 10)
NEVER = torch.iinfo(torch.int64).max


def evaluate(
    query: Any,
    reference: Any,
    query_labels: Any,
    reference_labels: Any,
    *,
    exclude: tuple[Any, Any] | None = None,
    positives: tuple[Any, Any] | None = None,
    ks: tuple[int, ...] = KS,
) -> dict[str, float]:
    """Search every query among all references by cosine, and measure how often and how high up a positive is found.

    A positive is a reference with the label of the query; if there are several, the first one found counts. Queries
    without a positive are left out of the means. Among equal similarities, the smaller id comes first.

    Args:
        query: Floats `[q, dim]`.
        reference: Floats `[r, dim]`.
        query_labels: Integers `[q]`.
        reference_labels: Integers `[r]`.
        exclude: References to hide from each query, a CSR pair `(offsets, ids)`; for a set searched in itself,
            `(torch.arange(n + 1), torch.arange(n))`.
        positives: Further positives of each query, a CSR pair `(offsets, ids)`. Labels cannot express that a reference
            answers several queries.
        ks: The k of each Recall@k.

    Returns:
        `recall@1`, `recall@5`, ..., `recall@1%` (in the first hundredth of the references), `mrr@10`, and `queries`:
        how many queries have a positive.

    Raises:
        TypeError: Embeddings are not floats, labels not integers, or lists not a CSR pair.
        ValueError: Shapes do not agree, an embedding is not finite, or no query has a positive.

    Examples:
        >>> import torch
        >>> query, reference = torch.tensor([[1.0, 0.1], [0.2, 1.0]]), torch.eye(2)
        >>> evaluate(query, reference, [0, 0], [0, 1])
        {'recall@1': 0.5, 'recall@5': 1.0, 'recall@10': 1.0, 'recall@1%': 0.5, 'mrr@10': 0.75, 'queries': 2}
    """
    for k in ks:
        checked_positive("ks", k)
    ranks = first_positive_ranks(query, reference, query_labels, reference_labels, exclude, positives)
    return summarize_ranks(ranks, len(as_tensor(reference)), ks)


def summarize_ranks(ranks: Tensor, num_references: int, ks: tuple[int, ...] = KS) -> dict[str, float]:
    """Return what `evaluate` returns, from the ranks of all queries that `first_positive_ranks` has found.

    Raises:
        ValueError: No query has a positive.
    """
    ranks = ranks[ranks != NEVER]
    if len(ranks) == 0:
        raise ValueError("no query has a positive among the references: check that labels name the same classes.")

    def share(k: int) -> float:
        return (ranks < k).double().mean().item()

    recalls = {f"recall@{k}": share(k) for k in ks}
    reciprocal = torch.where(ranks < 10, 1 / (ranks + 1).double(), 0.0)
    return {
        **recalls,
        "recall@1%": share(max(1, num_references // 100)),
        "mrr@10": reciprocal.mean().item(),
        "queries": len(ranks),
    }


def first_positive_ranks(
    query: Any, reference: Any, query_labels: Any, reference_labels: Any, exclude: Any = None, positives: Any = None
) -> Tensor:
    """Return the rank, from 0, of each query's first positive, int64 `[q]` on the CPU; `NEVER` if it has none.

    The arguments are those of `evaluate`. The rank is the number of references that come before the positive, so
    nothing is sorted.
    """
    query, reference = as_tensor(query, "query", "floats"), as_tensor(reference, "reference", "floats")
    query_labels = checked_labels("query_labels", query_labels, len(query)).to(query.device)
    reference_labels = checked_labels("reference_labels", reference_labels, len(reference)).to(query.device)
    for name, x in (("query", query), ("reference", reference)):
        check_embeddings(name, x, len(x))
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{name} has a row that is not finite: such embeddings cannot be searched.")
    if query.shape[1] != reference.shape[1]:
        raise ValueError(
            f"query and reference must have the same dimension, got {query.shape[1]} and {reference.shape[1]}."
        )
    hidden, answers = (
        None if lists is None else checked_lists(name, lists, len(query), len(reference), query.device)
        for name, lists in (("exclude", exclude), ("positives", positives))
    )
    query, reference = (F.normalize(x.float(), dim=1) for x in (query, reference.to(query.device)))
    chunk = max(1, CHUNK_BYTES // (16 * max(1, len(reference))))
    ranks = []
    for rows in torch.split(torch.arange(len(query), device=query.device), chunk):
        similarity = query[rows] @ reference.T  # [chunk, r]
        positive = query_labels[rows, None] == reference_labels
        if answers is not None:
            listed = take_lists(answers, rows)
            positive[row_numbers(listed), listed[1]] = True
        if hidden is not None:
            listed = take_lists(hidden, rows)
            places = row_numbers(listed), listed[1]
            similarity[places], positive[places] = -torch.inf, False
        ranks.append(_first_ranks(similarity, positive).cpu())
    return torch.cat([torch.empty(0, dtype=torch.int64), *ranks])  # there may be no query


def _first_ranks(similarity: Tensor, positive: Tensor) -> Tensor:
    """Count the references that come before the best positive, int64 [chunk]."""
    ids = torch.arange(similarity.shape[1], device=similarity.device)
    best = similarity.where(positive, -torch.inf).amax(dim=1, keepdim=True)
    place = ids.where(positive & (similarity == best), NEVER).amin(dim=1, keepdim=True)  # the first among equals
    before = (similarity > best) | ((similarity == best) & (ids < place))
    return before.sum(dim=1).where(positive.any(dim=1), NEVER)
