from itertools import pairwise

import numpy as np
import pytest
import torch

from lookalike.search.cosine import cosine_topk
from lookalike.utils.lists import checked_lists, each_itself, lists_among, make_lists, take_lists


def rows_of(lists):
    offsets, ids = lists
    return [ids[first:last].tolist() for first, last in pairwise(offsets)]


@pytest.mark.parametrize("seed", range(5))
def test_against_sets(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    drawn = [rng.choice(n, min(n, rng.integers(0, 4)), replace=False).tolist() for _ in range(n)]
    lists = make_lists(drawn)
    assert rows_of(lists) == drawn
    checked = checked_lists("exclude", lists, n, n, torch.device("cpu"))
    assert rows_of(checked) == [sorted(row) for row in drawn]
    rows, columns = (torch.from_numpy(rng.permutation(n)[: rng.integers(1, n + 1)]) for _ in range(2))
    assert rows_of(take_lists(lists, rows)) == [drawn[row] for row in rows.tolist()]
    among = rows_of(lists_among(lists, rows, columns, n))
    named = [{int(columns[place]) for place in row} for row in among]
    assert named == [set(drawn[row]) & set(columns.tolist()) for row in rows.tolist()]


def test_no_rows():
    assert rows_of(make_lists([])) == []
    assert rows_of(each_itself(0)) == []


def test_lists_of_another_length_are_refused():
    cpu = torch.device("cpu")
    with pytest.raises(ValueError, match="exclude offsets must have length 5"):
        checked_lists("exclude", ([0, 1, 2], [1, 0]), 4, 4, cpu)
    with pytest.raises(ValueError, match="exclude ids must be between 0 and 1, got 0 to 7"):
        checked_lists("exclude", ([0, 1, 2], [7, 0]), 2, 2, cpu)
    with pytest.raises(TypeError, match="positives must be a pair"):
        checked_lists("positives", [1, 2, 3], 2, 2, cpu)


def test_exact_search_leaves_them_out():
    x = torch.nn.functional.normalize(torch.randn(30, 8), dim=1)
    exclude = torch.arange(31), torch.arange(30).roll(-1)  # each its successor
    found = cosine_topk(x, x, 29, query_labels=torch.arange(30), reference_labels=torch.arange(30), exclude=exclude)
    for i, row in enumerate(found.indices.tolist()):
        assert sorted(row[:28]) == sorted(set(range(30)) - {i, (i + 1) % 30})
        assert row[28] == -1
