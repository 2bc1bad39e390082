"""pytorch-metric-learning's trainers on mined batches, and mining in bits against mining with floats."""

import logging

import pytest
import torch
from torch.utils.data import TensorDataset

pytest.importorskip("pytorch_metric_learning")

from pytorch_metric_learning import losses, trainers

from lookalike import LSHBatchSampler, SignHasher
from lookalike.data.synthetic import clustered_embeddings
from lookalike.integrations.metric_learning import HammingMemory, HammingMiner, HardNegatives
from lookalike.search.plain import popcount

pytestmark = pytest.mark.filterwarnings(  # of its trainer's progress bar
    "ignore:Converting a tensor with requires_grad=True to a scalar:UserWarning"
)


def make_trainer(x, labels, *, sampler=None, loss=None, workers=0, **options):
    torch.manual_seed(0)
    trunk = torch.nn.Linear(16, 8)
    return trainers.MetricLossOnly(
        models={"trunk": trunk},
        optimizers={"trunk_optimizer": torch.optim.SGD(trunk.parameters(), lr=0.1)},
        batch_size=None,
        loss_funcs={"metric_loss": loss or losses.NTXentLoss()},
        dataset=TensorDataset(x, labels),
        sampler=sampler,
        dataloader_num_workers=workers,
        data_device=torch.device("cpu"),
        **options,
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_is_observed_with_its_own_embedding(workers):
    x, _ = clustered_embeddings(120, dim=16)
    labels = torch.arange(120) // 2
    sampler = LSHBatchSampler(labels, 12, bits=64)
    trainer = make_trainer(x, labels, workers=workers)
    HardNegatives(sampler).attach(trainer)
    trainer.optimizers["trunk_optimizer"].param_groups[0]["lr"] = 0.0
    observed, observe = {}, sampler.observe

    def noting(ids, embeddings):
        observed.update(zip(ids.tolist(), embeddings.clone(), strict=True))
        observe(ids, embeddings)

    sampler.observe = noting
    trainer.train(num_epochs=2)
    trainer.dataloader_iter = None  # ends its workers now, not whenever garbage is collected
    assert trainer.iterations_per_epoch == 10
    assert sampler.epoch == 1
    assert sorted(observed) == list(range(120))
    expected = trainer.models["trunk"](x)
    assert torch.allclose(torch.stack([observed[i] for i in range(120)]), expected, atol=1e-6)


def test_a_hook_can_log_what_mining_cost_and_brought():
    x, _ = clustered_embeddings(120, dim=16)
    labels, logged = torch.arange(120) // 2, []
    sampler = LSHBatchSampler(labels, 12, bits=64)
    mining = HardNegatives(sampler)
    trainer = make_trainer(x, labels, end_of_epoch_hook=lambda _: logged.append(mining.metrics()))
    mining.attach(trainer)
    trainer.train(num_epochs=2)
    assert [each["mining/bits"] for each in logged] == [64, 64]
    assert all(0 < each["mining/share"] < 1 for each in logged)
    assert sum(each["mining/seconds"] for each in logged) == pytest.approx(sampler.mining_time.seconds)
    assert logged[0]["mining/hardest_negative"] < logged[1]["mining/hardest_negative"] <= 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_warm_start_embeds_the_data_set(workers, caplog):
    x = clustered_embeddings(60, dim=16)[0].repeat_interleave(2, dim=0)
    x += 0.01 * torch.randn(120, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(120) // 2
    sampler = LSHBatchSampler(labels, 12, bits=64)
    trainer = make_trainer(x, labels, workers=workers)
    expected, seen, observe = trainer.models["trunk"](x).detach(), {}, sampler.observe

    def noting(ids, embeddings):
        if not torch.is_grad_enabled():
            seen.update(zip(ids.tolist(), embeddings.clone(), strict=True))
        observe(ids, embeddings)

    sampler.observe = noting
    HardNegatives(sampler).attach(trainer)
    with caplog.at_level(logging.INFO, "lookalike"):
        trainer.train(num_epochs=1)
        assert sampler.warm_start.readiness.is_ready
        assert len(seen) == 120
        seen.clear()
        trainer.train(start_epoch=2, num_epochs=2)
    trainer.dataloader_iter = None
    assert not seen  # once is enough
    assert sampler.epoch == 1
    assert "warm start: embedded 120 samples in 0." in caplog.text
    again = LSHBatchSampler(labels, 12, bits=64)
    again.observe(torch.arange(120), expected)
    iter(again)
    assert again.warm_start.readiness == sampler.warm_start.readiness


def test_a_model_that_is_not_ready_trains_as_if_nothing_had_happened():
    x, labels = torch.randn(120, 16, generator=torch.Generator().manual_seed(3)), torch.arange(120) // 2
    weights = []
    for warm_start in (False, "auto"):
        sampler = LSHBatchSampler(labels, 12, bits=64, warm_start=warm_start)
        trainer = make_trainer(x, labels)
        trainer.models["trunk"] = torch.nn.Sequential(torch.nn.Dropout(0.1), trainer.models["trunk"])
        HardNegatives(sampler).attach(trainer)
        trainer.train(num_epochs=1)
        weights.append(trainer.models["trunk"][1].weight.detach())
        assert sampler.warm_start.is_used is False
    assert torch.equal(*weights)  # dropout, too, drew the same numbers


def test_what_cannot_be_attached_is_said():
    x, labels = torch.randn(20, 16), torch.arange(20) // 2
    sampler = LSHBatchSampler(labels, 4, bits=64)
    with pytest.raises(ValueError, match="make the sampler from labels"):
        HardNegatives(LSHBatchSampler(None, 4, pairs=20))
    with pytest.raises(ValueError, match="another sampler"):
        HardNegatives(sampler).attach(make_trainer(x, labels, sampler=LSHBatchSampler(labels, 4, bits=64)))
    with pytest.raises(ValueError, match="subset_batch_miner"):
        HardNegatives(sampler).attach(make_trainer(x, labels, mining_funcs={"subset_batch_miner": HammingMiner()}))
    with pytest.raises(ValueError, match="made for 20 samples, the data set has 18"):
        HardNegatives(sampler).attach(make_trainer(x[:18], labels[:18]))
    trainer = make_trainer(x, labels)
    trainer.loss_funcs = {"other": trainer.loss_funcs["metric_loss"]}
    with pytest.raises(ValueError, match='the losses other, but no "metric_loss"'):
        HardNegatives(sampler).attach(trainer)


def exact_negatives(distances, labels, ref_labels, k):
    """Each anchor's k nearest of another label, nearest first, ties by the smaller index."""
    found = set()
    for i, row in enumerate(distances.tolist()):
        order = sorted((d, j) for j, d in enumerate(row) if ref_labels[j] != labels[i])
        found |= {(i, j) for _, j in order[:k]}
    return found


@pytest.mark.parametrize(("queries", "references", "k"), [(9, 40, 3), (12, 12, 1), (5, 7, 20)])
@pytest.mark.parametrize("itself", [False, True])
def test_the_miner_finds_the_nearest_codes(queries, references, k, itself):
    x, _ = clustered_embeddings(queries + references, dim=16)
    labels = torch.randint(0, 3, (queries + references,), generator=torch.Generator().manual_seed(1))
    emb, ref = x[:queries], x[queries:]
    labels, ref_labels = labels[:queries], labels[queries:]
    if itself:
        ref, ref_labels = emb, labels
    miner = HammingMiner(k=k, bits=64)
    a1, p, a2, n = miner(emb, labels) if itself else miner(emb, labels, ref, ref_labels)
    hasher = SignHasher(16, 64)
    hasher.update_mean(ref)
    distances = popcount(hasher.encode(emb)[:, None] ^ hasher.encode(ref)).sum(-1)
    assert set(zip(a2.tolist(), n.tolist(), strict=True)) == exact_negatives(distances, labels, ref_labels, k)
    expected = {
        (i, j)
        for i in range(len(emb))
        for j in range(len(ref))
        if labels[i] == ref_labels[j] and not (itself and i == j)
    }
    assert set(zip(a1.tolist(), p.tolist(), strict=True)) == expected


def test_more_bits_find_more_of_what_exact_mining_finds():
    x, _ = clustered_embeddings(400, dim=32)
    labels, ref_labels = torch.arange(100), torch.arange(100, 400)
    exact = exact_negatives(-(x[:100] @ x[100:].T), labels.tolist(), ref_labels.tolist(), 10)
    shares = []
    for bits in (32, 256, 2048):
        *_, a2, n = HammingMiner(k=10, bits=bits, center=0.0)(x[:100], labels, x[100:], ref_labels)
        shares.append(len(exact & set(zip(a2.tolist(), n.tolist(), strict=True))) / len(exact))
    assert shares == sorted(shares)
    assert shares[0] < 0.6
    assert shares[2] > 0.8


@pytest.mark.parametrize(
    "make_loss", [losses.ContrastiveLoss, losses.NTXentLoss, losses.MultiSimilarityLoss, losses.TripletMarginLoss]
)
def test_the_memory_is_a_cross_batch_memory_with_this_miner(make_loss):
    options = {"k": 4, "bits": 128, "center": 0.0}  # without a mean codes do not depend on when they were made
    ours = HammingMemory(make_loss(), 16, 50, **options)
    theirs = losses.CrossBatchMemory(make_loss(), 16, 50, miner=HammingMiner(**options))
    generator = torch.Generator().manual_seed(0)
    for _ in range(7):  # the memory fills and wraps around
        labels = torch.randint(0, 6, (12,), generator=generator)
        x = torch.randn(12, 16, generator=generator)
        gradients = []
        for memory in (ours, theirs):
            embeddings = x.clone().requires_grad_()
            loss = memory(embeddings, labels)
            loss.backward()
            gradients.append((loss.detach(), embeddings.grad))
        assert torch.allclose(gradients[0][0], gradients[1][0], atol=1e-6)
        assert torch.allclose(gradients[0][1], gradients[1][1], atol=1e-6)


def test_codes_of_the_memory_are_centred_anew():
    memory = HammingMemory(losses.ContrastiveLoss(), 16, 40, k=4, bits=64)
    for i in range(12):
        x = torch.randn(10, 16, generator=torch.Generator().manual_seed(i)) + i
        memory(x, torch.arange(10) % 3)
        codes = memory.hasher.encode(memory.embedding_memory[: 10 * min(i + 1, 4)])
        assert torch.equal(memory.code_memory[: len(codes)], codes)  # all by one mean
    assert float(memory.hasher.mean.mean()) == pytest.approx(8.5, abs=2.6)  # not that of the first batch
