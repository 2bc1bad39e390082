"""A sampler with bits="auto": it chooses the bits by predictions from a reservoir of embeddings."""

import logging

import pytest
import torch

from lookalike import LSHBatchSampler
from lookalike.data.synthetic import clustered_embeddings
from lookalike.samplers.reservoir import Reservoir
from tests.samplers.test_lsh import run_epochs


def auto_sampler(labels, **options):
    return LSHBatchSampler(labels, 40, bits="auto", max_bits=512, **options)


def test_auto_takes_more_bits_for_a_harder_target_and_says_why(caplog):
    x, labels = clustered_embeddings(1500, dim=64, classes=600)
    chosen = []
    with caplog.at_level(logging.INFO, "lookalike"):
        for target in (0.3, 0.7):
            sampler = auto_sampler(labels, target_overlap=target)
            assert sampler.bits == 512
            run_epochs(sampler, x, 2)
            chosen.append(sampler.bits)
            share, _ = sampler.plan.predicted(sampler.bits)
            assert share >= target
    assert 64 <= chosen[0] < chosen[1] <= 512
    reasons = [message for message in caplog.messages if message.startswith("bits for epoch")]
    assert len(reasons) == 2
    assert "of the true 128 nearest" in reasons[0]


def test_auto_composes_the_batches_of_a_sampler_with_that_many_bits():
    x, labels = clustered_embeddings(1500, dim=64, classes=600)
    auto = auto_sampler(labels, target_overlap=0.5)
    batches = run_epochs(auto, x, 2)
    fixed = LSHBatchSampler(labels, 40, bits=auto.bits)
    assert auto.bits < 512
    assert run_epochs(fixed, x, 2) == batches


def test_auto_falls_back_to_the_longest_with_one_warning(caplog):
    x, labels = clustered_embeddings(1500, dim=64, classes=600)
    sampler = auto_sampler(labels, target_overlap=0.99)
    run_epochs(sampler, x, 3)
    assert sampler.bits == 512
    warnings = [message for message in caplog.messages if "lower target_overlap or raise max_bits" in message]
    assert len(warnings) == 1
    assert "no length up to 512 reaches it" in warnings[0]


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("stop", [1, 9])
def test_auto_resumes_as_if_nothing_had_happened(paired, stop, tmp_path):
    x, labels = clustered_embeddings(400, dim=32, classes=150)
    y = torch.nn.functional.normalize(
        x + 0.05 * torch.randn(400, 32, generator=torch.Generator().manual_seed(0)), dim=1
    )

    def build():
        options = {"labels": None, "pairs": 400} if paired else {"labels": labels}
        return LSHBatchSampler(**options, batch_size=20, bits="auto", max_bits=512, k=16, target_overlap=0.6)

    def observe(sampler, ids):
        towers = {"query": x[ids], "reference": y[ids]} if paired else {"embeddings": x[ids]}
        sampler.observe(ids, **towers)
        return ids

    whole = build()
    expected = [([observe(whole, ids) for ids in whole], whole.bits) for _ in range(3)]
    assert expected[1][1] < 512
    killed = build()
    for ids in killed:
        observe(killed, ids)
    started = iter(killed)
    for _ in range(stop):
        observe(killed, next(started))
    torch.save(killed.state_dict(), tmp_path / "state.pt")
    restored = build()
    restored.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert restored.bits == killed.bits == expected[1][1]
    assert restored.plan == killed.plan
    assert [observe(restored, ids) for ids in restored] == expected[1][0][stop:]
    assert ([observe(restored, ids) for ids in restored], restored.bits) == expected[2]
    with pytest.raises(ValueError, match="bits was 'auto', here it is 512"):
        LSHBatchSampler(None if paired else labels, 20, bits=512, pairs=400 if paired else None).load_state_dict(
            killed.state_dict()
        )


def test_auto_keeps_codes_and_a_small_reservoir():
    n = 6000
    sampler = LSHBatchSampler(None, 60, pairs=n, bits="auto", max_bits=256)
    x = torch.randn(60, 8)
    for ids in sampler:
        sampler.observe(ids, query=x, reference=x)
    assert sampler.kept_bytes == 2 * (n * 32 + n // 8 + 4096 * 8 * 4)


def test_the_reservoir_is_the_same_everywhere_and_keeps_what_belongs_to_it():
    first, second, other = Reservoir(9000, seed=1, rows=50), Reservoir(9000, seed=1, rows=50), Reservoir(9000, seed=2)
    assert torch.equal(first.ids, second.ids)
    assert len(other.ids) == 4096
    assert len(other.ids.unique()) == 4096
    x = torch.randn(9000, 4)
    x[first.ids[3]] = torch.nan
    for ids in torch.randperm(9000).split(1000):
        first.write(ids, x[ids])
    assert torch.equal(first.rows.nan_to_num(9), x[first.ids].nan_to_num(9))
    usable = first.end_epoch()
    assert usable.tolist() == [i != 3 for i in range(50)]
    assert not first.end_epoch().any()  # nothing was seen since


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bits": "many"}, 'a number or "auto"'),
        ({"bits": "auto", "target_overlap": 0}, "target_overlap must be above 0"),
    ],
)
def test_auto_refuses_what_it_cannot_do(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        LSHBatchSampler(torch.arange(40) // 2, 4, **options)
