"""What the warm starts of all trainers have in common."""

import contextlib
import random

import numpy as np
import pytest
import torch

from lookalike.integrations.warm_start import LARGEST, SMALLEST, embedding_batch, own_batches, undisturbed
from tests.ranks import on_ranks


def test_batches_to_embed_are_neither_small_nor_huge():
    assert embedding_batch(2) == SMALLEST
    assert embedding_batch(32) == 128
    assert embedding_batch(8192) == LARGEST


def shares(_rank, n):
    return own_batches(list(range(n)), 4)


@pytest.mark.parametrize("n", [1, 7, 16, 17])
def test_ranks_share_the_samples(n):
    assert sorted(i for batch in own_batches(list(range(n)), 4) for i in batch) == list(range(n))
    first, second = on_ranks(2, shares, n)
    assert [len(batch) for batch in first] == [len(batch) for batch in second]  # so that they stay in step
    assert {i for batch in first + second for i in batch} == set(range(n))
    assert all(len(set(batch)) == len(batch) for batch in first + second)


def draws():
    return random.random(), np.random.random(), torch.rand(3).tolist()  # noqa: NPY002 - what others draw from


@pytest.mark.parametrize("fails", [False, True])
def test_modes_and_random_numbers_are_as_before(fails):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5))
    model[1].eval()  # frozen, which must not be forgotten
    random.seed(0), np.random.seed(0), torch.manual_seed(0)  # noqa: NPY002 - as above
    expected = draws()
    random.seed(0), np.random.seed(0), torch.manual_seed(0)  # noqa: NPY002 - as above
    with contextlib.suppress(KeyboardInterrupt), undisturbed([model]):
        assert not torch.is_grad_enabled()
        assert not any(module.training for module in model.modules())
        draws()
        if fails:
            raise KeyboardInterrupt
    assert draws() == expected
    assert [module.training for module in model.modules()] == [True, True, False, True]
    assert torch.is_grad_enabled()
