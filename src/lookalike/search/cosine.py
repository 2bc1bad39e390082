"""Exact search by cosine similarity, which the codes approximate and are measured against."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lookalike.utils.checks import checked_positive
from lookalike.utils.lists import row_numbers, take_lists
from lookalike.utils.tensors import checked_labels

TILE_ELEMENTS = 1 << 25  # similarities in memory at a time


class Similar(NamedTuple):
    """The most similar rows of each query, most similar first; scores padded with minus infinity, indices with -1."""

    scores: Tensor  # float32 [q, k]
    indices: Tensor  # int64 [q, k]


@torch.no_grad()
def cosine_topk(
    query: Any, reference: Any, k: int, *, query_labels: Any = None, reference_labels: Any = None, exclude: Any = None
) -> Similar:
    """Find the k rows of `reference` with the largest cosine to each query, by full comparison.

    `query_labels`, `reference_labels` and `exclude` leave rows out as in `hamming_topk`.

    Examples:
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> cosine_topk(x, x, k=1, query_labels=[0, 1, 2], reference_labels=[0, 1, 2]).indices.flatten().tolist()
        [1, 0, 1]
    """
    k = checked_positive("k", k)
    query, reference = normalize(query.float(), dim=1), normalize(reference.float(), dim=1)
    if query_labels is not None:
        query_labels = checked_labels("query_labels", query_labels, len(query)).to(query.device)
        reference_labels = checked_labels("reference_labels", reference_labels, len(reference)).to(query.device)
    scores = query.new_full((len(query), k), -torch.inf)
    indices = torch.full((len(query), k), -1, device=query.device)
    tile = max(1, TILE_ELEMENTS // max(1, len(reference)))
    found = min(k, len(reference))
    for first in range(0, len(query), tile):
        rows = slice(first, first + tile)
        with torch.autocast(query.device.type, enabled=False):
            similarity = query[rows] @ reference.T
        if query_labels is not None:
            similarity.masked_fill_(query_labels[rows, None] == reference_labels, -torch.inf)
        if exclude is not None:
            lists = take_lists((exclude[0].cpu(), exclude[1].cpu()), torch.arange(len(query))[rows])
            similarity[row_numbers(lists).to(query.device), lists[1].to(query.device)] = -torch.inf
        scores[rows, :found], indices[rows, :found] = similarity.topk(found, dim=1)
    return Similar(scores, indices.masked_fill(scores == -torch.inf, -1))
