"""Ranks that differ are told so on every rank, and what they observed survives a checkpoint of one of them."""

import logging

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from lookalike import Filters, LSHBatchSampler, PreEpochBatchSampler, RandomBatchSampler
from lookalike.data.synthetic import clustered_embeddings
from tests.ranks import on_ranks

N = 400
LABELS = np.arange(N) // 2

DIFFERENT = {  # (what the sampler of each rank is, what the error names)
    "seed": (lambda rank: LSHBatchSampler(LABELS, 8, bits=64, seed=rank), "seed is 0 on rank 0, 1 on rank 1"),
    "labels": (lambda rank: LSHBatchSampler(np.roll(LABELS, rank), 8, bits=64), "labels (checksum) is "),
    "hardness": (lambda rank: LSHBatchSampler(LABELS, 8, bits=64, hardness=1 - rank / 2), "hardness is 1.0 on rank 0"),
    "batch_size": (lambda rank: LSHBatchSampler(LABELS, 8 + 6 * rank, bits=64), "batch_size is 8 on rank 0, 14 on"),
    "bits": (lambda rank: LSHBatchSampler(LABELS, 8, bits=64 + 64 * rank), "bits is 64 on rank 0, 128 on rank 1"),
    "code": (
        lambda rank: LSHBatchSampler(LABELS, 8, bits=64, code="scalar" if rank else "signs"),
        "code is signs on rank 0, scalar on rank 1",
    ),
    "auto": (lambda rank: LSHBatchSampler(LABELS, 8, bits="auto" if rank else 64), "bits is 64 on rank 0, auto on"),
    "kind": (
        lambda rank: RandomBatchSampler(LABELS, 8) if rank else LSHBatchSampler(LABELS, 8, bits=64),
        "kind is LSHBatchSampler on rank 0, RandomBatchSampler on rank 1",
    ),
    "paired": (
        lambda rank: LSHBatchSampler(None if rank else LABELS, 8, pairs=N if rank else None, bits=64),
        "paired is False on rank 0, True on rank 1",
    ),
    "exclude": (
        lambda rank: LSHBatchSampler(
            LABELS, 8, bits=64, filters=Filters(exclude=(np.arange(N + 1), np.arange(N)) if rank else None)
        ),
        "exclude (checksum) is None on rank 0",
    ),
    "warm_start": (
        lambda rank: LSHBatchSampler(LABELS, 8, bits=64, warm_start="auto" if rank else False),
        "warm_start is False on rank 0, auto on rank 1",
    ),
    "shard": (lambda rank: LSHBatchSampler(LABELS, 8, bits=64, shard=bool(rank)), "shard is False on rank 0, True on"),
}


def differing_ranks(rank):
    messages = {}
    for name, (make, _) in DIFFERENT.items():
        with pytest.raises(ValueError, match="the ranks' samplers differ") as caught:
            iter(make(rank))
        messages[name] = str(caught.value)
    dims = LSHBatchSampler(LABELS, 8, bits=64)
    for ids in dims:
        dims.observe(ids, torch.randn(len(ids), 8 + 8 * rank))
    with pytest.raises(ValueError, match="the embeddings' dimension is 8 on rank 0, 16 on rank 1"):
        iter(dims)
    resumed = LSHBatchSampler(LABELS, 8, bits=64)
    next(iter(resumed))
    other = LSHBatchSampler(LABELS, 8, bits=64)
    if rank == 0:
        other.load_state_dict(resumed.state_dict())
    with pytest.raises(ValueError, match="restored is True on rank 0, False on rank 1"):
        iter(other)
    assert len(list(resumed)) == len(resumed)  # the ranks can still talk to each other
    return messages


def observed_epoch(sampler, x):
    batches = []
    for ids in sampler:
        if sampler.paired:
            sampler.observe(ids, query=x[ids], reference=x[ids])
        else:
            sampler.observe(ids, x[ids])
        batches.append(ids)
    return batches


def make(kind):
    if kind == "lsh":
        return LSHBatchSampler(LABELS, 8, bits=64)
    if kind == "auto":
        return LSHBatchSampler(None, 8, pairs=N, bits="auto", max_bits=128, k=8)
    return PreEpochBatchSampler(LABELS, 8, mode="incremental")


class Messages(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def from_the_first(sampler):
    states = [sampler.state_dict() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(states, src=0)
    return states[0]


def checkpoints_of_one_rank():
    """Rank 0 saves at the end of an epoch or in its middle, with and without synchronize(); both ranks load that."""
    x, _ = clustered_embeddings(N, dim=16, seed=0)
    results = {}
    for kind in ("lsh", "auto", "incremental"):
        undisturbed = make(kind)
        expected = [observed_epoch(undisturbed, x) for _ in range(3)]
        for synchronize in (True, False):
            saved, restored, heard = make(kind), make(kind), Messages()
            observed_epoch(saved, x)
            if synchronize:
                saved.synchronize()
            state = from_the_first(saved)
            logging.getLogger("lookalike").addHandler(heard)
            restored.load_state_dict(state)
            second = observed_epoch(restored, x)
            logging.getLogger("lookalike").removeHandler(heard)
            third = observed_epoch(restored, x)
            results[kind, synchronize] = (second == expected[1], third == expected[2], heard.texts)
    return results


def one_sum_is_not_counted_twice():
    """The mean by which the next epoch is centred counts every sample once, whoever saved."""
    x, _ = clustered_embeddings(N, dim=16, seed=0)
    counts = []
    for synchronize in (True, False):
        saved, restored = make("lsh"), make("lsh")
        batches = iter(saved)
        for number, ids in enumerate(batches):
            saved.observe(ids, x[ids])
            if number == len(saved) // 2 - 1:
                break
        if synchronize:
            saved.synchronize()
        restored.load_state_dict(from_the_first(saved))
        observed_epoch(restored, x)
        iter(restored)
        counts.append(int(restored.state_dict()["kept"]["embeddings"]["hasher"]["count"]))
    return counts


def unseen_warnings():
    heard = Messages()
    logging.getLogger("lookalike").addHandler(heard)
    x = torch.randn(203, 16)
    sampler = LSHBatchSampler(np.arange(203) // 7, 8, bits=64, drop_last=True)
    for _ in range(3):
        observed_epoch(sampler, x)
    logging.getLogger("lookalike").removeHandler(heard)
    return heard.texts


class Rows(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return i, self.x[i]


def accelerate_epochs():
    """With accelerate as it comes (`even_batches=True`): epochs whose last batch is short, and odd numbers of them."""
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    results = {}
    for paired, n, batch_size in [(False, 90, 8), (True, 90, 8), (True, 50, 16), (False, 84, 4), (True, 7, 2)]:
        x, _ = clustered_embeddings(n, dim=16, seed=0)
        labels = None if paired else torch.arange(n) // 3
        sampler = LSHBatchSampler(labels, batch_size, pairs=n if paired else None, bits=64, shard=False)
        loader = accelerator.prepare(DataLoader(Rows(x), batch_sampler=sampler))
        epochs = []
        for _ in range(4):
            batches = []
            for ids, rows in loader:
                if paired:
                    sampler.observe(ids, query=rows, reference=rows)
                else:
                    sampler.observe(ids, rows)
                batches.append(ids.tolist())
            epochs.append(batches)
        results[paired, n, batch_size] = epochs, len(loader)
    return results


def everything(rank):
    return {
        "different": differing_ranks(rank),
        "checkpoints": checkpoints_of_one_rank(),
        "counts": one_sum_is_not_counted_twice(),
        "unseen": unseen_warnings(),
        "accelerate": accelerate_epochs(),
    }


@pytest.fixture(scope="module")
def results():
    """All scenarios in one pair of processes: starting them takes longer than the scenarios."""
    return on_ranks(2, everything)


@pytest.mark.parametrize("name", sorted(DIFFERENT))
def test_ranks_that_differ_are_told_what_differs(results, name):
    first, second = (result["different"][name] for result in results)
    assert first == second
    assert DIFFERENT[name][1] in first
    assert "same arguments on every rank" in first


@pytest.mark.parametrize("kind", ["lsh", "auto", "incremental"])
def test_after_synchronize_the_checkpoint_of_one_rank_is_complete(results, kind):
    for result in results:
        assert result["checkpoints"][kind, True] == (True, True, [])


@pytest.mark.parametrize("kind", ["lsh", "auto", "incremental"])
def test_without_it_the_loading_ranks_are_told(results, kind):
    first, second = (result["checkpoints"][kind, False][2] for result in results)
    assert first == []  # its own state is complete
    (message,) = second
    assert message.startswith("the state was saved by rank 0 alone: what other ranks had observed in epoch 0 is lost")
    assert "synchronize()" in message


def test_every_sample_counts_once_in_the_mean(results):
    batches_lost = N // 16 // 2  # those of rank 1 in the first half of the epoch
    assert results[0]["counts"] == results[1]["counts"] == [N, N - 8 * batches_lost]


def test_what_was_left_out_is_no_surprise_on_any_rank(results):
    assert [result["unseen"] for result in results] == [[], []]


def test_accelerate_with_its_default_settings(results):
    first, second = (result["accelerate"] for result in results)
    for (paired, n, size), (epochs, length) in first.items():
        for mine, theirs in zip(epochs, second[paired, n, size][0], strict=True):
            assert len(mine) == len(theirs) == length > 0
            ids = [i for batch in mine + theirs for i in batch]
            assert len(set(ids)) >= len(ids) - (0 if paired else n // 3)  # an odd one out borrows a partner
            for batch in mine + theirs:
                assert len(batch) == size
                assert len(set(batch)) == size
                labels = batch if paired else [i // 3 for i in batch[::2]]
                assert len(set(labels)) == len(labels)
