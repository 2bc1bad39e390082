"""Samplers leave out excluded ids, and apply every other filter."""

import pytest
import torch

from lookalike import Filters, LSHBatchSampler, PreEpochBatchSampler
from lookalike.samplers import EpochBatchSampler, FloatMemory, Guard, Labelled
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


def test_a_narrow_rank_window_gives_fewer_negatives():
    sampler = LSHBatchSampler(None, 4, pairs=40, filters=Filters(range_min=2, range_max=10))
    assert sampler.composition.num_negatives == 8


def test_filters_and_hardness_may_change_between_epochs():
    x = torch.nn.functional.normalize(torch.randn(40, 8, generator=torch.manual_seed(0)), dim=1)
    sampler = LSHBatchSampler(None, 4, pairs=40, bits=64)
    for ids in sampler:
        sampler.observe(ids, query=x[ids], reference=x[ids])
    before = sampler.state_dict()["adjustable"]
    sampler.hardness = 0.5
    sampler.composition.filters = Filters(exclude=(torch.arange(41), torch.arange(40).roll(1)))
    after = sampler.state_dict()["adjustable"]
    assert {name for name in before if before[name] != after[name]} == {"hardness", "exclude (checksum)"}
    with pytest.raises(ValueError, match="hardness"):
        sampler.hardness = 2.0


@pytest.mark.parametrize("filters", [Filters(), Filters(max_score=0.9), Filters(range_min=4)])
def test_the_guard_sees_what_filters_hide(filters, caplog):
    """Ten pairs of labels share a cluster each; the guard finds them whatever the filters leave to mine."""
    generator = torch.manual_seed(0)
    centres = torch.randn(10, 32, generator=generator).repeat_interleave(8, 0)
    x = torch.nn.functional.normalize(centres + 0.05 * torch.randn(80, 32, generator=generator), dim=1)
    labels = torch.arange(80) // 4
    sampler = LSHBatchSampler(labels, 8, bits=256, guard=0.8, filters=filters)
    with caplog.at_level("INFO", "lookalike"):
        for _ in range(2):
            for ids in sampler:
                sampler.observe(ids, x[ids])
    assert "the guard merged 10 of 20 labels" in caplog.text


def test_a_guard_needs_codes():
    pairing = Labelled(torch.arange(8) // 2)
    with pytest.raises(ValueError, match="guard compares codes: it needs a memory of codes"):
        EpochBatchSampler(pairing, 4, memory=FloatMemory(pairing, seed=0, observes=True), guard=Guard(0.9))
