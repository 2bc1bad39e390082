"""Exact scores of a shortlist, from floats that are read from a file a few megabytes at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.mining.rows import Rows

FLOATS_IN_MEMORY = 1 << 22  # of candidates, at a time


@dataclass(frozen=True)
class Floats:
    """The embeddings of queries and corpus, and how similar two of them are."""

    queries: Rows
    corpus: Rows
    similarity: Callable[[Tensor, Tensor], Tensor] | None = None  # of rows; by default the cosine, of normalised ones

    def of_lists(self, rows: Tensor, indices: Tensor) -> Tensor:
        """Scores of the candidates of some queries: float32, of the shape of `indices` [len(rows), k]."""
        scores = torch.empty(indices.shape)
        queries = self.queries.read(rows.numpy())
        tile = max(1, FLOATS_IN_MEMORY // (indices.shape[1] * queries.shape[1]))
        for first in range(0, len(rows), tile):
            part = slice(first, first + tile)
            shape = indices[part].shape
            texts = self.corpus.read(indices[part].clamp(min=0).flatten().numpy())
            if self.similarity is None:
                scores[part] = torch.einsum("qd,qkd->qk", queries[part], texts.view(*shape, -1))
            else:
                repeated = queries[part].repeat_interleave(shape[1], dim=0)
                scores[part] = self.similarity(repeated, texts).view(shape)
        return scores

    def of_pairs(self, rows: Tensor, ids: Tensor) -> Tensor:
        """Scores of pairs of a query and a text: float32 [len(ids)]."""
        scores = torch.empty(len(ids))
        tile = FLOATS_IN_MEMORY // 512
        for first in range(0, len(ids), tile):
            part = slice(first, first + tile)
            asked, inverse = np.unique(rows[part].numpy(), return_inverse=True)
            queries, texts = self.queries.read(asked)[torch.from_numpy(inverse)], self.corpus.read(ids[part].numpy())
            scores[part] = (queries * texts).sum(1) if self.similarity is None else self.similarity(queries, texts)
        return scores
