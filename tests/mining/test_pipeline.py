"""Codes -> candidates -> filters -> negatives, against a plain loop over all references."""

import math
from dataclasses import replace

import pytest
import torch

from lookalike import Filters
from lookalike.mining import Search, Selection
from lookalike.mining.pipeline import MISSING, Problem, Side
from lookalike.utils.lists import make_lists, row_numbers

BITS = 64
N, M = 23, 90


@pytest.fixture(scope="module")
def problem():
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 256, (N + M, BITS // 8), generator=generator, dtype=torch.uint8)
    codes[N + 40 : N + 60] = codes[N : N + 20]  # duplicates, and ties
    lists = make_lists([[i, 40 + i, 80] if i % 4 else [] for i in range(N)])
    return Problem(Side(codes[:N], None), Side(codes[N:], None), lists, most_positives=3)


def mined(problem, filters, selection=None, **options):
    parts = list(problem.mine(selection or Selection(), filters, Search(bits=BITS, rescore=False), **options))
    return torch.cat([part.indices for part in parts]), torch.cat([part.scores for part in parts]), parts


def cosine(a, b):
    return math.cos(math.pi * sum((x ^ y).bit_count() for x, y in zip(a, b, strict=True)) / BITS)


def plain_scores(problem, filters, k, excluded):
    """The scores of the negatives of each query: the best that pass, among the ranks that are considered."""
    queries, reference = problem.queries.codes.tolist(), problem.reference.codes.tolist()
    offsets, ids = (part.tolist() for part in problem.positives)
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
def test_negatives_are_those_of_a_plain_loop(problem, filters, at_a_time, excludes):
    filters = Filters(range_max=M, **filters)
    excluded = [[(i + j) % M for j in range(0, 50, 1 + i % 3)] if excludes else [] for i in range(N)]
    if excludes:  # some of them positives
        problem = replace(problem, exclude=make_lists(excluded))
    indices, scores, parts = mined(problem, filters, device=torch.device("cpu"), queries_at_a_time=at_a_time)
    assert [part.first for part in parts] == list(range(0, N, at_a_time))
    for i, wanted in enumerate(plain_scores(problem, filters, 3, excluded)):
        there = indices[i] >= 0
        assert torch.equal(there, scores[i] != MISSING)
        torch.testing.assert_close(scores[i][there], torch.tensor(wanted), atol=1e-6, rtol=0)
        query, reference = problem.queries.codes[i].tolist(), problem.reference.codes[indices[i][there]].tolist()
        assert scores[i][there].tolist() == pytest.approx([cosine(query, code) for code in reference], abs=1e-6)
        assert not {*indices[i].tolist()} & {*excluded[i]}


def test_labels_keep_rows_of_one_class_apart(problem):
    side = problem.reference
    labels = torch.arange(M) // 3
    nothing = make_lists([[] for _ in range(M)])
    own = Problem(side, side, nothing, most_positives=0, labels=labels)
    indices, _, _ = mined(own, Filters(), device=torch.device("cpu"))
    assert not (labels[indices] == labels[:, None]).any()


def test_a_judge_scores_candidates_and_positives_anew(problem):
    """The filters see its scores, and the best of the candidates by bits stay the candidates."""

    def judge(found):
        scores = torch.where(found.indices >= 0, found.indices / M, MISSING)
        return replace(found, scores=scores, positive_scores=found.positives[1] / M)

    filters = Filters(max_score=0.5)
    indices, scores, parts = mined(problem, filters, device=torch.device("cpu"), judge=judge)
    there = indices >= 0
    assert bool((indices[there] <= M / 2).all())
    torch.testing.assert_close(scores[there], indices[there] / M)
    assert bool((scores.diff(dim=1)[there[:, 1:]] <= 0).all())
    (part,) = parts
    torch.testing.assert_close(part.positive_scores, part.positives[1] / M)
    assert len(row_numbers(part.positives)) == len(part.positive_scores)


def test_positives_may_stay_among_the_candidates(problem):
    selection = Selection(num_negatives=M, include_positives=True)
    indices, _, _ = mined(problem, Filters(), selection, device=torch.device("cpu"))
    assert all(sorted(row) == list(range(M)) for row in indices.tolist())


def test_random_negatives_come_from_the_ranks_that_are_left(problem):
    top, _, _ = mined(problem, Filters(), Selection(num_negatives=12), device=torch.device("cpu"))
    selection = Selection(num_negatives=3, sampling_strategy="random", seed=1)
    filters = Filters(range_min=2, range_max=12)
    drawn = [mined(problem, filters, selection, device=torch.device("cpu"))[0] for _ in range(2)]
    assert torch.equal(*drawn)
    assert all({*some} <= {*ranks} for some, ranks in zip(drawn[0].tolist(), top[:, 2:].tolist(), strict=True))
