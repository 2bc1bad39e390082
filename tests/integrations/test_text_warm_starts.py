"""Warm starts with sentence-transformers' trainer: data are embedded as the loss would, and nothing else changes."""

import logging
import random
from functools import partial

import numpy as np
import pytest
import torch

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")

from datasets import DatasetDict

from lookalike.integrations.sentence_transformers import HardNegatives
from tests.integrations.texts import echoes, losses, make_trainer, measuring, note_batches, note_warm_starts, pairs

MNRL, CachedMNRL = losses.MultipleNegativesRankingLoss, losses.CachedMultipleNegativesRankingLoss


@pytest.fixture(autouse=True)
def one_thread(threads):
    threads(1)


@pytest.fixture
def warm_starts(monkeypatch):
    return note_warm_starts(monkeypatch)


@pytest.fixture
def trained(model_folder, tmp_path):
    def train(dataset, make_loss=MNRL, *, warm_start="auto", resume=None, model_changes=None, **options):
        """A trained trainer, its mining, and its batches."""
        options = {"num_train_epochs": 1} | options
        trainer = make_trainer(model_folder, tmp_path, dataset, make_loss, **options)
        if model_changes:
            model_changes(trainer.model)
        mining = HardNegatives(bits=128, warm_start=warm_start).attach(trainer)
        seen = note_batches(mining)
        trainer.train(resume_from_checkpoint=resume)
        return trainer, mining, [batch for batch, *_ in seen]

    return train


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


def weights(trainer):
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


def test_a_model_that_is_ready_begins_with_hard_batches(trained):
    first_epochs = {}
    for warm_start in ("auto", True, False):
        hardness = []
        _, mining, batches = trained(
            echoes(),
            lambda model, noted=hardness: MNRL(model, similarity_fct=measuring(noted)),
            warm_start=warm_start,
            model_changes=without_dropout,
            learning_rate=1e-5,
        )
        assert sorted(number for batch in batches for number in batch) == list(range(240))
        assert mining.samplers[""].warm_start.is_used == (warm_start is not False)
        first_epochs[warm_start] = float(np.mean(hardness))
    assert first_epochs["auto"] == first_epochs[True]
    assert first_epochs[True] > first_epochs[False] + 0.005


@pytest.mark.parametrize(
    ("make_loss", "options"),
    [(MNRL, {}), (lambda model: CachedMNRL(model, mini_batch_size=5), {"dataloader_num_workers": 2})],
)
def test_a_model_that_is_not_ready_trains_as_if_nothing_had_happened(trained, warm_starts, make_loss, options):
    data, states = echoes(mixed_up=True), []

    def train(warm_start):
        trainer, mining, batches = trained(data, make_loss, warm_start=warm_start, **options)
        states.append((random.random(), np.random.random(), torch.rand(1).item()))  # noqa: NPY002 - what others draw from
        return mining.samplers[""].warm_start.is_used, batches, weights(trainer)

    _, batches, expected = train(False)
    assert not warm_starts
    is_used, same, found = train("auto")
    assert sum(len(ids) for _, ids, _ in warm_starts) == len(data)
    assert not is_used
    assert batches == same
    assert torch.equal(expected, found)  # dropout, too, drew the same numbers
    assert states[0] == states[1]


def note_mask(masks, _, inputs):  # workers that are not forked get a copy of the model, with this hook
    masks.append(inputs[0]["attention_mask"])


PROMPTS = {"anchor": "w0x0 w1x1 w2x2 ", "positive": "w3x3 w4x4 "}


@pytest.mark.parametrize(
    ("make_loss", "options"),
    [
        (MNRL, {"prompts": PROMPTS}),
        (lambda model: losses.MatryoshkaLoss(model, MNRL(model), [32, 8]), {"dataloader_num_workers": 2}),
        (lambda model: CachedMNRL(model, mini_batch_size=3), {"prompts": "w5x5 "}),
        (MNRL, {"bf16": True}),
    ],
)
def test_every_row_is_embedded_as_the_loss_would(trained, warm_starts, make_loss, options):
    data = pairs(150, negatives=2).map(lambda row, i: {"anchor": row["anchor"] + " w1x1" * (i % 9)}, with_indices=True)
    lengths = []

    def listen(model):
        model[0].register_forward_pre_hook(partial(note_mask, lengths))

    trainer, _, _ = trained(data, make_loss, learning_rate=0.0, max_steps=1, model_changes=listen, **options)
    assert [len(ids) for _, ids, _ in warm_starts].count(64) == 2
    numbers = [number for _, ids, _ in warm_starts for number in ids]
    assert sorted(numbers) == list(range(150))
    for tower, column in (("query", "anchor"), ("reference", "positive")):
        found = torch.cat([towers[tower] for *_, towers in warm_starts])
        prompts = options.get("prompts", "")
        prompt = prompts if isinstance(prompts, str) else prompts[column]
        texts = [prompt + data[column][number] for number in numbers]
        trainer.model.eval()
        expected = trainer.model.encode(texts, convert_to_tensor=True, normalize_embeddings=True)
        assert torch.allclose(found, expected, atol=3e-2 if "bf16" in options else 1e-5)
    padding = sum(int((mask == 0).sum()) for mask in lengths[:6])
    assert padding < 0.2 * sum(mask.numel() for mask in lengths[:6])  # texts of similar length are together


def test_several_data_sets(trained, warm_starts, caplog):
    data = DatasetDict({"a": echoes(60), "b": echoes(36, mixed_up=True)})
    prompts = {"a": {"anchor": "w0x0 w1x1 w2x2 "}, "b": {"positive": "w3x3 "}}
    with caplog.at_level(logging.INFO, "lookalike"):
        trainer, mining, batches = trained(
            data,
            lambda model: {"a": MNRL(model), "b": CachedMNRL(model)},
            learning_rate=0.0,
            prompts=prompts,
        )
    assert sorted(number for batch in batches for number in batch) == list(range(96))
    for name, sampler in mining.samplers.items():
        found = {
            number: row
            for other, ids, towers in warm_starts
            if other is sampler
            for number, row in zip(ids, towers["query"], strict=True)
        }
        assert sorted(found) == list(range(len(data[name])))
        texts = [prompts[name].get("anchor", "") + text for text in data[name]["anchor"]]
        trainer.model.eval()
        expected = trainer.model.encode(texts, convert_to_tensor=True, normalize_embeddings=True)
        assert torch.allclose(torch.stack([found[i] for i in range(len(texts))]), expected, atol=1e-5)
        assert f"warm start: embedded {len(texts)} samples of {name} in 0." in caplog.text
    assert "their codes decide whether the first epoch is composed from them" in caplog.text


@pytest.mark.parametrize("step", [4, 20])  # in the first epoch, and after it
def test_a_run_resumes_without_embedding_again(trained, warm_starts, tmp_path, step):
    options = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 4}
    whole, mining, batches = trained(echoes(), **options)
    assert mining.samplers[""].warm_start.is_used is not None
    warm_starts.clear()
    resumed, _, rest = trained(echoes(), resume=str(tmp_path / f"checkpoint-{step}"), num_train_epochs=2)
    assert not warm_starts
    assert rest == batches[step:]
    assert torch.equal(weights(whole), weights(resumed))


def test_a_run_that_has_lost_its_state_embeds_again(trained, warm_starts, tmp_path):
    trained(echoes(60), save_strategy="epoch")
    (tmp_path / "checkpoint-5" / "hard_negatives_0.pt").unlink()
    warm_starts.clear()
    trained(echoes(60), resume=str(tmp_path / "checkpoint-5"), num_train_epochs=2)
    assert sum(len(ids) for _, ids, _ in warm_starts) == 60


def test_an_interrupted_warm_start_leaves_no_trace(model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, echoes(), MNRL, num_train_epochs=1)
    mining = HardNegatives(bits=64).attach(trainer)
    calls = []

    def interrupt(*_):
        calls.append(trainer.model.training)
        if len(calls) == 6:
            raise KeyboardInterrupt

    trainer.model.train()
    handle = trainer.model.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    handle.remove()
    assert calls == [False] * 6
    assert all(module.training for module in trainer.model.modules())
    assert mining.samplers[""].wants_warm_start
    trainer.train()
    assert mining.samplers[""].warm_start.is_used is not None
