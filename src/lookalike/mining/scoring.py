"""Score the neighbours of a block of queries and their positives: by floats, by codes, or floats against codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from lookalike.mining.rescoring import MISSING, list_scores, pair_scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.hashing import ScalarHasher
    from lookalike.mining.codes_on_disk import CodeFiles
    from lookalike.mining.rows import Rows
    from lookalike.negatives.spaces import Space

PAIRS = 1 << 17  # whose queries are in memory
DECODED = 1 << 22  # values of decoded codes in memory at a time


class Scorer(Protocol):
    """Scores references for the queries of a block, which it knows by their places in the block."""

    def of_lists(self, places: Tensor, ids: Tensor, distances: Tensor) -> Tensor:
        """Score neighbours, [q, k], that a search found at these distances: float32 [q, k]; -1 stands for none."""

    def of_pairs(self, places: Tensor, ids: Tensor) -> Tensor:
        """Score pairs, [m]: float32 [m]."""


@dataclass(frozen=True)
class FloatScores:
    """The similarity of embeddings.

    Args:
        first: The number of the first query of the block.
        queries: The embeddings of all queries.
        reference: Those of all references.
        similarity: Scores rows of both sides; by default the dot product.
    """

    first: int
    queries: Rows
    reference: Rows
    similarity: Callable[[Tensor, Tensor], Tensor] | None = None

    def of_lists(self, places: Tensor, ids: Tensor, distances: Tensor) -> Tensor:  # noqa: ARG002
        """Score neighbours."""
        return list_scores(self.queries, self.reference, (places + self.first).numpy(), ids, self.similarity)

    def of_pairs(self, places: Tensor, ids: Tensor) -> Tensor:
        """Score pairs."""
        return pair_scores(self.queries, self.reference, (places + self.first).numpy(), ids, self.similarity)


@dataclass(frozen=True)
class CodeScores:
    """The cosines that distances of codes stand for.

    Args:
        space: How codes compare.
        codes: Those of the block, uint8 [q, bytes].
        reference: Those of all references.
    """

    space: Space
    codes: Tensor
    reference: CodeFiles

    def of_lists(self, places: Tensor, ids: Tensor, distances: Tensor) -> Tensor:  # noqa: ARG002
        """Score neighbours: their distances are known."""
        return self._scores(distances)

    def of_pairs(self, places: Tensor, ids: Tensor) -> Tensor:
        """Score pairs."""
        return self._scores(self.space.compare(self.codes[places], self.reference.take(ids)))

    def _scores(self, distances: Tensor) -> Tensor:
        return self.space.scores(distances, self.codes.shape[1]).float()


@dataclass(frozen=True)
class DecodedScores:
    """The dot products of embeddings and of what the codes of references stand for.

    Args:
        first: The number of the first query of the block.
        queries: The embeddings of all queries, at unit length.
        reference: The codes of all references.
        hasher: Decodes them.
    """

    first: int
    queries: Rows
    reference: CodeFiles
    hasher: ScalarHasher

    def of_lists(self, places: Tensor, ids: Tensor, distances: Tensor) -> Tensor:  # noqa: ARG002
        """Score neighbours."""
        scores = torch.full(ids.shape, MISSING)
        there = ids >= 0
        scores[there] = self.of_pairs(places[there.nonzero()[:, 0]], ids[there])
        return scores

    def of_pairs(self, places: Tensor, ids: Tensor) -> Tensor:
        """Score pairs, those of a reference together: it is decoded once for many queries."""
        wanted, inverse = torch.unique(ids, return_inverse=True)
        codes = self.reference.take(wanted)
        scores = torch.empty(len(ids))
        step = max(1, DECODED // self.hasher.dim)
        for first in range(0, len(ids), PAIRS):
            rows, of_query = torch.unique(places[first : first + PAIRS], return_inverse=True)
            queries = self.queries.read((rows + self.first).numpy())
            for part in torch.split(inverse[first : first + PAIRS].argsort(stable=True), step):
                these, of_pair = torch.unique(inverse[first + part], return_inverse=True)
                decoded = self.hasher.decode(self.hasher.read(codes[these]))
                scores[first + part] = (queries[of_query[part]] * decoded[of_pair]).sum(1)
        return scores
