"""What the LSH sampler does with what it observes."""

import logging
import sys

import numpy as np
import pytest
import torch

from lookalike import LSHBatchSampler, PreEpochBatchSampler, RandomBatchSampler, SignHasher, hardest_positives
from lookalike.data.synthetic import clustered_embeddings
from tests.processes import resident_bytes, run_function


def run_epochs(sampler, x, epochs, y=None):
    for _ in range(epochs):
        batches = list(sampler)
        sampler.set_epoch(sampler.epoch)  # not over yet: the embeddings come now
        for ids in sampler:
            if sampler.paired:
                sampler.observe(ids, query=x[ids], reference=y[ids])
            else:
                sampler.observe(ids, x[ids])
    return batches


def in_batch_similarity(batches, x):
    """Mean cosine of an anchor to its most similar negative in the batch: how hard the batches are."""
    values = []
    for batch in batches:
        anchors = x[batch[::2]]
        similarity = anchors @ anchors.T
        similarity.fill_diagonal_(-1)
        values.append(similarity.max(1).values)
    return float(torch.cat(values).mean())


def test_batches_get_harder_than_random_and_nearly_as_hard_as_exact():
    x, labels = clustered_embeddings(3000, dim=64, seed=0)
    samplers = {
        "random": RandomBatchSampler(labels, 64),
        "lsh": LSHBatchSampler(labels, 64, bits=512),
        "short": LSHBatchSampler(labels, 64, bits=64),
        "exact": PreEpochBatchSampler(labels, 64, mode="incremental"),
        "half": LSHBatchSampler(labels, 64, bits=512, hardness=0.5),
    }
    hard = {name: in_batch_similarity(run_epochs(sampler, x, 2), x) for name, sampler in samplers.items()}
    assert hard["lsh"] > hard["random"] + 0.1
    assert hard["exact"] - 0.03 < hard["lsh"] < hard["exact"] + 0.01
    assert hard["random"] < hard["short"] < hard["lsh"]
    assert hard["random"] < hard["half"] < hard["lsh"]


def test_the_first_epoch_is_random():
    x, labels = clustered_embeddings(1000, dim=32)
    first = run_epochs(LSHBatchSampler(labels, 32, bits=128), x, 1)
    random = list(RandomBatchSampler(labels, 32))
    assert abs(in_batch_similarity(first, x) - in_batch_similarity(random, x)) < 0.03


def test_codes_are_those_of_the_hasher_and_means_of_the_last_epoch():
    x, labels = clustered_embeddings(400, dim=32, offset=1.0)
    labels = torch.arange(400) // 2
    sampler = LSHBatchSampler(labels, 40, bits=128, seed=3)
    run_epochs(sampler, x, 2)
    iter(sampler)
    hasher = SignHasher(32, 128, seed=3)
    hasher.update_mean(x)
    stream = sampler.memory.streams["embeddings"]
    assert torch.allclose(stream.hasher.mean, hasher.mean, atol=1e-9)
    assert (stream.table.codes == hasher.encode(x)).float().mean() > 0.999


def test_positives_are_the_hardest():
    x, _ = clustered_embeddings(300, dim=32)
    labels = np.arange(300) // 3
    sampler = LSHBatchSampler(labels, 20, bits=256)
    batches = run_epochs(sampler, x, 2)
    codes = sampler.codes["embeddings"].codes
    hardest = hardest_positives(codes, labels)
    pairs = [(a, p) for batch in batches for a, p in zip(batch[::2], batch[1::2], strict=True)]
    chosen = sum(int(hardest[a]) == p or int(hardest[p]) == a for a, p in pairs)
    assert chosen > 0.6 * len(pairs)  # at random a half would be; the third sample of a class takes what is left


def test_two_towers_use_both():
    """Queries near the reference of another pair bring the two pairs together."""
    generator = torch.Generator().manual_seed(0)
    reference = torch.nn.functional.normalize(torch.randn(200, 32, generator=generator), dim=1)
    partner = torch.arange(200).view(-1, 2).flip(1).flatten()
    noise = torch.randn(200, 32, generator=generator)
    query = torch.nn.functional.normalize(reference[partner] + 0.01 * noise, dim=1)
    sampler = LSHBatchSampler(None, 10, pairs=200, bits=256, k=1)
    batches = run_epochs(sampler, query, 2, reference)
    together = sum(int(partner[i]) in batch for batch in batches for i in batch)
    assert together > 0.9 * 200


def test_unseen_samples_stay_random_and_old_codes_are_kept():
    x, _ = clustered_embeddings(200, dim=16)
    labels = np.arange(200) // 2
    sampler = LSHBatchSampler(labels, 20, bits=64)
    for batch, ids in enumerate(sampler):
        if batch % 2:
            sampler.observe(ids, x[ids])
    sampler.memory.streams["embeddings"].flush()
    table = sampler.codes["embeddings"]
    seen, codes = table.seen.clone(), table.codes.clone()
    assert 0 < int(seen.sum()) < 200
    assert sorted(i for batch in sampler for i in batch) == list(range(200))
    assert torch.equal(table.codes, codes)


def test_pairs_that_no_batch_holds_are_not_called_unobserved(caplog):
    labels = torch.cat([torch.zeros(12, dtype=torch.int64), torch.arange(1, 29)])  # more of one label than batches
    sampler = LSHBatchSampler(labels, 5, pairs=40, bits=64)
    x = torch.randn(40, 8)
    with caplog.at_level(logging.WARNING, "lookalike"):
        run_epochs(sampler, x, 3, x)
    assert len(caplog.messages) == 1
    assert "4 pairs are left out of each epoch" in caplog.text


def test_non_finite_embeddings_never_become_bits(caplog):
    sampler = LSHBatchSampler(np.arange(8) // 2, 4, bits=8)
    x = torch.randn(8, 4)
    sampler.observe([0, 1, 2, 3], x[:4])
    sampler.memory.streams["embeddings"].flush()
    before = sampler.codes["embeddings"].codes.clone()
    x[2] = float("nan")
    with caplog.at_level(logging.WARNING, "lookalike"):
        sampler.observe([0, 1, 2, 3], -x[:4])
        sampler.observe([2, 4], x[[2, 4]])
        sampler.memory.streams["embeddings"].flush()
    assert torch.equal(sampler.codes["embeddings"].codes[2], before[2])
    assert not torch.isnan(sampler.memory.streams["embeddings"].hasher.mean).any()
    assert caplog.messages == [
        (
            "embeddings of 2 samples hold NaN or infinity (first: sample 2); they keep their older codes, if any; "
            "look for a diverging loss."
        )
    ]


def test_observe_keeps_no_graph_and_no_floats():
    sampler = LSHBatchSampler(np.arange(100) // 2, 20, bits=64)
    weight = torch.randn(32, 16, requires_grad=True)
    for ids in sampler:
        z = torch.randn(20, 32) @ weight
        sampler.observe(ids, z)
    stream = sampler.memory.streams["embeddings"]
    assert stream.gathering.rows.shape == (4096, 16)  # however many samples there are
    assert not stream.gathering.rows.requires_grad
    stream.flush()
    assert int(stream.gathering.count) == 0
    floats = [t for t in vars(stream).values() if isinstance(t, torch.Tensor) and t.is_floating_point()]
    assert sum(t.numel() for t in floats) == 18  # the sums of the epoch and its count
    assert not any(t.requires_grad for t in floats)
    assert not stream._arrivals._waiting


def test_self_pairs_take_two_views():
    sampler = LSHBatchSampler(np.arange(12), 4, bits=64, self_pairs=True)
    for ids in sampler:
        assert ids[::2] == ids[1::2]
        sampler.observe(ids, torch.randn(4, 8))
    sampler.memory.streams["embeddings"].flush()
    assert sampler.codes["embeddings"].num_seen == 12


def stream_a_million():
    """Print by how much the memory grows with the observation of a million samples."""
    x = torch.randn(512, 32)

    def stream(sampler, n):  # in order of id: what the batches are does not matter here
        for start in range(0, n, 512):
            ids = torch.arange(start, min(start + 512, n))
            sampler.observe(ids, x[: len(ids)])

    stream(LSHBatchSampler(np.arange(8192) // 4, 64, bits=512), 8192)  # load everything first
    n = 1_000_000
    labels = np.arange(n) // 4
    before = resident_bytes()
    sampler = LSHBatchSampler(labels, 64, bits=512)
    stream(sampler, n)
    print(resident_bytes() - before)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_between_epochs_is_that_of_the_codes():
    run = run_function(stream_a_million)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 1.2 * (64 << 20)


@pytest.mark.parametrize(("noise", "says_so"), [(0.0, True), (0.001, True), (1.0, False)])
def test_collapsed_embeddings_are_said_once(noise, says_so, caplog):
    x = torch.nn.functional.normalize(torch.ones(40, 16) + noise * torch.randn(40, 16), dim=1)
    sampler = LSHBatchSampler(np.arange(40) // 2, 8, bits=64)
    with caplog.at_level("WARNING", "lookalike"):
        for _ in range(3):
            for ids in sampler:
                sampler.observe(ids, x[ids])
    assert [message.startswith("the embeddings have collapsed") for message in caplog.messages] == [True] * says_so


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_embeddings_with_an_offset_have_not_collapsed(scale, caplog):
    """Dot products tell apart what cosines do not, and codes are centred."""
    x = scale * (torch.randn(40, 16) + 50)
    sampler = LSHBatchSampler(np.arange(40) // 2, 8, bits=64)
    with caplog.at_level("WARNING", "lookalike"):
        for _ in range(2):
            for ids in sampler:
                sampler.observe(ids, x[ids])
        list(sampler)
    assert caplog.messages == []


def test_epochs_that_are_cut_short_and_rows_that_are_refused_are_not_unseen(caplog):
    x = torch.randn(40, 16)
    x[:2] = torch.nan
    cut, whole = (LSHBatchSampler(np.arange(40) // 2, 8, bits=64) for _ in range(2))
    with caplog.at_level("WARNING", "lookalike"):
        for epoch in range(3):
            cut.set_epoch(epoch)
            cut.observe(next(iter(cut)), torch.randn(8, 16))
            for ids in whole:
                whole.observe(ids, x[ids])
    assert [message for message in caplog.messages if "never observed" in message] == []


def test_observing_a_batch_in_another_order_takes_no_longer_with_every_batch():
    sampler, looked = LSHBatchSampler(np.arange(4000) // 2, 4, bits=8), []
    for ids in sampler:
        sampler.observe(ids[::-1], torch.randn(4, 4))
        looked.append(sampler.state_dict()["cursor"])
    assert looked == list(range(1, len(sampler) + 1))
