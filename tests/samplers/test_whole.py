"""With shard="whole", batches, codes, neighbours and states are those of one process, whatever the number of ranks."""

import copy
import io
import logging

import numpy as np
import pytest
import torch
import torch.distributed as dist

from lookalike import Filters, LSHBatchSampler, PreEpochBatchSampler, RandomBatchSampler
from lookalike.samplers.composition import mine
from lookalike.search import load_kernel
from tests.ranks import on_ranks

N, DIM, EPOCHS = 150, 16, 3
LABELS = np.sort(np.arange(N) * 7919 % 41)  # 41 classes of three or four
SOME_ALONE = np.where(np.arange(N) % 30 == 0, 100 + np.arange(N), LABELS)
ONE_LARGE = np.where(np.arange(N) < 60, 0, LABELS)  # a class that positives are searched in
ONE_EXCLUDED = np.arange(N + 1), (np.arange(N) + 11) % N
MARGINS = Filters(range_min=1, relative_margin=0.05, max_score=0.95)

SAMPLERS = {
    "random": lambda: RandomBatchSampler(SOME_ALONE, 20, seed=3, self_pairs=True, shard="whole"),
    "labelled": lambda: LSHBatchSampler(LABELS, 20, bits=64, seed=1, shard="whole"),
    "margins": lambda: LSHBatchSampler(ONE_LARGE, 4, bits=64, filters=MARGINS, shard="whole"),
    "paired": lambda: LSHBatchSampler(
        np.arange(N) // 2, 12, pairs=N, bits=64, hardness=0.5, neighbourhood=3, drop_last=True, shard="whole"
    ),
    "paired, margins, exclusions": lambda: LSHBatchSampler(
        None, 16, pairs=N, bits=128, filters=Filters(exclude=ONE_EXCLUDED, absolute_margin=0.01), shard="whole"
    ),
    "sample4geo": lambda: LSHBatchSampler(
        LABELS, 16, bits=128, method="sample4geo", filters=Filters(exclude=ONE_EXCLUDED), shard="whole"
    ),
    "auto, guarded": lambda: LSHBatchSampler(
        None, 10, pairs=N, bits="auto", max_bits=256, k=8, guard=0.95, center=0.5, shard="whole"
    ),
    "guarded, filtered": lambda: LSHBatchSampler(
        LABELS, 8, bits=64, k=8, guard=0.9, filters=Filters(range_min=2), shard="whole"
    ),
    "warm": lambda: LSHBatchSampler(LABELS, 20, bits=64, warm_start=True, shard="whole"),
    "warm, judged": lambda: LSHBatchSampler(None, 10, pairs=N, bits=64, warm_start="auto", shard="whole"),
    "warm, not ready": lambda: LSHBatchSampler(LABELS, 20, bits=64, warm_start="auto", shard="whole"),
    "scalar": lambda: LSHBatchSampler(LABELS, 20, bits=64, code="scalar", guard=0.95, shard="whole"),
    "warm, scalar": lambda: LSHBatchSampler(None, 10, pairs=N, bits=128, code="scalar", shard="whole"),
    "incremental": lambda: PreEpochBatchSampler(SOME_ALONE, 20, mode="incremental", neighbourhood=5, shard="whole"),
    "incremental, margins": lambda: PreEpochBatchSampler(
        ONE_LARGE, 4, mode="incremental", filters=MARGINS, shard="whole"
    ),
    "full": lambda: PreEpochBatchSampler(
        None, 15, mode="full", pairs=N, filters=Filters(exclude=ONE_EXCLUDED), shard="whole"
    ),
}


def embeddings(epoch, tower):
    """Clusters of lookalikes that drift from epoch to epoch."""
    rng = np.random.default_rng([5, epoch, tower])
    centres = np.random.default_rng(6).normal(size=(25, DIM))[np.arange(N) % 25]
    x = centres + 0.4 * rng.normal(size=(N, DIM))
    return torch.from_numpy((x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32))


def towers(sampler, name, epoch, ids):
    if not sampler.paired:
        x = embeddings(epoch, 0)
        if name == "warm, not ready":
            x = x[torch.randperm(N, generator=torch.Generator().manual_seed(epoch))]
        return {"embeddings": x[ids]}
    return {"query": embeddings(epoch, 0)[ids], "reference": embeddings(epoch, 0 if "warm" in name else 1)[ids]}


def warm_up(sampler, name):
    if "warm" in name:
        for ids in torch.arange(N).split(40):
            sampler.observe(ids, **towers(sampler, name, 0, ids))


def train(sampler, name, epochs, stop=None):
    """The batches of some epochs; `stop` ends the last one after so many batches."""
    batches = []
    for epoch in range(epochs[0], epochs[1]):
        if isinstance(sampler, PreEpochBatchSampler) and sampler.mode == "full":
            sampler.refresh(**towers(sampler, name, epoch, slice(None)))
        for number, ids in enumerate(sampler):
            sampler.observe(ids, **towers(sampler, name, epoch, ids))
            batches.append(ids)
            if epoch == epochs[1] - 1 and number + 1 == stop:
                return batches
    return batches


def saved(sampler):
    file, state = io.BytesIO(), copy.deepcopy(sampler.state_dict())
    for kept in state["kept"].values():
        if isinstance(kept, dict) and kept.get("aside") and kept["aside"]["rows"] is not None:
            kept["aside"]["rows"][int(kept["aside"]["count"]) :] = 0  # never written, and never read
        if isinstance(kept, dict) and "plan" in kept:
            kept["plan"] = None  # rank 0 alone knows why it chose the bits
    torch.save(state, file)
    return file.getvalue()


def known(sampler):
    return [table.codes.tolist() for table in sampler.codes.values()] if isinstance(sampler, LSHBatchSampler) else None


def neighbours(sampler):
    found = mine(sampler.memory, sampler.pairing, 8, sampler.composition.filters, sampler.composition.exclude(N))
    return None if found is None else found.indices.tolist()


def everything(_rank):
    load_kernel()  # searches in place of matrix products
    results = {}
    for name, make in SAMPLERS.items():
        sampler = make()
        warm_up(sampler, name)
        batches = train(sampler, name, (0, EPOCHS))
        results[name] = {
            "batches": batches,
            "length": len(sampler),
            "outcome": sampler.warm_start.outcome,
            "bits": getattr(sampler, "bits", None),
            "state": saved(sampler),
            "known": known(sampler),
            "neighbours": neighbours(sampler),
        }
    return results


@pytest.fixture(scope="module")
def alone():
    return on_ranks(1, everything)[0]


@pytest.fixture(scope="module")
def together():
    return {world_size: on_ranks(world_size, everything) for world_size in (2, 3)}


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("name", SAMPLERS)
def test_every_rank_has_what_one_process_has(alone, together, name, world_size):
    for result in together[world_size]:
        for what, value in alone[name].items():
            assert result[name][what] == value, what


def test_the_scenarios_are_those_that_they_are_named_after(alone):
    assert alone["warm"]["outcome"] == "used"
    assert alone["warm, judged"]["outcome"] == "used"
    assert alone["warm, not ready"]["outcome"] == "not ready"
    assert alone["auto, guarded"]["bits"] < 256


def resumed(_rank, name, state, epoch):
    """The rest of a run: of the epoch that the state was taken in, and of those after it."""
    sampler, heard = SAMPLERS[name](), Messages()
    logging.getLogger("lookalike").addHandler(heard)
    sampler.load_state_dict(torch.load(io.BytesIO(state), weights_only=True))
    logging.getLogger("lookalike").removeHandler(heard)
    return train(sampler, name, (epoch, EPOCHS)), heard.texts, saved(sampler)


class Messages(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def stopped(_rank, name, epochs, stop):
    sampler = SAMPLERS[name]()
    warm_up(sampler, name)
    return len(train(sampler, name, epochs, stop)), saved(sampler)


@pytest.mark.parametrize(("epochs", "stop"), [((0, 1), 2), ((0, 2), 3), ((0, 2), None)])
@pytest.mark.parametrize("name", ["margins", "auto, guarded", "warm", "scalar", "warm, scalar", "incremental"])
def test_a_state_of_two_ranks_goes_on_with_any_number(alone, name, epochs, stop):
    (done, state), (_, other) = on_ranks(2, stopped, name, epochs, stop)
    assert state == other
    for world_size in (1, 2, 3):
        first_epoch = epochs[1] - 1 if stop else epochs[1]
        for rest, heard, end in on_ranks(world_size, resumed, name, state, first_epoch):
            assert rest == alone[name]["batches"][done:]
            assert heard == []
            assert end == alone[name]["state"]


def observe_shares_only(rank):
    sampler = LSHBatchSampler(LABELS, 20, bits=64, shard="whole")
    for ids in sampler:
        own = ids[rank::2]
        sampler.observe(own, embeddings(0, 0)[own])
    with pytest.raises(ValueError, match="the ranks have observed different samples") as caught:
        iter(sampler)
    return str(caught.value)


def test_ranks_that_observe_shares_are_told():
    first, second = on_ranks(2, observe_shares_only)
    assert first == second
    assert 'shard="whole"' in first


def move(_rank, batch_size, state, synchronize):
    sampler, heard = LSHBatchSampler(LABELS, batch_size, bits=64), Messages()
    if state is not None:
        logging.getLogger("lookalike").addHandler(heard)
        sampler.load_state_dict(torch.load(io.BytesIO(state), weights_only=True))
        logging.getLogger("lookalike").removeHandler(heard)
    batches = []
    for number, ids in enumerate(sampler):
        sampler.observe(ids, embeddings(0, 0)[ids])
        batches.append(ids)
        if state is None and number == 1:
            break
    if synchronize:
        sampler.synchronize()
    return batches, saved(sampler), heard.texts, len(sampler)


@pytest.mark.parametrize(("before", "after"), [((2, 12), (3, 8)), ((3, 8), (1, 24)), ((1, 24), (2, 12))])
@pytest.mark.parametrize("synchronize", [True, False])
def test_a_state_of_shares_moves_to_other_ranks_with_the_same_pairs_in_all(before, after, synchronize):
    (_, state, *_), *_ = first = on_ranks(before[0], move, before[1], None, synchronize)
    second = on_ranks(after[0], move, after[1], state, False)
    seen = [i for batches, *_ in first + second for batch in batches for i in batch]
    assert set(seen) == set(range(N))
    lost = before[0] > 1 and not synchronize
    for _, _, heard, length in second:
        assert len(heard) == lost
        assert length == first[0][3]


def refuse(_rank, batch_size, state):
    sampler = LSHBatchSampler(LABELS, batch_size, bits=64)
    with pytest.raises(ValueError, match="the state is of another sampler: ") as caught:
        sampler.load_state_dict(torch.load(io.BytesIO(state), weights_only=True))
    return str(caught.value)


def test_another_number_of_pairs_in_all_is_refused():
    state = on_ranks(2, move, 12, None, True)[0][1]
    assert "total batch_size was 24, here it is 36" in on_ranks(3, refuse, 12, state)[0]


@pytest.mark.parametrize("shard", ["half", None, 2])
def test_other_values_of_shard_are_refused(shard):
    with pytest.raises(ValueError, match='shard must be True, False or "whole"'):
        RandomBatchSampler(LABELS, 20, shard=shard)


def few_pairs(_rank):
    sampler = LSHBatchSampler(None, 2, pairs=2, bits=64, shard="whole")
    return [train_few(sampler) for _ in range(3)], dist.get_world_size()


def train_few(sampler):
    batches = []
    for ids in sampler:
        sampler.observe(ids, query=embeddings(0, 0)[ids], reference=embeddings(0, 1)[ids])
        batches.append(ids)
    return batches


def test_fewer_samples_than_ranks():
    (alone, _), *_ = on_ranks(1, few_pairs)
    assert [batches for batches, _ in on_ranks(3, few_pairs)] == [alone] * 3
