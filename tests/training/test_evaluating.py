"""The best epoch by validation: which one it is, what is kept of it, and that the test has no part in it."""

import contextlib
import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from lookalike.data.validation import hold_out
from lookalike.training.errors import Interrupted
from lookalike.training.evaluating import Evaluator
from lookalike.training.results import EpochMetrics, best_epoch, is_stale
from lookalike.training.run import train
from tests.toys import toy_data, toy_model
from tests.training.runs import FILES, Killed, dying_in, metrics, names, quick, stopping_in, weights

VALIDATED = {"validation_share": 0.2, "epochs": 5, "pairs_per_batch": 6, "learning_rate": 0.01}
SCORES = [0.1, 0.4, 0.6, 0.5, 0.6, 0.3]  # epoch 0 to 5; the best is epoch 2


def epochs_with(scores):
    return [EpochMetrics(epoch=i, validation={"mrr@10": x}) for i, x in enumerate(scores) if x is not None]


@pytest.fixture
def scripted(monkeypatch):
    """Validation that gives `SCORES`, however good the model is, by the steps that were trained."""
    seen = []
    validation = Evaluator.validation

    def score(self):
        measured = validation(self)
        seen.append(measured)
        return {**measured, "mrr@10": SCORES[len(seen) - 1]}

    monkeypatch.setattr(Evaluator, "validation", score)
    return seen


def test_the_first_of_the_best_epochs_counts_and_epoch_0_does_not():
    assert best_epoch(epochs_with([0.9, 0.4, 0.6, None, 0.6])).epoch == 2
    assert best_epoch(epochs_with([0.9])) is None
    assert best_epoch([EpochMetrics(epoch=1, quality={"mrr@10": 1.0})]) is None


def test_patience_counts_evaluations_without_improvement():
    history = epochs_with([0.9, 0.4, 0.6, None, 0.5, 0.6])
    assert [is_stale(history[:n], 2) for n in range(len(history) + 1)] == [False] * 5 + [True]
    assert not is_stale(history, 3)
    assert not is_stale(history, None)
    assert not is_stale([EpochMetrics(epoch=i, quality={"mrr@10": 0.1}) for i in range(9)], 1)


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize("paired", [False, True])
def test_the_weights_of_the_best_epoch_are_saved_and_tested(tmp_path, paired):
    data, settings, states, seen = toy_data(paired=paired), quick(**VALIDATED), {}, []
    model = toy_model()

    def keep(epoch):
        seen.append(epoch)
        states[epoch.epoch] = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    result = train(data, settings, out=tmp_path, model=model, on_epoch=keep, keep_checkpoint=True)
    assert [epoch.epoch for epoch in seen] == [0, 1, 2, 3, 4, 5]
    assert (result.best_epoch, result.epochs, result.validation["mrr@10"]) == (2, 5, 0.6)
    saved = load_file(tmp_path / "model" / "model.safetensors")
    assert all(torch.equal(saved[name], tensor) for name, tensor in states[2].items())
    assert not all(torch.equal(saved[name], tensor) for name, tensor in states[5].items())
    best = toy_model()
    best.load_state_dict(saved)
    assert result.metrics == Evaluator(data, quick(), torch.device("cpu"), partial(embedded, best)).test()


def embedded(model, view, n, _tower):
    with torch.no_grad():
        return model.eval()(view(torch.arange(n)))


def test_the_test_is_evaluated_before_training_and_at_the_end_only(tmp_path, scripted, monkeypatch):
    tested, test = [], Evaluator.test

    def counted(self):
        tested.append(len(scripted))
        return test(self)

    monkeypatch.setattr(Evaluator, "test", counted)
    seen = []
    result = train(toy_data(), quick(**VALIDATED), out=tmp_path, model=toy_model(), on_epoch=seen.append)
    assert tested == [0, 6]
    assert [bool(epoch.quality) for epoch in seen] == [True, False, False, False, False, False]
    assert all(epoch.validation["queries"] == 24 for epoch in seen)  # six of thirty classes with four samples
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if "recall@1" in line] == [0, 2]
    assert lines[2]["recall@1"] == result.metrics["recall@1"]
    assert [line["validation"]["mrr@10"] for line in lines] == SCORES


def test_training_does_not_see_what_is_held_out(tmp_path):
    data, settings = toy_data(), quick(**VALIDATED, evaluate_every=0)
    plain = train(data, settings, out=tmp_path / "a", model=toy_model())
    other = replace(data.train, x=data.train.x.clone())
    held = hold_out(data, 0.2).validation.samples.ids
    other.x[held] = torch.randn(len(held), 8)
    spoiled = train(replace(data, train=other), settings, out=tmp_path / "b", model=toy_model())
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert plain.metrics == spoiled.metrics
    assert plain.validation != spoiled.validation


def test_patience_ends_training_early(tmp_path, scripted):
    result = train(toy_data(), quick(**VALIDATED, patience=2), out=tmp_path, model=toy_model())
    assert (result.best_epoch, result.epochs) == (2, 4)
    assert len(scripted) == 5
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 5
    assert names(tmp_path) == FILES


@pytest.mark.usefixtures("scripted")
def test_epochs_between_evaluations_are_not_validated(tmp_path):
    result = train(toy_data(), quick(**VALIDATED, evaluate_every=2), out=tmp_path, model=toy_model())
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if "validation" in line] == [0, 2, 4, 5]
    assert result.best_epoch == 4


PATIENT = {**VALIDATED, "learning_rate": 0.1, "epochs": 8, "patience": 2}  # a rate at which the best epoch comes early


@pytest.mark.parametrize("paired", [False, True])
def test_stopped_at_any_moment_and_resumed_it_ends_the_same(tmp_path, paired):
    data, settings = toy_data(paired=paired), quick(**PATIENT)
    whole = train(data, settings, out=tmp_path / "whole", model=toy_model())
    assert whole.best_epoch < whole.epochs < 8  # or there would be nothing to keep, or to stop
    for steps in (2, 7, 9, 6, 13, 5):
        with contextlib.suppress(Interrupted):
            train(data, settings, out=tmp_path / "parts", model=stopping_in(steps), resume=True)
    train(data, settings, out=tmp_path / "parts", model=toy_model(seed=9), resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_killed_in_every_evaluation_it_ends_the_same(tmp_path):
    """In the last one, the weights of the best epoch have just been loaded."""
    data, settings = toy_data(), quick(**PATIENT)
    whole = train(data, settings, out=tmp_path / "whole", model=toy_model())
    assert whole.best_epoch < whole.epochs
    lives = 0
    while True:
        lives += 1
        assert lives < 30
        passes = 5 if lives == 1 else 3 + lives % 2  # one tries the model; three evaluate it before training
        try:
            train(data, settings, out=tmp_path / "parts", model=dying_in("evaluation", passes), resume=True)
            break
        except Killed:
            continue
    assert lives > whole.epochs / 2
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


@pytest.mark.parametrize("interruption", [Killed, Interrupted])
def test_stopped_while_the_best_weights_are_tested_it_ends_the_same(tmp_path, monkeypatch, interruption):
    data, settings, test = toy_data(), quick(**PATIENT), Evaluator.test
    train(data, settings, out=tmp_path / "whole", model=toy_model())
    calls = []

    def stop(self):
        calls.append(1)
        if len(calls) == 2:
            raise Interrupted(15) if interruption is Interrupted else Killed
        return test(self)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "test", stop)
        with pytest.raises(interruption):
            train(data, settings, out=tmp_path / "part", model=toy_model())
    train(data, settings, out=tmp_path / "part", model=toy_model(seed=9), resume=True)
    assert metrics(tmp_path / "part") == metrics(tmp_path / "whole")
    assert weights(tmp_path / "part") == weights(tmp_path / "whole")


def test_a_result_that_was_lost_is_written_again_from_the_checkpoint(tmp_path):
    data, settings = toy_data(), quick(**PATIENT)
    train(data, settings, out=tmp_path, model=toy_model(), keep_checkpoint=True)
    before = metrics(tmp_path), weights(tmp_path)
    (tmp_path / "result.json").unlink()
    train(data, settings, out=tmp_path, model=toy_model(seed=9), resume=True)
    assert (metrics(tmp_path), weights(tmp_path)) == before


def test_data_may_bring_a_validation_part(tmp_path):
    toys = toy_data()
    data = replace(toys, validation=toys.test)
    result = train(data, quick(epochs=3, patience=5), out=tmp_path, model=toy_model())
    assert result.best_epoch is not None
    assert result.validation == result.metrics


def test_a_run_without_a_validation_part_has_no_best_epoch(tmp_path):
    result = train(toy_data(), quick(epochs=1), out=tmp_path, model=toy_model(), keep_checkpoint=True)
    assert (result.best_epoch, result.validation) == (None, None)
    assert "best" not in torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert "validation" not in (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"patience": 3},
            "patience= watches a validation part, and toys has none: hold one out with validation_share=",
        ),
        ({"validation_share": 0.01}, "validation_share=0.01 holds out 0 of 30 classes"),
        ({"validation_share": 0.9}, "validation_share=0.9 leaves 3 of 30 classes"),
    ],
)
def test_impossible_validation_leaves_no_folder(tmp_path, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        train(toy_data(), quick(**options), out=tmp_path / "run", model=toy_model())
    assert not (tmp_path / "run").exists()
