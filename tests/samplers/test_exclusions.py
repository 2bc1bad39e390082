import numpy as np
import pytest
import torch

from lookalike import LSHBatchSampler
from lookalike.samplers import PreEpochBatchSampler
from lookalike.samplers.exclusions import Exclusions
from lookalike.search.cosine import cosine_topk


def random_lists(n, rng):
    lists = [rng.choice(n, rng.integers(0, 4), replace=False) for _ in range(n)]
    return [set(map(int, each)) for each in lists], (
        np.cumsum([0, *map(len, lists)]),
        np.concatenate(lists).astype(np.int64),
    )


@pytest.mark.parametrize("seed", range(5))
def test_against_sets(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    sets, lists = random_lists(n, rng)
    exclusions = Exclusions(lists, n)
    rows, columns = (torch.from_numpy(rng.permutation(n)[: rng.integers(1, n + 1)]) for _ in range(2))
    expected = [[c in sets[r] for c in columns.tolist()] for r in rows.tolist()]
    assert exclusions.mask(rows, columns).tolist() == expected
    offsets, places = exclusions.among(rows)
    for i, r in enumerate(rows.tolist()):
        found = {int(rows[place]) for place in places[offsets[i] : offsets[i + 1]]}
        assert found == sets[r] & set(rows.tolist())


def test_lists_of_another_length_are_refused():
    with pytest.raises(ValueError, match="exclude offsets must have length 5"):
        Exclusions(([0, 1, 2], [1, 0]), 4)
    with pytest.raises(ValueError, match="exclude ids must be between 0 and 1, got 0 to 7"):
        Exclusions(([0, 1, 2], [7, 0]), 2)


def test_exact_search_leaves_them_out():
    x = torch.nn.functional.normalize(torch.randn(30, 8), dim=1)
    exclude = torch.arange(31), torch.arange(30).roll(-1)  # each its successor
    found = cosine_topk(x, x, 29, query_labels=torch.arange(30), reference_labels=torch.arange(30), exclude=exclude)
    for i, row in enumerate(found.indices.tolist()):
        assert sorted(row[:28]) == sorted(set(range(30)) - {i, (i + 1) % 30})
        assert row[28] == -1


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: LSHBatchSampler(None, 4, bits=64, **options),
        lambda **options: PreEpochBatchSampler(None, 4, mode="incremental", **options),
    ],
)
@pytest.mark.parametrize("seen", [40, 30])
def test_samplers_do_not_take_them_for_negatives(make, seen):
    torch.manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(20, 8), dim=1).repeat_interleave(2, dim=0)  # twins
    twins = torch.arange(40).view(-1, 2).flip(1).flatten()
    for exclude, met in ((None, True), ((torch.arange(41), twins), False)):
        sampler = make(pairs=40, exclude=exclude)
        ids = torch.arange(seen)
        sampler.observe(ids, query=x[ids], reference=x[ids])
        sampler._end_epoch()
        near = sampler._search(3)
        assert bool((near[:seen] == twins[:seen, None]).any()) == met
        assert bool((near[seen:] == -1).all())
