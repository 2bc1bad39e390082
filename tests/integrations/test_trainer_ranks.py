"""Two processes with other libraries' trainers: accelerate deals whole batches, with Lightning each takes its share."""

import os

import pytest
import torch

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")
pytest.importorskip("lightning")

from datasets import Dataset
from lightning.pytorch.callbacks import ModelCheckpoint

from lookalike.integrations.sentence_transformers import HardNegatives
from tests.integrations.test_lightning_callback import BATCHES, SAMPLES, StoppedError, fit, make_module
from tests.integrations.test_lightning_callback import twins as twin_points
from tests.integrations.texts import losses, make_trainer, note_batches, note_warm_starts, pairs
from tests.ranks import on_ranks

PAIRS, BATCH, TWINS = 100, 6, 20  # rows 2 i and 2 i + 1, below TWINS, share an anchor


def twins():
    data = pairs(PAIRS)
    anchors = [data["anchor"][i - i % 2 if i < TWINS else i] for i in range(PAIRS)]
    return Dataset.from_dict({"anchor": anchors, "positive": list(data["positive"])})


def gathering(model):
    return losses.MultipleNegativesRankingLoss(model, gather_across_devices=True)


def train_with_sentence_transformers(model_folder, folder):
    def run(make_loss, name, resume=None, warm_start="auto", **options):
        torch.manual_seed(0)
        trainer = make_trainer(model_folder, f"{folder}/{name}", twins(), make_loss, batch_size=BATCH, **options)
        mining = HardNegatives(bits=64, warm_start=warm_start).attach(trainer)
        seen = note_batches(mining)
        trainer.train(resume_from_checkpoint=resume)
        weights = [parameter.tolist() for parameter in trainer.model.parameters()]
        return [batch for batch, *_ in seen], weights, mining.samplers[""].codes["query"].num_seen

    plain = run(losses.MultipleNegativesRankingLoss, "plain")
    gathered = run(gathering, "gathered", save_strategy="steps", save_steps=3)
    resumed = run(gathering, "gathered", resume=f"{folder}/gathered/checkpoint-12")
    split = run(gathering, "split", accelerator_config={"split_batches": True})
    with pytest.raises(ValueError, match="with dispatch_batches one process fetches the batches of all"):
        run(gathering, "dispatched", accelerator_config={"dispatch_batches": True})
    with pytest.MonkeyPatch.context() as patching:
        seen = note_warm_starts(patching)
        saving = {"save_strategy": "steps", "save_steps": 3}
        warm = run(gathering, "warm", warm_start=True, **saving)
        embedded = [ids for _, ids, _ in seen]
        warm_resumed = run(gathering, "warm", warm_start=True, resume=f"{folder}/warm/checkpoint-3")
        assert len(embedded) == len(seen)
    several = {"warm": warm, "warm resumed": warm_resumed, "embedded": embedded}
    return {"plain": plain, "gathered": gathered, "resumed": resumed, "split": split, **several}


def train_with_lightning(folder):
    os.environ.update(TORCHELASTIC_RUN_ID="test", GROUP_RANK="0")  # as torchrun says that it has started the processes
    options = {"devices": 2, "strategy": "ddp", "max_epochs": 2}

    def saving(name):
        return [ModelCheckpoint(f"{folder}/{name}", every_n_train_steps=1, save_top_k=-1, filename="{step}")]

    whole = make_module("lightning.pytorch")
    fit("lightning.pytorch", folder, whole, saving=saving("whole"), **options)
    stopped = make_module("lightning.pytorch", stop_at=4)
    with pytest.raises(StoppedError):
        fit("lightning.pytorch", folder, stopped, saving=saving("stopped"), **options)
    resumed = make_module("lightning.pytorch")
    checkpoint = f"{folder}/stopped/step=3.ckpt"
    fit("lightning.pytorch", folder, resumed, checkpoint=checkpoint, saving=saving("resumed"), **options)
    warm = make_module("lightning.pytorch", embeds=True)
    fit("lightning.pytorch", folder, warm, x=twin_points(), enable_checkpointing=False, **options)
    return whole.steps, resumed.steps, whole.layer.weight.tolist(), warm.embedded, warm.steps


def train(_rank, model_folder, folder):
    return train_with_sentence_transformers(model_folder, folder), train_with_lightning(f"{folder}/lightning")


@pytest.fixture(scope="module")
def results(model_folder, tmp_path_factory):
    """What both ranks have to say of all runs; starting the processes takes longer than the runs."""
    return on_ranks(2, train, model_folder, str(tmp_path_factory.mktemp("ranks")))


@pytest.mark.parametrize(
    ("name", "size"), [("plain", BATCH), ("gathered", BATCH), ("split", BATCH // 2), ("warm", BATCH)]
)
def test_batches_of_sentence_transformers(results, name, size):
    (first, weights, seen), (second, same_weights, _) = (mined[name] for mined, _ in results)
    assert weights == same_weights
    assert seen > PAIRS - 2 * BATCH  # what the last, short batch leaves out
    steps = PAIRS // (2 * size)
    assert [len(batch) for batch in first + second] == [size] * (4 * steps)
    for start in (0, steps):
        together = [a + b for a, b in zip(first[start : start + steps], second[start : start + steps], strict=True)]
        numbers = [number for batch in together for number in batch]
        assert len(set(numbers)) == len(numbers)  # nothing twice in an epoch
        for batch in together if name != "plain" else first + second:  # what the loss sees as one batch
            groups = [number // 2 if number < TWINS else number for number in batch]
            assert len(set(groups)) == len(groups)


def test_sentence_transformers_goes_on(results):
    for mined, _ in results:
        assert mined["resumed"][0] == mined["gathered"][0][12:]
        assert mined["resumed"][1] == mined["gathered"][1]
        assert mined["warm resumed"][0] == mined["warm"][0][3:]  # from the first epoch
        assert mined["warm resumed"][1] == mined["warm"][1]


def test_each_rank_embeds_its_share(results):
    shares = [[i for ids in mined["embedded"] for i in ids] for mined, _ in results]
    assert [len(share) for share in shares] == [PAIRS // 2] * 2
    assert sorted(shares[0] + shares[1]) == list(range(PAIRS))
    shares = [[i for ids in embedded for i in ids] for _, (*_, embedded, _) in results]
    assert sorted(shares[0] + shares[1]) == list(range(SAMPLES))
    trained = [i for _, (*_, steps) in results for ids in steps[: BATCHES // 2] for i in ids]
    assert sorted(trained) == list(range(SAMPLES))


def test_lightning(results):
    (first, first_resumed, weights, *_), (second, second_resumed, same_weights, *_) = (shares for _, shares in results)
    assert weights == same_weights
    half = BATCHES // 2
    for start in (0, half):
        together = [a + b for a, b in zip(first[start : start + half], second[start : start + half], strict=True)]
        assert sorted(i for batch in together for i in batch) == list(range(SAMPLES))
        for batch in together:
            assert len({i // 2 for i in batch}) == len(batch) / 2  # pairs, and no label twice
    assert first_resumed == first[3:]  # rank 0 alone writes the checkpoint, and it holds what both had observed
    assert second_resumed == second[3:]
