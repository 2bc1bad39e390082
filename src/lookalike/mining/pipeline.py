"""Codes -> candidates -> filters -> negatives: one pipeline for texts and for embeddings."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lookalike.mining.rescoring import list_scores, pair_scores
from lookalike.negatives.spaces import HAMMING
from lookalike.search import hamming_topk, search_device
from lookalike.utils.lists import Lists, joined_lists, row_numbers, take_lists
from lookalike.utils.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lookalike.mining import Search, Selection
    from lookalike.mining.rows import Rows
    from lookalike.negatives import Filters

SCORES_IN_MEMORY = 1 << 20  # candidates at a time
QUERIES = 16384  # searched at a time, at most
MISSING = -math.inf  # the score where there is no negative


@dataclass(frozen=True)
class Side:
    """One side of the search: the codes of its rows and, if they are to be rescored, their embeddings."""

    codes: Tensor  # uint8 [n, bits / 8]
    floats: Rows | None


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


@dataclass(frozen=True)
class Problem:
    """Two sides, and which references are positives of which query.

    Args:
        queries: The side to find negatives for.
        reference: The side to find them in.
        positives: References that are never negatives of a query; margins are measured from them.
        labels: int64 [q], where the queries are searched in themselves: rows that share a label are not candidates.
        most_positives: How many more candidates to consider, to make up for positives.
        exclude: Further references that are never negatives of a query.
        similarity: Scores rows of both sides; by default the dot product.
    """

    queries: Side
    reference: Side
    positives: Lists
    most_positives: int
    labels: Tensor | None = None
    exclude: Lists | None = None
    similarity: Callable[[Tensor, Tensor], Tensor] | None = None

    def mine(
        self,
        selection: Selection,
        filters: Filters,
        search: Search,
        *,
        device: torch.device,
        judge: Callable[[Candidates], Candidates] | None = None,
        queries_at_a_time: int = QUERIES,
        progress: bool = False,
    ) -> Iterator[Part]:
        """Yield the negatives of all queries, part by part.

        Args:
            selection: How many negatives to take, and which.
            filters: Which candidates count.
            search: How to find candidates.
            device: Where to search, if its kernels can.
            judge: Scores candidates anew before they are filtered.
            queries_at_a_time: Queries to search at a time, at most.
            progress: Show a bar on a terminal.
        """
        depth = _depth(selection, filters, self.most_positives, judged=judge is not None)
        wanted = depth + self.most_positives
        shortlist = search.shortlist(wanted)
        codes = self.reference.codes.to(search_device(device, search.bits, shortlist))
        shortlist = min(shortlist, len(codes))
        n, most = len(self.queries.codes), int(self.positives[0].diff().max())
        step = max(1, min(queries_at_a_time, SCORES_IN_MEMORY // (shortlist + most)))
        sample = random.sample if selection.seed is None else random.Random(selection.seed).sample  # noqa: S311 - ranks, not secrets
        with progress_bar(f"mining {n:,} queries", n, shown=progress) as bar:
            for first in range(0, n, step):
                rows = torch.arange(first, min(first + step, n))
                found = self._candidates(rows, codes, wanted, shortlist)
                if judge is not None:
                    found = judge(found)
                yield _select(found, selection, filters, depth, sample)
                bar.advance(len(rows))

    def _candidates(self, rows: Tensor, reference: Tensor, wanted: int, shortlist: int) -> Candidates:
        """Find the best `wanted` of all references, positives included.

        The search leaves positives out, and their scores then give them their places: however many a query has, it
        finds `shortlist` others.
        """
        positives = take_lists(self.positives, rows)
        left_out = positives if self.exclude is None else joined_lists(positives, take_lists(self.exclude, rows))
        codes = self.queries.codes[rows].to(reference.device)
        labels = None if self.labels is None else self.labels[rows]
        found = hamming_topk(
            codes, reference, shortlist, query_labels=labels, reference_labels=self.labels, exclude=left_out
        )
        indices, owners = found.indices.cpu(), row_numbers(positives)
        if self.queries.floats is None or self.reference.floats is None:
            distances = HAMMING.compare(codes[owners.to(codes.device)], reference[positives[1].to(codes.device)])
            scores, positive_scores = (
                HAMMING.scores(values.cpu(), codes.shape[1]).float() for values in (found.distances, distances)
            )
        else:
            floats = self.queries.floats, self.reference.floats
            scores = list_scores(*floats, rows, indices, self.similarity)
            positive_scores = pair_scores(*floats, rows[owners], positives[1], self.similarity)
        width = int(positives[0].diff().max())
        places = owners, torch.arange(len(owners)) - positives[0][owners]
        theirs, ids = torch.full((len(rows), width), MISSING), torch.full((len(rows), width), -1)
        theirs[places], ids[places] = positive_scores, positives[1]
        empty = torch.full((len(rows), max(0, wanted - width - shortlist)), MISSING)
        scores = torch.cat([theirs, scores.masked_fill(indices < 0, MISSING), empty], dim=1)
        indices = torch.cat([ids, indices, torch.full(empty.shape, -1)], dim=1)
        best = scores.argsort(dim=1, descending=True, stable=True)[:, :wanted]
        scores, indices = scores.gather(1, best), indices.gather(1, best)
        is_positive = (best < width) & (indices >= 0)
        return Candidates(int(rows[0]), scores, indices, is_positive, positives, positive_scores)


def _depth(selection: Selection, filters: Filters, most_positives: int, *, judged: bool) -> int:
    """Return the highest rank to consider: `range_max`, or as far down as the filters are likely to need."""
    if filters.range_max is not None:
        return filters.range_max
    generous = filters.drops_nearest or (judged and filters.min_score is not None)
    return filters.range_min + selection.num_negatives * (10 if generous else 1) + most_positives


def _select(
    found: Candidates, selection: Selection, filters: Filters, depth: int, sample: Callable[..., list[int]]
) -> Part:
    """Take the negatives of some queries from their candidates: filters first, then the rank window, then the choice.

    Args:
        found: The candidates.
        selection: How many to take, and which.
        filters: Which of them count.
        depth: The highest rank to consider among those that pass.
        sample: Draws random ranks, as `random.sample` does.
    """
    scores = found.scores if selection.include_positives else found.scores.masked_fill(found.is_positive, MISSING)
    passed = scores != MISSING
    candidates = int(passed.sum())
    dropped: dict[str, Tensor] = {}
    for name, mask in filters.dropped(scores, found.hardest).items():
        dropped[name] = (mask & passed).sum(1)
        passed &= ~mask
    scores = scores.masked_fill(~passed, MISSING)
    order = scores.argsort(dim=1, descending=True, stable=True)[:, filters.range_min : depth]
    k = selection.num_negatives
    if selection.sampling_strategy == "random":
        # One draw per query, in the order of sentence-transformers: the same seed gives the same ranks.
        numbers = (scores.gather(1, order) != MISSING).sum(1).clamp(min=k).tolist()
        order = order.gather(1, torch.tensor([sorted(sample(range(number), k=k)) for number in numbers]))
    scores, indices = scores.gather(1, order[:, :k]), found.indices.gather(1, order[:, :k])
    indices = indices.masked_fill(scores == MISSING, -1)
    return Part(found.first, indices, scores, found.positives, found.positive_scores, candidates, dropped)
