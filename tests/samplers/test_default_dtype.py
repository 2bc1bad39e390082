"""Samplers keep what they keep in dtypes of their own, whatever dtype tensors have by default."""

import pytest
import torch

from lookalike import LSHBatchSampler, PreEpochBatchSampler

LABELS = torch.arange(300) // 2


@pytest.fixture(params=[torch.bfloat16, torch.float64], ids=str)
def default(request):
    """A dtype, as `from_pretrained` and scripts set one for a while."""
    yield request.param
    torch.set_default_dtype(torch.float32)


def batches_of(sampler, x):
    found = []
    for _ in range(3):
        for ids in sampler:
            sampler.observe(ids, x[ids])
            found.append(ids)
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda: LSHBatchSampler(LABELS, 60, bits="auto", max_bits=256),
        lambda: LSHBatchSampler(LABELS, 60, bits=128, code="scalar"),
        lambda: PreEpochBatchSampler(LABELS, 60, mode="incremental"),
    ],
    ids=["auto", "scalar", "floats"],
)
def test_batches_and_states_are_the_same(default, make):
    x = torch.randn(300, 16, generator=torch.manual_seed(0))
    expected = batches_of(make(), x)
    torch.set_default_dtype(default)
    sampler = make()
    assert batches_of(sampler, x) == expected
    make().load_state_dict(sampler.state_dict())
