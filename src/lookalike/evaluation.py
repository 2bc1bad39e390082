"""Measure how well embeddings retrieve: Recall@k, recall in the top 1%, MRR@10, nDCG@10 and MAP@R, exact."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from lookalike.utils.checks import checked_positive
from lookalike.utils.lists import Lists, checked_lists, row_numbers, take_lists
from lookalike.utils.tensors import as_tensor, check_embeddings, checked_labels

CHUNK_BYTES = 1 << 28
KS = (1, 5, 10)
DEPTH = 10  # of MRR and nDCG
NEVER = torch.inf  # the rank of a query's first positive if it has none


def evaluate(
    query: Any,
    reference: Any,
    query_labels: Any,
    reference_labels: Any,
    *,
    exclude: tuple[Any, Any] | None = None,
    positives: tuple[Any, Any] | None = None,
    gains: Any = None,
    ks: tuple[int, ...] = KS,
) -> dict[str, float]:
    """Search every query among all references by cosine, and measure how often and how high up a positive is found.

    A positive is a reference with the label of the query. If there are several, the first one found counts for recall
    and MRR, and all of them for nDCG and MAP@R. Queries without a positive are left out of the means. Among equal
    similarities, the smaller id comes first.

    References are searched in chunks of queries, in bounded memory. MAP@R sorts the first R references of a query with
    R positives, so it takes longer if classes are large.

    Args:
        query: Floats `[q, dim]`.
        reference: Floats `[r, dim]`.
        query_labels: Integers `[q]`.
        reference_labels: Integers `[r]`.
        exclude: References to hide from each query, a CSR pair `(offsets, ids)`; for a set searched in itself,
            `(torch.arange(n + 1), torch.arange(n))`.
        positives: Further positives of each query, a CSR pair `(offsets, ids)`. Labels cannot express that a reference
            answers several queries.
        gains: How relevant each of the `positives` is, positive numbers as many as its ids; 1 by default, as for
            positives by label. Only nDCG depends on them.
        ks: The k of each Recall@k.

    Returns:
        `recall@1`, `recall@5`, ..., `recall@1%` (in the first hundredth of the references), `mrr@10`, `ndcg@10`, with
        linear gains as trec_eval computes it, `map@r`, the mean average precision over the first R references of a
        query with R positives, and `queries`: how many queries have a positive.

    Raises:
        TypeError: Embeddings are not floats, labels not integers, or lists not a CSR pair.
        ValueError: Shapes do not agree, an embedding is not finite, a gain is not positive, or no query has a positive.

    Examples:
        >>> import torch
        >>> query, reference = torch.tensor([[1.0, 0.1], [0.2, 1.0]]), torch.eye(2)
        >>> found = evaluate(query, reference, [0, 0], [0, 1])
        >>> found["recall@1"], found["mrr@10"], round(found["ndcg@10"], 3), found["map@r"]
        (0.5, 0.75, 0.815, 0.5)
    """
    for k in ks:
        checked_positive("ks", k)
    measures = measure_queries(query, reference, query_labels, reference_labels, exclude, positives, gains)
    return summarize(measures, len(as_tensor(reference)), ks)


def summarize(measures: Tensor, num_references: int, ks: tuple[int, ...] = KS) -> dict[str, float]:
    """Return what `evaluate` returns, from what `measure_queries` has found for all queries.

    Raises:
        ValueError: No query has a positive.
    """
    ranks, gained, precision = measures[measures[:, 0] != NEVER].T
    if len(ranks) == 0:
        raise ValueError("no query has a positive among the references: check that labels name the same classes.")

    def share(k: int) -> float:
        return float((ranks < k).double().mean())

    recalls = {f"recall@{k}": share(k) for k in ks}
    reciprocal = torch.where(ranks < DEPTH, 1 / (ranks + 1), 0.0)
    return {
        **recalls,
        "recall@1%": share(max(1, num_references // 100)),
        "mrr@10": reciprocal.mean().item(),
        "ndcg@10": gained.mean().item(),
        "map@r": precision.mean().item(),
        "queries": len(ranks),
    }


def measure_queries(
    query: Any,
    reference: Any,
    query_labels: Any,
    reference_labels: Any,
    exclude: Any = None,
    positives: Any = None,
    gains: Any = None,
) -> Tensor:
    """Measure each query on its own, with the arguments of `evaluate`.

    Returns:
        For each query the rank, from 0, of its first positive (`NEVER` if it has none), its nDCG@10, and its average
        precision at R: float64 `[q, 3]` on the CPU. The rank is the number of references that come before the positive,
        so for the rank nothing is sorted.
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
    worth = None if gains is None else _sorted_gains(gains, positives, query.device)
    query, reference = (F.normalize(x.float(), dim=1) for x in (query, reference.to(query.device)))
    chunk = max(1, CHUNK_BYTES // (16 * max(1, len(reference))))
    found = []
    for rows in torch.split(torch.arange(len(query), device=query.device), chunk):
        with torch.autocast(query.device.type, enabled=False):
            similarity = query[rows] @ reference.T  # [chunk, r]
        positive = query_labels[rows, None] == reference_labels
        gain = None if worth is None else positive.float()
        if answers is not None:
            listed = take_lists(answers, rows)
            positive[row_numbers(listed), listed[1]] = True
            if gain is not None and worth is not None:
                gain[row_numbers(listed), listed[1]] = take_lists((answers[0], worth), rows)[1]
        if hidden is not None:
            listed = take_lists(hidden, rows)
            places = row_numbers(listed), listed[1]
            similarity[places], positive[places] = -torch.inf, False
            if gain is not None:
                gain[places] = 0.0
        found.append(torch.stack([_first_ranks(similarity, positive), *_lists_measured(similarity, positive, gain)], 1))
    return torch.cat([torch.empty(0, 3, dtype=torch.float64), *(each.cpu() for each in found)])  # there may be no query


def _sorted_gains(gains: Any, positives: Any, device: torch.device) -> Tensor:
    """Return the gains in the order in which `checked_lists` sorts the ids, float32 [m]."""
    if positives is None:
        raise ValueError("gains= says how relevant the positives= are, which are missing.")
    offsets, ids = (as_tensor(part).to(device).long() for part in positives)
    worth = as_tensor(gains).to(device).float()
    if worth.shape != ids.shape:
        raise ValueError(f"gains must have one number per id of positives, {len(ids)}, got {list(worth.shape)}.")
    if not bool(((worth > 0) & torch.isfinite(worth)).all()):
        raise ValueError("gains must be positive and finite: leave out what is not relevant.")
    by_id = ids.argsort(stable=True)
    lists: Lists = (offsets, ids)
    return worth[by_id[row_numbers(lists)[by_id].argsort(stable=True)]]


def _first_ranks(similarity: Tensor, positive: Tensor) -> Tensor:
    """Count the references that come before the best positive, float64 [chunk]."""
    ids = torch.arange(similarity.shape[1], device=similarity.device)
    best = similarity.where(positive, -torch.inf).amax(dim=1, keepdim=True)
    place = ids.where(positive & (similarity == best), len(ids)).amin(dim=1, keepdim=True)  # the first among equals
    before = (similarity > best) | ((similarity == best) & (ids < place))
    return before.sum(dim=1).double().where(positive.any(dim=1), NEVER)


def _lists_measured(similarity: Tensor, positive: Tensor, gain: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return nDCG@10 and the average precision at R of each query, float64 [chunk]; 0 without a positive."""
    num_positives = positive.sum(dim=1)  # R
    depth = min(similarity.shape[1], max(DEPTH, int(num_positives.max())))
    rows_at_once = max(1, CHUNK_BYTES // (32 * depth))
    parts = []
    for rows in torch.split(torch.arange(len(similarity), device=similarity.device), rows_at_once):
        top = _nearest(similarity[rows], depth)  # [rows, depth]
        hits = positive[rows].gather(1, top).double()
        gains = (positive if gain is None else gain)[rows]
        found, best = gains.gather(1, top[:, :DEPTH]).double(), _largest(gains, num_positives[rows])
        discount = torch.arange(2, 2 + found.shape[1], device=top.device).double().log2().reciprocal()
        ideal = (best * discount).sum(dim=1)
        ndcg = (found * discount).sum(dim=1) / ideal.where(ideal > 0, 1.0)
        place = torch.arange(1, depth + 1, device=top.device)
        hits = hits * (place <= num_positives[rows, None])
        precision = (hits * hits.cumsum(dim=1) / place).sum(dim=1) / num_positives[rows].clamp(min=1)
        parts.append((ndcg, precision))
    ndcg, precision = (torch.cat(part) for part in zip(*parts, strict=True))
    return ndcg, precision


def _largest(gains: Tensor, num_positives: Tensor) -> Tensor:
    """Return the largest gains of each row in falling order, float64 `[rows, min(r, DEPTH)]`."""
    width = min(DEPTH, gains.shape[1])
    if gains.dtype == torch.bool:
        return (torch.arange(width, device=gains.device) < num_positives[:, None]).double()
    return gains.topk(width, dim=1).values.double()


def _nearest(similarity: Tensor, depth: int) -> Tensor:
    """Return the ids of the first `depth` references of each row, among equal similarities the smaller id first.

    `topk` alone takes any of those that are equal to the last one.
    """
    last = similarity.topk(depth, dim=1).values[:, -1:]
    above, equal = similarity > last, similarity == last
    room = depth - above.sum(dim=1, keepdim=True)
    if bool((equal.sum(dim=1, keepdim=True) > room).any()):
        equal &= equal.cumsum(dim=1, dtype=torch.int32) <= room
    ids = (above | equal).nonzero()[:, 1].view(len(similarity), depth)
    order = similarity.gather(1, ids).argsort(dim=1, descending=True, stable=True)
    return ids.gather(1, order)
