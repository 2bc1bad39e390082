"""Codes -> candidates -> filters -> negatives, against a plain loop over all references."""

import itertools
import math
import random
from dataclasses import replace

import pytest
import torch

from lookalike import Filters
from lookalike.mining import Search, Selection, pipeline
from lookalike.mining.pipeline import MISSING, Likely, Pipeline, joined_parts, sampler
from lookalike.search import hamming_topk
from lookalike.utils.lists import joined_lists, make_lists, row_numbers

BITS = 64
N, M = 23, 90


@pytest.fixture(scope="module")
def codes():
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 256, (N + M, BITS // 8), generator=generator, dtype=torch.uint8)
    codes[N + 40 : N + 60] = codes[N : N + 20]  # duplicates, and ties
    return codes[:N], codes[N:]


POSITIVES = make_lists([[i, 40 + i, 80] if i % 4 else [] for i in range(N)])


class Scored:
    """Scores codes by the cosines that they imply."""

    def __init__(self, queries, reference):
        self.queries, self.reference = queries.tolist(), reference.tolist()

    def of_lists(self, places, ids, distances):
        return torch.cos(distances * math.pi / BITS)

    def of_pairs(self, places, ids):
        pairs = zip(places.tolist(), ids.tolist(), strict=True)
        return torch.tensor([cosine(self.queries[place], self.reference[i]) for place, i in pairs])


def mined(codes, filters, selection=None, exclude=None, **options):
    queries, reference = codes
    chosen = selection or Selection()
    made = Pipeline(chosen, filters, Search(bits=BITS, rescore="codes", code="signs"), 3, **options)
    left_out = POSITIVES if exclude is None else joined_lists(POSITIVES, exclude)
    found = hamming_topk(queries, reference, min(made.shortlist, M), exclude=_ascending(left_out))

    scorer = Scored(queries, reference)
    parts = list(made.parts(0, found, POSITIVES, scorer, sampler(chosen.seed, 0)))
    return torch.cat([part.indices for part in parts]), torch.cat([part.scores for part in parts]), parts


def _ascending(lists):
    offsets, ids = (each.tolist() for each in lists)
    return make_lists([sorted({*ids[a:b]}) for a, b in itertools.pairwise(offsets)])


def cosine(a, b):
    return math.cos(math.pi * sum((x ^ y).bit_count() for x, y in zip(a, b, strict=True)) / BITS)


def plain_scores(codes, filters, k, excluded):
    """The scores of the negatives of each query: the best that pass, among the ranks that are considered."""
    queries, reference = (each.tolist() for each in codes)
    offsets, ids = (part.tolist() for part in POSITIVES)
    found = []
    for i, query in enumerate(queries):
        positives = ids[offsets[i] : offsets[i + 1]]
        scores = [cosine(query, code) for code in reference]
        lowest = min((scores[j] for j in positives), default=math.inf)
        kept = [
            score
            for j, score in enumerate(scores)
            if j not in positives and j not in excluded[i]
            if filters.max_score is None or score <= filters.max_score
            if filters.absolute_margin is None or score + filters.absolute_margin <= lowest
        ]
        found.append(sorted(kept, reverse=True)[filters.range_min :][:k])
    return found


@pytest.mark.parametrize("at_a_time", [5, 1000])
@pytest.mark.parametrize("filters", [{}, {"max_score": 0.2}, {"absolute_margin": 0.05}, {"range_min": 4}], ids=str)
@pytest.mark.parametrize("excludes", [False, True])
def test_negatives_are_those_of_a_plain_loop(codes, monkeypatch, filters, at_a_time, excludes):
    monkeypatch.setattr(pipeline, "SCORES_IN_MEMORY", at_a_time * (M + 3))
    filters = Filters(range_max=M, **filters)
    excluded = [[(i + j) % M for j in range(0, 50, 1 + i % 3)] if excludes else [] for i in range(N)]
    indices, scores, parts = mined(codes, filters, exclude=make_lists(excluded))  # some of them positives
    assert [part.first for part in parts] == list(range(0, N, at_a_time))
    for i, wanted in enumerate(plain_scores(codes, filters, 3, excluded)):
        there = indices[i] >= 0
        assert torch.equal(there, scores[i] != MISSING)
        torch.testing.assert_close(scores[i][there], torch.tensor(wanted), atol=1e-6, rtol=0)
        query, reference = codes[0][i].tolist(), codes[1][indices[i][there]].tolist()
        assert scores[i][there].tolist() == pytest.approx([cosine(query, code) for code in reference], abs=1e-6)
        assert not {*indices[i].tolist()} & {*excluded[i]}
    whole = joined_parts(parts)
    assert torch.equal(whole.indices, indices)
    assert all(torch.equal(*both) for both in zip(whole.positives, POSITIVES, strict=True))


def test_a_cross_encoder_scores_candidates_and_positives_anew(codes):
    """The filters see its scores, and the best of the candidates by bits stay the candidates."""

    def scored(found):
        scores = torch.where(found.indices >= 0, found.indices / M, MISSING)
        return replace(found, scores=scores, positive_scores=found.positives[1] / M)

    indices, scores, parts = mined(codes, Filters(max_score=0.5), scored_by=scored)
    there = indices >= 0
    assert bool((indices[there] <= M / 2).all())
    torch.testing.assert_close(scores[there], indices[there] / M)
    assert bool((scores.diff(dim=1)[there[:, 1:]] <= 0).all())
    (part,) = parts
    torch.testing.assert_close(part.positive_scores, part.positives[1] / M)
    assert len(row_numbers(part.positives)) == len(part.positive_scores)


def test_what_a_judge_takes_for_positives_is_dropped_before_the_filters(codes):
    class Even:
        def decide(self, found):
            likely = (found.indices % 2 == 0) & ~found.is_positive & (found.scores != MISSING)
            rows = likely.nonzero()[:, 0]
            one = torch.ones(len(rows))
            return likely, Likely(rows + found.first, found.indices[likely], found.scores[likely], one, one)

    indices, _, (part,) = mined(codes, Filters(range_max=30), judge=Even())
    assert bool((indices[indices >= 0] % 2 == 1).all())
    assert next(iter(part.dropped)) == "judge"
    assert int(part.dropped["judge"].sum()) == len(part.likely.ids) > 0
    assert torch.equal(part.likely.queries.bincount(minlength=N), part.dropped["judge"])


def test_positives_may_stay_among_the_candidates(codes):
    indices, _, _ = mined(codes, Filters(), Selection(num_negatives=M, include_positives=True))
    assert all(sorted(row) == list(range(M)) for row in indices.tolist())


def test_random_negatives_come_from_the_ranks_that_are_left(codes):
    top, _, _ = mined(codes, Filters(), Selection(num_negatives=12))
    selection = Selection(num_negatives=3, sampling_strategy="random", seed=1)
    drawn = [mined(codes, Filters(range_min=2, range_max=12), selection)[0] for _ in range(2)]
    assert torch.equal(*drawn)
    assert all({*some} <= {*ranks} for some, ranks in zip(drawn[0].tolist(), top[:, 2:].tolist(), strict=True))


def test_blocks_draw_from_a_seed_in_any_order_and_without_one_from_the_global_generator():
    draws = [[sampler(7, block)(range(1000), k=5) for block in order] for order in ((0, 1, 2), (2, 0, 1))]
    assert draws[0] == [draws[1][1], draws[1][2], draws[1][0]]
    assert len({tuple(drawn) for drawn in draws[0]}) == 3
    assert draws[0][0] == random.Random(7).sample(range(1000), k=5)
    random.seed(3)
    expected = random.Random(3).sample(range(1000), k=5)
    assert sampler(None, 4)(range(1000), k=5) == expected
