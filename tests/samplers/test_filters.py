"""Samplers leave out excluded ids, and apply every other filter."""

import pytest
import torch

from lookalike import Filters, LSHBatchSampler, PreEpochBatchSampler
from lookalike.samplers.composition import mine

MAKERS = [
    lambda **options: LSHBatchSampler(None, 4, bits=64, **options),
    lambda **options: PreEpochBatchSampler(None, 4, mode="incremental", **options),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("seen", [40, 30])
def test_samplers_do_not_take_them_for_negatives(make, seen):
    torch.manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(20, 8), dim=1).repeat_interleave(2, dim=0)  # twins
    twins = torch.arange(40).view(-1, 2).flip(1).flatten()
    for exclude, met in ((None, True), ((torch.arange(41), twins), False)):
        sampler = make(pairs=40, filters=Filters(exclude=exclude))
        ids = torch.arange(seen)
        sampler.observe(ids, query=x[ids], reference=x[ids])
        sampler.memory.end_epoch(0)
        mined = mine(
            sampler.memory, sampler.pairing, 3, sampler.composition.filters, sampler.composition.filters.exclude
        )
        assert bool((mined.indices[:seen] == twins[:seen, None]).any()) == met
        assert bool((mined.indices[seen:] == -1).all())


@pytest.mark.parametrize("make", MAKERS)
def test_samplers_apply_score_filters(make):
    """Twins are too similar to be negatives, so no batch is made of them once they were observed."""
    torch.manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(20, 8), dim=1).repeat_interleave(2, dim=0)
    for filters, meet in ((Filters(), True), (Filters(max_score=0.99), False)):
        sampler = make(pairs=40, filters=filters)
        sampler.observe(torch.arange(40), query=x, reference=x)
        sampler.memory.end_epoch(0)
        near = mine(sampler.memory, sampler.pairing, 3, sampler.composition.filters, None).indices
        assert bool((near // 2 == torch.arange(40)[:, None] // 2).any()) == meet


def test_a_rank_window_without_room_is_refused():
    with pytest.raises(ValueError, match="must leave room for k=32 negatives"):
        LSHBatchSampler(None, 4, pairs=40, filters=Filters(range_max=10))
