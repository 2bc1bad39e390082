"""Several ranks, as real gloo processes: equal counts, nothing twice, the same batches as composed together."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from lookalike import LSHBatchSampler, PreEpochBatchSampler
from lookalike.data.synthetic import clustered_embeddings
from tests.ranks import on_ranks


def run_sampler(_rank, kind, n, batch_size, paired, drop_last):
    x, labels = clustered_embeddings(n, dim=16, seed=0)
    labels = torch.arange(n) // 3
    options = {"drop_last": drop_last, "pairs": n if paired else None}
    make = LSHBatchSampler if kind == "lsh" else PreEpochBatchSampler
    options |= {"bits": 64} if kind == "lsh" else {"mode": "incremental"}
    sampler = make(None if paired else labels, batch_size, **options)
    epochs = []
    for _ in range(3):
        length, batches = len(sampler), []
        for ids in sampler:
            if paired:
                sampler.observe(ids, query=x[ids], reference=x[ids])
            else:
                sampler.observe(ids, x[ids])
            batches.append(ids)
        assert len(batches) == length
        epochs.append(batches)
    list(sampler)
    known = next(iter(sampler.codes.values())).codes.tolist() if kind == "lsh" else None
    return epochs, known


@pytest.mark.parametrize(
    ("world_size", "kind", "n", "batch_size", "paired", "drop_last"),
    [(2, "lsh", 203, 6, False, False), (3, "lsh", 100, 7, True, False), (3, "exact", 121, 4, False, True)],
)
def test_ranks_share_every_epoch(world_size, kind, n, batch_size, paired, drop_last):
    results = on_ranks(world_size, run_sampler, kind, n, batch_size, paired, drop_last)
    for epoch in range(3):
        shares = [epochs[epoch] for epochs, _ in results]
        assert len({len(share) for share in shares}) == 1
        width = 1 if paired else 2
        labels = np.arange(n) if paired else np.arange(n) // 3
        for batch in zip(*shares, strict=True):
            sizes = [len(part) for part in batch]
            assert min(sizes) >= width
            assert max(sizes) - min(sizes) <= width
            pairs = [part[i] for part in batch for i in range(0, len(part), width)]
            assert len(set(labels[pairs])) == len(pairs)  # no label twice in the global batch
        everything = [i for share in shares for batch in share for i in batch]
        if paired:
            assert sorted(everything) == list(range(n))
        elif not drop_last:
            singles = n % 3 == 1
            assert set(everything) == set(range(n - singles))
    if kind == "lsh":
        assert all(known == results[0][1] for _, known in results)


class Rows(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return i, self.x[i]


def train_with_ddp(_rank):
    x, _ = clustered_embeddings(120, dim=16, seed=0)
    sampler = LSHBatchSampler(torch.arange(120) // 2, 8, bits=64)
    loader = DataLoader(Rows(x), batch_sampler=sampler)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for _ in range(2):
        for ids, rows in loader:
            z = torch.nn.functional.normalize(model(rows), dim=1)
            sampler.observe(ids, z)
            loss = torch.nn.functional.cross_entropy(z[::2] @ z[1::2].T / 0.1, torch.arange(len(z) // 2))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.extend(ids.tolist())
    return seen, model.module.weight.detach().tolist()


def test_training_with_ddp():
    (first, weights), (second, same) = on_ranks(2, train_with_ddp)
    assert weights == same
    assert sorted(first + second) == sorted(list(range(120)) * 2)
    assert not set(first[:60]) & set(second[:60])


def train_with_accelerate(_rank):
    accelerate = pytest.importorskip("accelerate")
    x, _ = clustered_embeddings(96, dim=16, seed=0)
    accelerator = accelerate.Accelerator(cpu=True)
    sampler = LSHBatchSampler(torch.arange(96) // 2, 8, bits=64, shard=False)  # accelerate deals the batches itself
    loader = accelerator.prepare(DataLoader(Rows(x), batch_sampler=sampler))
    epochs = []
    for _ in range(2):
        seen = []
        for ids, rows in loader:
            sampler.observe(ids, rows)
            seen.extend(ids.tolist())
        epochs.append(seen)
    return epochs


def test_training_with_accelerate():
    pytest.importorskip("accelerate")
    first, second = on_ranks(2, train_with_accelerate)
    for epoch in range(2):
        assert sorted(first[epoch] + second[epoch]) == list(range(96))


def resume(_rank, stop):
    x, _ = clustered_embeddings(120, dim=16, seed=0)

    def build():
        return LSHBatchSampler(torch.arange(120) // 2, 8, bits=64)

    def observe(sampler, ids):
        sampler.observe(ids, x[ids])
        return ids

    sampler = build()
    expected = [[observe(sampler, ids) for ids in sampler] for _ in range(3)]
    killed = build()
    for ids in killed:
        observe(killed, ids)
    started = iter(killed)
    for _ in range(stop):
        observe(killed, next(started))
    restored = build()
    restored.load_state_dict(killed.state_dict())
    rest = [observe(restored, ids) for ids in restored]
    assert rest == expected[1][stop:]
    assert [observe(restored, ids) for ids in restored] == expected[2]
    return True


def test_killed_ranks_go_on():
    assert on_ranks(2, resume, 3) == [True, True]


def fail(*_, **__):
    raise MemoryError("no room")


def hook_of(rank):
    """A hook that does something else on every rank."""

    def rearrange(ids, *_):
        ids[[0, 1]] = ids[[rank, 1 - rank]]

    return rearrange


def fail_on_one(rank, failing):
    """What each rank hears if one of them fails while an epoch begins, at different places."""
    x, _ = clustered_embeddings(40, dim=16, seed=0)
    messages = {}
    on_the_first = () if failing else ("pairing_codes",)  # which rank 0 alone computes
    for place in ("exchange", "end_epoch", "rows", "search", *on_the_first, "neighbours", "rearrange"):
        sampler = LSHBatchSampler(torch.arange(40) // 2, 4, bits=64)
        for ids in sampler:
            sampler.observe(ids, x[ids])
        if rank == failing:
            owner = {"neighbours": sampler.pairing, "rearrange": sampler.composition}.get(place, sampler.memory)
            setattr(owner, place, fail)
        with pytest.raises((MemoryError, RuntimeError)) as caught:
            iter(sampler)
        messages[place] = str(caught.value)
    sampler = LSHBatchSampler(torch.arange(40) // 2, 4, bits=64, rearrange=hook_of(rank))
    with pytest.raises(ValueError, match="the ranks have composed different batches"):
        iter(sampler)
    return messages


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_on_one_rank_reaches_all(failing):
    for rank, messages in enumerate(on_ranks(2, fail_on_one, failing)):
        told = f"composing batches failed on rank {failing}: MemoryError: no room"
        assert set(messages.values()) == {"no room" if rank == failing else told}


def load_the_state_of_the_first(rank):
    sampler = LSHBatchSampler(torch.arange(80) // 2, 4, bits=64)
    batches = iter(sampler)
    for _ in range(3):
        next(batches)
    states = [sampler.state_dict() if rank == 0 else None]
    dist.broadcast_object_list(states, src=0)
    restored = LSHBatchSampler(torch.arange(80) // 2, 4, bits=64)
    restored.load_state_dict(states[0])
    rest = list(batches)
    assert list(restored) == rest
    return rest


def test_the_state_of_one_rank_will_do():
    first, second = on_ranks(2, load_the_state_of_the_first)
    assert not {i for batch in first for i in batch} & {i for batch in second for i in batch}


def choose_bits(rank):
    x, _ = clustered_embeddings(300, dim=16, seed=0)
    sampler = LSHBatchSampler(torch.arange(300) // 2, 10, bits="auto", max_bits=512, k=16, target_overlap=0.5)
    chosen = []
    for _ in range(3):
        for ids in sampler:
            sampler.observe(ids, x[ids])
        chosen.append(sampler.bits)
    iter(sampler)
    assert (sampler.plan is not None) == (rank == 0)
    return chosen, sampler.plan.rows if rank == 0 else 300


def test_ranks_choose_the_same_bits_from_everything_they_saw():
    (first, rows), (second, _) = on_ranks(2, choose_bits)
    assert first == second
    assert first[0] == 512  # nothing is known in the first epoch
    assert first[1] < 512
    assert rows == 300
