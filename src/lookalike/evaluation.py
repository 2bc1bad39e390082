"""Embeddings -> how well they retrieve: Recall@k, recall in the top 1% and MRR@10, exact."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor

from lookalike.utils.checks import checked_positive
from lookalike.utils.tensors import as_tensor, check_embeddings, checked_labels

CHUNK_BYTES = 1 << 28
NEVER = torch.iinfo(torch.int64).max


def evaluate(
    query: Any,
    reference: Any,
    query_labels: Any,
    reference_labels: Any,
    *,
    exclude: Any = None,
    positives: Any = None,
    ks: tuple[int, ...] = (1, 5, 10),
) -> dict[str, float]:
    """Search every query among all references by cosine and say how often, and how far up, a positive is found.

    A positive is a reference with the label of the query; several count by the first one found. Queries without any
    positive cannot succeed and are left out of the means. Of equal similarities the smaller id comes first.

    Args:
        query: Floats `[q, dim]`.
        reference: Floats `[r, dim]`.
        query_labels: Integers `[q]`.
        reference_labels: Integers `[r]`.
        exclude: Integers `[q, e]`: references that a query does not see, -1 for none; for a set searched in itself,
            `torch.arange(n)[:, None]`.
        positives: Integers `[q, p]`: further references that are positives of a query, -1 for none, where labels
            cannot say it because a reference answers several queries.
        ks: For which Recall@k is returned.

    Returns:
        `recall@1`, `recall@5`, ..., `recall@1%` (the first hundredth of the references), `mrr@10`, and `queries`, how
        many had a positive.

    Examples:
        >>> import torch
        >>> query, reference = torch.tensor([[1.0, 0.1], [0.2, 1.0]]), torch.eye(2)
        >>> evaluate(query, reference, [0, 0], [0, 1])
        {'recall@1': 0.5, 'recall@5': 1.0, 'recall@10': 1.0, 'recall@1%': 0.5, 'mrr@10': 0.75, 'queries': 2}
    """
    for k in ks:
        checked_positive("ks", k)
    ranks = first_positive_ranks(query, reference, query_labels, reference_labels, exclude=exclude, positives=positives)
    ranks = ranks[ranks != NEVER]
    if len(ranks) == 0:
        raise ValueError("no query has a positive among the references: check that labels name the same classes.")

    def share(k: int) -> float:
        return (ranks < k).double().mean().item()

    recalls = {f"recall@{k}": share(k) for k in ks}
    reciprocal = torch.where(ranks < 10, 1 / (ranks + 1).double(), 0.0)
    return {
        **recalls,
        "recall@1%": share(max(1, len(as_tensor(reference)) // 100)),
        "mrr@10": reciprocal.mean().item(),
        "queries": len(ranks),
    }


def first_positive_ranks(
    query: Any,
    reference: Any,
    query_labels: Any,
    reference_labels: Any,
    *,
    exclude: Any = None,
    positives: Any = None,
) -> Tensor:
    """At which place, from 0, the first positive of each query stands; the largest int64 for none: int64 [q], CPU."""
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
    excluded, answers = (
        _checked_lists(name, lists, len(query), len(reference), query.device)
        for name, lists in (("exclude", exclude), ("positives", positives))
    )
    query, reference = (F.normalize(x.float(), dim=1) for x in (query, reference.to(query.device)))
    rows = max(1, CHUNK_BYTES // (16 * max(1, len(reference))))
    chunks = []
    for first in range(0, len(query), rows):
        part = slice(first, first + rows)
        similarity = query[part] @ reference.T  # [chunk, r]
        positive = query_labels[part, None] == reference_labels
        if answers is not None:
            positive[_named(answers[part])] = True
        if excluded is not None:
            unseen = _named(excluded[part])
            similarity[unseen] = -torch.inf
            positive[unseen] = False
        chunks.append(_first_ranks(similarity, positive).cpu())
    return torch.cat(chunks) if chunks else torch.empty(0, dtype=torch.int64)


def _checked_lists(name: str, lists: Any, queries: int, references: int, device: torch.device) -> Tensor | None:
    """Integers [queries, any], each a reference or -1."""
    if lists is None:
        return None
    ids: Tensor = as_tensor(lists).to(device)
    if ids.ndim != 2 or len(ids) != queries:
        raise ValueError(f"{name} must have one row of ids per query, {queries}, got {list(ids.shape)}.")
    if ids.numel() and int(ids.max()) >= references:
        raise ValueError(f"{name} must be below {references}, the number of references, got {int(ids.max())}.")
    return ids


def _named(lists: Tensor) -> tuple[Tensor, Tensor]:
    """Row and reference of every entry that is not -1."""
    rows, columns = lists.ge(0).nonzero(as_tuple=True)
    return rows, lists[rows, columns]


def _first_ranks(similarity: Tensor, positive: Tensor) -> Tensor:
    """How many references come before the best positive: int64 [chunk]."""
    ids = torch.arange(similarity.shape[1], device=similarity.device)
    best = similarity.where(positive, -torch.inf).amax(dim=1, keepdim=True)
    place = ids.where(positive & (similarity == best), NEVER).amin(dim=1, keepdim=True)  # the first among equals
    before = (similarity > best) | ((similarity == best) & (ids < place))
    return before.sum(dim=1).where(positive.any(dim=1), NEVER)
