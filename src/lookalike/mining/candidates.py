"""Codes -> candidates: the nearest texts of each query by bits, scored by bits or, where there are floats, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lookalike.mining.options import MISSING
from lookalike.negatives import implied_cosine
from lookalike.search import hamming_topk
from lookalike.search.plain import popcount
from lookalike.utils.lists import take_lists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lookalike.mining.rescoring import Floats

SCORES_IN_MEMORY = 1 << 20  # of candidates, at a time


@dataclass(frozen=True)
class Candidates:
    """The best candidates of some queries, best first, padded with -1 and minus infinity."""

    first: int  # query
    scores: Tensor  # float32 [q, wanted]
    indices: Tensor  # int64 [q, wanted]
    positive: Tensor  # bool [q, wanted], which of them are positives
    positive_scores: Tensor  # float32 [p], one per positive of these queries
    owners: Tensor  # int64 [p], whose they are, counted from the first query

    @property
    def hardest(self) -> Tensor:
        """The lowest score of each query's positives, which margins are measured from; infinity where it has none."""
        highest = torch.full((len(self.scores),), torch.inf)
        return highest.scatter_reduce(0, self.owners, self.positive_scores, "amin")


@dataclass(frozen=True)
class Searched:
    """Two tables of codes, with their floats where candidates are to be scored exactly."""

    query_codes: Tensor  # uint8 [q, bits / 8]
    corpus_codes: Tensor  # uint8 [n, bits / 8], where it is to be searched
    offsets: Tensor  # int64 [q + 1]
    positives: Tensor  # int64 [p], into the corpus: those of query i are positives[offsets[i]:offsets[i + 1]]
    floats: Floats | None = None
    query_labels: Tensor | None = None  # int64 [q]
    corpus_labels: Tensor | None = None  # int64 [n]; texts of the query's label are no candidates

    def candidates(self, wanted: int, shortlist: int, at_a_time: int) -> Iterator[Candidates]:
        """The `wanted` best of all texts, positives included, for some queries after others.

        Positives are left out of the search, and take the places that their scores give them afterwards: however many
        a query has, `shortlist` others are found.
        """
        most = int(self.offsets.diff().max())
        shortlist = min(shortlist, len(self.corpus_codes))
        step = max(1, min(at_a_time, SCORES_IN_MEMORY // (shortlist + most)))
        for first in range(0, len(self.query_codes), step):
            rows = torch.arange(first, min(first + step, len(self.query_codes)))
            yield self._candidates(rows, wanted, shortlist)

    def _candidates(self, rows: Tensor, wanted: int, shortlist: int) -> Candidates:
        offsets, positives = take_lists((self.offsets, self.positives), rows)
        owners = torch.repeat_interleave(torch.arange(len(rows)), offsets.diff())
        codes = self.query_codes[rows].to(self.corpus_codes.device)
        found = hamming_topk(
            codes,
            self.corpus_codes,
            shortlist,
            query_labels=None if self.query_labels is None else self.query_labels[rows],
            reference_labels=self.corpus_labels,
            exclude=(offsets, positives),
        )
        indices = found.indices.cpu()
        if self.floats is None:
            differing = codes[owners.to(codes.device)] ^ self.corpus_codes[positives.to(codes.device)]
            distances = popcount(differing).sum(1, dtype=torch.int32)
            scores, positive_scores = (
                implied_cosine(values.cpu(), 8 * codes.shape[1]).float() for values in (found.distances, distances)
            )
        else:
            scores = self.floats.of_lists(rows, indices)
            positive_scores = self.floats.of_pairs(rows[owners], positives)
        width = int(offsets.diff().max())
        places = owners, torch.arange(len(positives)) - offsets[owners]
        theirs, ids = torch.full((len(rows), width), MISSING), torch.full((len(rows), width), -1)
        theirs[places], ids[places] = positive_scores, positives
        empty = torch.full((len(rows), max(0, wanted - width - shortlist)), MISSING)
        scores = torch.cat([theirs, scores.masked_fill(indices < 0, MISSING), empty], dim=1)
        indices = torch.cat([ids, indices, torch.full(empty.shape, -1)], dim=1)
        best = scores.argsort(dim=1, descending=True, stable=True)[:, :wanted]
        chosen, indices = scores.gather(1, best), indices.gather(1, best)
        return Candidates(int(rows[0]), chosen, indices, (best < width) & (indices >= 0), positive_scores, owners)
