"""Neighbours in bits -> candidates -> filters -> negatives: one pipeline for texts and for embeddings."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from lookalike.utils.lists import Lists, row_numbers, take_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lookalike.mining import Search, Selection
    from lookalike.mining.scoring import Scorer
    from lookalike.negatives import Filters
    from lookalike.search import Neighbours

SCORES_IN_MEMORY = 1 << 20  # candidates at a time
QUERIES = 16384  # whose candidates are looked at together, at most
MISSING = -math.inf  # the score where there is no negative


@dataclass(frozen=True)
class Candidates:
    """The best candidates of some queries, best first, padded with -1 and minus infinity."""

    first: int  # query
    scores: Tensor  # float32 [q, wanted]
    indices: Tensor  # int64 [q, wanted]
    is_positive: Tensor  # bool [q, wanted]
    positives: Lists  # of these queries
    positive_scores: Tensor  # float32 [p]

    @property
    def hardest(self) -> Tensor:
        """The lowest score of each query's positives, from which margins are measured; infinity where it has none."""
        highest = torch.full((len(self.scores),), torch.inf)
        return highest.scatter_reduce(0, row_numbers(self.positives), self.positive_scores, "amin")


class Likely(NamedTuple):
    """Candidates that a judge takes for positives."""

    queries: Tensor  # int64 [m]
    ids: Tensor  # int64 [m]
    scores: Tensor  # float32 [m], of the embeddings
    judged: Tensor  # float32 [m], of the judge
    lowest: Tensor  # float32 [m], of the judge: the lowest of the query's positives


class Judge(Protocol):
    """Decides which candidates are positives."""

    def decide(self, found: Candidates) -> tuple[Tensor, Likely]:
        """Return which candidates are likely positives, bool [q, wanted], and what is known of them."""


@dataclass(frozen=True)
class Part:
    """The negatives of some queries, best first, padded with -1 and minus infinity."""

    first: int  # query
    indices: Tensor  # int64 [q, num_negatives]
    scores: Tensor  # float32 [q, num_negatives]
    positives: Lists  # of these queries
    positive_scores: Tensor  # float32 [p]
    candidates: int  # before the filters
    dropped: dict[str, Tensor]  # int64 [q]: how many candidates each filter dropped
    rows: int = 0  # of texts that were written for it
    likely: Likely | None = None  # positives among the candidates, as a judge says


@dataclass(frozen=True)
class Pipeline:
    """From the neighbours of queries to their negatives.

    Args:
        selection: How many negatives to take, and which.
        filters: Which candidates count.
        search: How candidates are found.
        most_positives: How many more candidates to consider, to make up for positives.
        scored_by: Scores candidates anew before they are filtered.
        judge: Decides which suspicious candidates are positives.
        similarity: Scores rows of both sides; by default the dot product.
        has_floats: Whether the floats of queries are at hand although codes score: codes of several bits per dimension
            are then compared with these floats, which tells more than two codes do.
    """

    selection: Selection
    filters: Filters
    search: Search
    most_positives: int
    scored_by: Callable[[Candidates], Candidates] | None = None
    judge: Judge | None = None
    similarity: Callable[[Tensor, Tensor], Tensor] | None = None
    has_floats: bool = False

    @property
    def decodes(self) -> bool:
        """Whether the floats of queries are compared with decoded codes."""
        return self.has_floats and self.search.is_scalar and not self.search.keeps_floats

    @property
    def depth(self) -> int:
        """The highest rank to consider: `range_max`, or as far down as the filters are likely to need."""
        if self.filters.range_max is not None:
            return self.filters.range_max
        generous = (
            self.filters.drops_nearest
            or self.judge is not None
            or (self.scored_by is not None and self.filters.min_score is not None)
        )
        return self.filters.range_min + self.selection.num_negatives * (10 if generous else 1) + self.most_positives

    @property
    def shortlist(self) -> int:
        """How many neighbours to find in bits."""
        wanted = self.depth + self.most_positives
        return self.search.shortlist(wanted) if self.search.keeps_floats or self.decodes else wanted

    def parts(
        self,
        first: int,
        found: Neighbours,
        positives: Lists,
        scorer: Scorer,
        sample: Callable[..., list[int]],
    ) -> Iterator[Part]:
        """Yield the negatives of a block of queries, some queries at a time.

        Args:
            first: The number of the first query.
            found: The neighbours of the queries, positives left out.
            positives: Their positives.
            scorer: Scores the neighbours and the positives.
            sample: Draws random ranks, as `random.sample` does.
        """
        most = max(1, int(positives[0].diff().max()))
        step = max(1, SCORES_IN_MEMORY // (found.indices.shape[1] + most))
        for start in range(0, len(found.indices), step):
            rows = torch.arange(start, min(start + step, len(found.indices)))
            candidates = self._candidates(first, rows, found, take_lists(positives, rows), scorer)
            if self.scored_by is not None:
                candidates = self.scored_by(candidates)
            if self.judge is None:
                yield self._select(candidates, sample)
                continue
            likely, about = self.judge.decide(candidates)
            scores = candidates.scores.masked_fill(likely, MISSING)
            part = self._select(replace(candidates, scores=scores), sample)
            yield replace(part, dropped={"judge": likely.sum(1), **part.dropped}, likely=about)

    def _candidates(self, first: int, rows: Tensor, found: Neighbours, positives: Lists, scorer: Scorer) -> Candidates:
        """Score the neighbours and the positives of some queries, and take the best.

        The search leaves positives out, and their scores then give them their places: however many a query has, it
        finds `shortlist` others.
        """
        wanted = self.depth + self.most_positives
        indices, owners = found.indices[rows], row_numbers(positives)
        scores = scorer.of_lists(rows, indices, found.distances[rows])
        positive_scores = scorer.of_pairs(rows[owners], positives[1])
        width = int(positives[0].diff().max())
        places = owners, torch.arange(len(owners)) - positives[0][owners]
        theirs, ids = torch.full((len(rows), width), MISSING), torch.full((len(rows), width), -1)
        theirs[places], ids[places] = positive_scores, positives[1]
        empty = torch.full((len(rows), max(0, wanted - width - indices.shape[1])), MISSING)
        scores = torch.cat([theirs, scores.masked_fill(indices < 0, MISSING), empty], dim=1)
        indices = torch.cat([ids, indices, torch.full(empty.shape, -1)], dim=1)
        best = scores.argsort(dim=1, descending=True, stable=True)[:, :wanted]
        scores, indices = scores.gather(1, best), indices.gather(1, best)
        is_positive = (best < width) & (indices >= 0)
        return Candidates(first + int(rows[0]), scores, indices, is_positive, positives, positive_scores)

    def _select(self, found: Candidates, sample: Callable[..., list[int]]) -> Part:
        """Take the negatives of queries from their candidates: filters first, then the rank window, then the choice."""
        selection, filters = self.selection, self.filters
        scores = found.scores if selection.include_positives else found.scores.masked_fill(found.is_positive, MISSING)
        passed = scores != MISSING
        candidates = int(passed.sum())
        dropped: dict[str, Tensor] = {}
        for name, mask in filters.dropped(scores, found.hardest).items():
            dropped[name] = (mask & passed).sum(1)
            passed &= ~mask
        scores = scores.masked_fill(~passed, MISSING)
        order = scores.argsort(dim=1, descending=True, stable=True)[:, filters.range_min : self.depth]
        k = selection.num_negatives
        if selection.sampling_strategy == "random":
            # One draw per query, in the order of sentence-transformers: the same seed gives the same ranks.
            numbers = (scores.gather(1, order) != MISSING).sum(1).clamp(min=k).tolist()
            order = order.gather(1, torch.tensor([sorted(sample(range(number), k=k)) for number in numbers]))
        scores, indices = scores.gather(1, order[:, :k]), found.indices.gather(1, order[:, :k])
        indices = indices.masked_fill(scores == MISSING, -1)
        return Part(found.first, indices, scores, found.positives, found.positive_scores, candidates, dropped)


def sampler(seed: int | None, block: int) -> Callable[..., list[int]]:
    """Return what draws ranks for a block of queries: with a seed, blocks draw independently, in any order.

    The first block draws what `random.seed(seed)` would.
    """
    if seed is None:
        return random.sample
    return random.Random(seed if block == 0 else f"{seed} {block}").sample  # noqa: S311 - ranks, not secrets


def joined_parts(parts: Sequence[Part]) -> Part:
    """Join parts that follow each other."""
    if len(parts) == 1:
        return parts[0]
    lengths = torch.cat([part.positives[0].diff() for part in parts])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return Part(
        parts[0].first,
        torch.cat([part.indices for part in parts]),
        torch.cat([part.scores for part in parts]),
        (offsets, torch.cat([part.positives[1] for part in parts])),
        torch.cat([part.positive_scores for part in parts]),
        sum(part.candidates for part in parts),
        {name: torch.cat([part.dropped[name] for part in parts]) for name in parts[0].dropped},
        likely=_joined_likely([part.likely for part in parts if part.likely is not None]),
    )


def _joined_likely(found: Sequence[Likely]) -> Likely | None:
    return Likely(*(torch.cat(each) for each in zip(*found, strict=True))) if found else None
