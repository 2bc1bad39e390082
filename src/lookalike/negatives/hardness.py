"""Measure how hard a batch is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from lookalike.utils.lists import lists_mask

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.utils.lists import Lists


def hardest_similarity(
    query: Tensor, reference: Tensor, exclude: Lists | None = None, negatives: Tensor | None = None
) -> Tensor:
    """Average the cosine of the hardest negative in the batch over the queries: how hard the batch is.

    Args:
        query: Normalised embeddings `[n, dim]`.
        reference: Normalised embeddings `[n, dim]`.
        exclude: What is not a negative of each query, as `InfoNCE` takes it.
        negatives: Embeddings of explicit negatives `[n, m, dim]`, of any length.
    """
    candidates = reference
    if negatives is not None:
        candidates = torch.cat([reference, F.normalize(negatives.detach().float().flatten(0, 1), dim=1)])
    similarity = query @ candidates.T
    if exclude is not None:
        similarity.masked_fill_(lists_mask(exclude, len(candidates), similarity.device), -1.0)
    similarity.fill_diagonal_(-torch.inf)
    return similarity.amax(dim=1).mean()
