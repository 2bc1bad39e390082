import numpy as np
import pytest
import torch

from lookalike import LSHBatchSampler
from lookalike.data.synthetic import clustered_embeddings
from lookalike.samplers.arrivals import Gathering


@pytest.mark.parametrize("size", [1, 3, 10, 11, 25])
def test_everything_comes_out_once_and_in_order(size):
    gathering = Gathering(10)
    x, ids = torch.randn(100, 4), torch.randperm(100)
    chunks = []
    for first in range(0, 100, size):
        part = slice(first, first + size)
        chunks += [(some.clone(), rows.clone()) for some, rows in gathering.add(ids[part], x[part])]
    assert all(len(some) == 10 for some, _ in chunks)
    chunks += list(gathering.take())
    assert torch.equal(torch.cat([some for some, _ in chunks]), ids)
    assert torch.equal(torch.cat([rows for _, rows in chunks]), x)
    assert list(gathering.take()) == []


def test_another_precision_begins_anew():
    gathering = Gathering(10)
    assert list(gathering.add(torch.arange(3), torch.ones(3, 4))) == []
    (chunk,) = gathering.add(torch.arange(3, 5), torch.ones(2, 4, dtype=torch.float64))
    assert chunk[0].tolist() == [0, 1, 2]
    assert next(gathering.take())[1].dtype == torch.float64


@pytest.mark.parametrize("stop", [1, 4, 9])
def test_a_state_holds_what_is_put_aside(stop):
    """A resumed run hashes the same rows together, so its codes are equal, those of the first epoch included."""
    x, _ = clustered_embeddings(240, dim=16, offset=1.0)

    def sampler():
        made = LSHBatchSampler(np.arange(240) // 2, 24, bits=64)
        made.memory.streams["embeddings"].gathering = Gathering(100)
        return made

    whole, first = sampler(), sampler()
    for ids in whole:
        whole.observe(ids, x[ids])
    for step, ids in enumerate(first, 1):
        first.observe(ids, x[ids])
        if step == stop:
            break
    second = sampler()
    second.load_state_dict(first.state_dict())
    for ids in second:
        second.observe(ids, x[ids])
    for each in (whole, second):
        each.memory.streams["embeddings"].flush()
    tables = [each.codes["embeddings"].codes for each in (whole, second)]
    assert torch.equal(*tables)


def test_rows_of_a_checkpoint_move_to_the_device_of_the_next_batch():
    gathering = Gathering(10)
    assert list(gathering.add(torch.arange(3), torch.ones(3, 4))) == []
    assert list(gathering.add(torch.arange(3), torch.ones(3, 4, device="meta"))) == []  # nothing was hashed early
    assert int(gathering.count) == 6
    assert gathering.rows.device.type == "meta"
