"""Training with sentence-transformers' own trainer, on batches that it mined itself."""

import copy
import logging
import pickle
import signal

import numpy as np
import pytest
import torch

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")

from datasets import Dataset, DatasetDict
from sentence_transformers.util import cos_sim

from lookalike.integrations.sentence_transformers import HardNegatives
from tests.integrations import killed
from tests.integrations.texts import losses, make_trainer, measuring, note_batches, pairs
from tests.processes import run_function

MNRL, CachedMNRL = losses.MultipleNegativesRankingLoss, losses.CachedMultipleNegativesRankingLoss


@pytest.fixture(autouse=True)
def one_thread(threads):
    threads(1)


@pytest.fixture
def trainer_of(model_folder, tmp_path):
    def make(dataset, make_loss=MNRL, **options):
        return make_trainer(model_folder, tmp_path, dataset, make_loss, **options)

    return make


def without_dropout(trainer):
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return trainer


def hardness_by_epoch(trainer_of, mined):
    """The mean cosine of the hardest negative of the batch, in the first epoch and in the second."""
    hardness = []
    trainer = trainer_of(pairs(), lambda model: MNRL(model, similarity_fct=measuring(hardness)))
    if mined:
        HardNegatives(bits=256).attach(trainer)
    trainer.train()
    assert len(hardness) == 40
    return float(np.mean(hardness[:20])), float(np.mean(hardness[20:]))


def test_batches_of_the_second_epoch_are_harder_than_the_trainers_own(trainer_of):
    first, second = hardness_by_epoch(trainer_of, mined=True)
    own_first, own_second = hardness_by_epoch(trainer_of, mined=False)
    assert first == pytest.approx(own_first, abs=0.03)  # both are random
    assert second > own_second + 0.05


def test_mining_is_in_the_trainers_own_logs(trainer_of):
    trainer = trainer_of(pairs(120))
    mining = HardNegatives(bits=64).attach(trainer)
    trainer.train()
    logged = [each for each in trainer.state.log_history if "mining/seconds" in each]
    assert [(each["epoch"], each["step"], each["mining/bits"]) for each in logged] == [(1.0, 10, 64), (2.0, 20, 64)]
    assert all(0 < each["mining/share"] < 1 for each in logged)
    seconds = sum(sampler.mining_time.seconds for sampler in mining.samplers.values())
    assert sum(each["mining/seconds"] for each in logged) == pytest.approx(seconds)
    assert logged[0]["mining/hardest_negative"] < logged[1]["mining/hardest_negative"] <= 1


@pytest.mark.parametrize(
    ("make_loss", "negatives", "options"),
    [
        (MNRL, 0, {}),
        (MNRL, 2, {"dataloader_num_workers": 2}),
        (lambda model: CachedMNRL(model, mini_batch_size=5), 1, {"gradient_accumulation_steps": 2}),
        (lambda model: losses.MatryoshkaLoss(model, MNRL(model), [32, 8]), 0, {"dataloader_drop_last": True}),
        (MNRL, 0, {"bf16": True}),
    ],
)
def test_every_row_is_observed_with_its_own_embeddings(trainer_of, make_loss, negatives, options):
    data = pairs(100, negatives=negatives)
    trainer = trainer_of(data, make_loss, num_train_epochs=1, learning_rate=0.0, **options)
    mining = HardNegatives(bits=64, warm_start=False).attach(trainer)
    seen = note_batches(mining)
    without_dropout(trainer).train()  # so that embeddings can be computed again
    numbers = [number for batch, *_ in seen for number in batch]
    rows = 96 if options.get("dataloader_drop_last") else 100
    assert len(numbers) == len(set(numbers)) == rows
    tolerance = 2e-2 if "bf16" in options else 1e-5
    for place, column in enumerate(("anchor", "positive"), start=1):
        observed = torch.cat([batch[place] for batch in seen]).float()
        expected = trainer.model.encode([data[column][number] for number in numbers], convert_to_tensor=True)
        assert torch.allclose(observed, expected, atol=tolerance)
    stream = mining.samplers[""].memory.streams["reference"]
    stream.flush()
    assert stream.table.num_seen == rows


def pickled(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_a_copy_of_the_model_records_nothing(trainer_of, copied):
    """Where processes are not forked, a loader's workers get the model with all of its hooks."""
    trainer, copies = trainer_of(pairs(60), num_train_epochs=1), []
    mining = HardNegatives(bits=64, warm_start=False).attach(trainer)
    receive = mining._recorder._receive

    def copying(*batch):
        copies.append(copied(trainer.model))
        receive(*batch)

    mining._recorder._receive = copying
    trainer.train()
    recorders = [hook.__self__ for part in copies[0].modules() for hook in part._forward_hooks.values()]
    assert recorders
    assert not any(recorder is mining._recorder or recorder._receive is copying for recorder in recorders)
    steps = len(copies)
    copies[0].train().encode(["a text"] * 12)
    assert len(copies) == steps


def test_evaluation_changes_nothing(trainer_of):
    def train(**options):
        trainer = trainer_of(pairs(60), **options)
        seen = note_batches(HardNegatives(bits=64).attach(trainer))
        without_dropout(trainer).train()  # loaders of evaluations draw random numbers
        return trainer, [batch for batch, *_ in seen]

    plain, batches = train()
    evaluated, same = train(evaluation=pairs(30, seed=5), eval_strategy="steps", eval_steps=2)
    assert batches == same
    assert all(torch.equal(a, b) for a, b in zip(weights(plain), weights(evaluated), strict=True))
    assert any("eval_loss" in entry for entry in evaluated.state.log_history)


def test_equal_texts_and_labels_never_meet(trainer_of):
    data = pairs(96)
    texts = {column: list(data[column]) for column in data.column_names}
    for i in range(0, 24, 4):  # the same anchor, the same positive, an anchor that is a positive
        texts["anchor"][i + 1] = texts["anchor"][i]
        texts["positive"][i + 2] = texts["positive"][i]
        texts["anchor"][i + 3] = texts["positive"][i]
    labels = np.arange(96)
    labels[90:94] = 7
    trainer = trainer_of(Dataset.from_dict(texts), num_train_epochs=3)
    mining = HardNegatives(bits=64, labels=labels).attach(trainer)
    seen = note_batches(mining)
    trainer.train()
    assert len(seen) == 3 * 8
    for batch, *_ in seen:
        groups = [number // 4 if number < 24 else 1000 + labels[number] for number in batch]
        assert len(set(groups)) == len(groups)


def test_a_negative_never_meets_itself_as_a_positive(trainer_of):
    data = pairs(96)
    positives = list(data["positive"])
    data = data.add_column("negative", [positives[(i * 7 + 1) % 96] for i in range(96)])  # as mined sets are
    trainer = trainer_of(data, num_train_epochs=3)
    seen = note_batches(HardNegatives(bits=64).attach(trainer))
    trainer.train()
    assert sorted(number for batch, *_ in seen for number in batch) == sorted(list(range(96)) * 3)
    for batch, *_ in seen:
        assert not {(number * 7 + 1) % 96 for number in batch} & set(batch)


@pytest.mark.parametrize("several_losses", [False, True])
def test_several_data_sets_have_a_sampler_each(trainer_of, several_losses):
    data = DatasetDict({"a": pairs(60), "b": pairs(36, seed=1)})
    make_loss = (lambda model: {"a": MNRL(model), "b": CachedMNRL(model)}) if several_losses else MNRL
    trainer = trainer_of(data, make_loss)
    mining = HardNegatives(bits=64).attach(trainer)
    seen = note_batches(mining)
    trainer.train()
    for epoch in (seen[:8], seen[8:]):
        assert sorted(number for batch, *_ in epoch for number in batch) == list(range(96))
    assert {name: sampler.codes["query"].num_seen for name, sampler in mining.samplers.items()} == {
        "a": 60,
        "b": 36,
    }


def test_a_loss_with_labels_gets_those_of_the_data_set(trainer_of):
    received = []

    class Labelled(MNRL):
        def forward(self, features, labels):
            received.extend(labels.tolist())
            return super().forward(features, labels)

    data = pairs(24).add_column("score", [i / 8 for i in range(24)])
    trainer = trainer_of(data, Labelled, num_train_epochs=1)
    seen = note_batches(HardNegatives(bits=64).attach(trainer))
    trainer.train()
    assert received == [number / 8 for batch, *_ in seen for number in batch]


def weights(trainer):
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def test_a_killed_run_ends_as_an_uninterrupted_one(model_folder, tmp_path):
    whole, mining = killed.build(model_folder, tmp_path / "whole")
    expected = note_batches(mining)
    whole.train()
    process = run_function(killed.train_until, 15, model_folder, tmp_path / "killed")
    assert process.returncode == -signal.SIGKILL, process.stderr
    resumed, mining = killed.build(model_folder, tmp_path / "killed")
    seen = note_batches(mining)
    resumed.train(resume_from_checkpoint=True)  # step 12 of 20, in the second epoch
    assert [batch for batch, *_ in seen] == [batch for batch, *_ in expected[24:]]
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))


def test_a_run_goes_on_after_a_whole_epoch(trainer_of, tmp_path):
    whole = trainer_of(pairs(60), num_train_epochs=3, save_strategy="epoch")
    expected = note_batches(HardNegatives(bits=64).attach(whole))
    whole.train()
    resumed = trainer_of(pairs(60), num_train_epochs=3, save_strategy="no")
    seen = note_batches(HardNegatives(bits=64).attach(resumed))
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert [batch for batch, *_ in seen] == [batch for batch, *_ in expected[5:]]
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))


def test_another_batch_size_cannot_go_on(trainer_of, tmp_path):
    first = trainer_of(pairs(60), num_train_epochs=1, save_strategy="epoch")
    HardNegatives(bits=64).attach(first)
    first.train()
    resumed = trainer_of(pairs(60), batch_size=20)
    HardNegatives(bits=64).attach(resumed)
    with pytest.raises(ValueError, match="batch_size was 12, here it is 20"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))


@pytest.mark.parametrize("num_ranks", [0, 2])
def test_a_checkpoint_without_a_state_for_all_ranks_is_said(trainer_of, tmp_path, caplog, num_ranks):
    trainer_of(pairs(60), num_train_epochs=1, save_strategy="epoch").train()
    if num_ranks:
        torch.save({"ranks": num_ranks, "samplers": {}}, tmp_path / "checkpoint-5" / "hard_negatives_0.pt")
    resumed = trainer_of(pairs(60))
    HardNegatives(bits=64).attach(resumed)
    with caplog.at_level(logging.WARNING, "lookalike"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    assert "is missing for some ranks: batches are composed as in a new run" in caplog.text


class Deaf(torch.nn.Module):
    """A loss that embeds by other means than the model."""

    def __init__(self, model):
        super().__init__()
        self.embedding = model[0].auto_model.embeddings.word_embeddings

    def forward(self, features, _):
        anchors, positives = (self.embedding(feature["input_ids"]).mean(1) for feature in features)
        return torch.nn.functional.cross_entropy(cos_sim(anchors, positives), torch.arange(len(anchors)))


def test_an_epoch_without_observations_is_said(trainer_of, caplog):
    trainer = trainer_of(pairs(24), Deaf, num_train_epochs=1)
    HardNegatives(bits=64).attach(trainer)
    with caplog.at_level(logging.WARNING, "lookalike"):
        trainer.train()
    assert "nothing was observed in a whole epoch, so no negatives are mined from it: Deaf must embed" in caplog.text


def test_bad_input_is_said_at_once(trainer_of):
    with pytest.raises(TypeError, match=r"HardNegatives takes bits, .* not bitz"):
        HardNegatives(bitz=3)
    with pytest.raises(ValueError, match="multiple of 8"):
        HardNegatives(bits=12)
    with pytest.raises(TypeError, match="takes a SentenceTransformerTrainer, got a Linear"):
        HardNegatives().attach(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"needs rows by number, and train_dataset is a stream \(IterableDataset\)"):
        HardNegatives().attach(trainer_of(pairs(24).to_iterable_dataset(), max_steps=2))
    single = pairs(24).remove_columns("positive").add_column("label", [0] * 24)
    with pytest.raises(ValueError, match=r"mining needs pairs.*are anchor, label"):
        HardNegatives().attach(trainer_of(single))
    with pytest.raises(ValueError, match="labels"):
        HardNegatives(labels=[1, 2]).attach(trainer_of(pairs(24)))
    with pytest.raises(ValueError, match="a dictionary by name, and 'a' is not in it"):
        HardNegatives(labels=[1, 2]).attach(trainer_of(DatasetDict({"a": pairs(24)})))
    replaced = trainer_of(pairs(24))
    mining = HardNegatives().attach(replaced)
    replaced.train_dataset = pairs(24)
    with pytest.raises(ValueError, match=r"replaced after attach\(\)"):
        replaced.train()
    with pytest.raises(ValueError, match="has a trainer already"):
        mining.attach(trainer_of(pairs(24)))
