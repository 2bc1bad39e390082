"""The table of sizes counts what samplers hold."""

import pytest
import torch

from benchmarks.scale import Scale
from lookalike import LSHBatchSampler
from lookalike.samplers.composition import mine


@pytest.mark.parametrize("towers", [1, 2])
def test_bytes_are_those_of_a_sampler(towers):
    n = 512
    options = {"labels": torch.arange(n) // 2} if towers == 1 else {"labels": None, "pairs": n}
    sampler = LSHBatchSampler(batch_size=64, bits=512, warm_start=True, **options)
    scale = Scale(n, towers)
    x = torch.randn(n, 16, generator=torch.Generator().manual_seed(0))
    sampler.observe(torch.arange(n), **({"embeddings": x} if towers == 1 else {"query": x, "reference": x}))
    iter(sampler)
    how = sampler.composition
    mined = mine(sampler.memory, sampler.pairing, how.num_negatives, how.filters, None, with_values=False)
    assert sum(table.codes.nbytes for table in sampler.memory.tables.values()) == scale.codes
    assert mined.indices.nbytes == scale.lists
    assert sampler._current.composed.ids.nbytes == scale.batches


def test_a_rank_receives_what_the_others_found():
    assert Scale(1000, ranks=1).received == 0
    assert Scale(1000, ranks=4).received == 3 * (Scale(1000).lists + Scale(1000).batches) // 4
