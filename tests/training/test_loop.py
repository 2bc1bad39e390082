"""What training does: it learns, its batches are hard, and what an epoch reports is true."""

import contextlib
import json
import re

import pytest
import torch
from torch import nn

from lookalike.training.errors import DivergenceError, Interrupted
from lookalike.training.loop import TrainingLoop
from lookalike.training.run import train
from lookalike.training.settings import SAMPLERS
from tests.toys import toy_data, toy_model
from tests.training.runs import FILES, Killed, dying_in, metrics, names, quick, stopping_in


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_strategy_learns(tmp_path, sampler, paired):
    data = toy_data(paired=paired)
    seen = []
    settings = quick(sampler, epochs=6, learning_rate=0.01)
    result = train(data, settings, out=tmp_path, model=toy_model(), on_epoch=seen.append)
    assert [epoch.epoch for epoch in seen] == [0, 1, 2, 3, 4, 5, 6]
    assert seen[-1].loss < 0.9 * seen[1].loss
    assert result.metrics["recall@1"] > 0.5  # of new classes; chance is 5%
    assert result.metrics == seen[-1].quality
    towers = 2 if paired else 1
    samples = 30 if paired else 120
    kept = {"lsh": samples * 8 + -(-samples // 8), "incremental": samples * 64, "full": samples * 64}
    assert result.kept_bytes == towers * kept.get(sampler, 0)
    assert names(tmp_path) == FILES


def hardest_negatives(model, folder):
    """Per sampler and epoch, with a model that stands still: learning would even the hardness out."""
    hardest = {}
    for sampler in ("random", "lsh"):
        seen = []
        settings = quick(sampler, pairs_per_batch=5, learning_rate=1e-9, warm_start="off")
        train(toy_data(classes=100), settings, out=folder / sampler, model=model, on_epoch=seen.append)
        hardest[sampler] = [epoch.hardest_negative for epoch in seen[1:]]
    assert hardest["lsh"][0] == pytest.approx(hardest["random"][0], abs=0.02)  # nothing is known in the first epoch
    return [mined - drawn for mined, drawn in zip(hardest["lsh"][1:], hardest["random"][1:], strict=True)]


def test_mined_batches_are_harder(tmp_path):
    torch.manual_seed(0)
    assert min(hardest_negatives(nn.Linear(8, 16), tmp_path)) > 0.1


def test_batch_normalisation_takes_the_hardness_away(tmp_path, caplog):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))
    assert max(hardest_negatives(model, tmp_path)) < 0.1
    assert "the model normalises batches" in caplog.text


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (nn.Linear(9, 4), "cannot embed what toys gives, torch.float32 [2, 8]: mat1 and mat2 shapes"),
        (nn.Unflatten(1, (2, 4)), "a model must turn n samples into embeddings [n, dim], got [2, 2, 4]"),
    ],
)
def test_a_model_that_does_not_fit_leaves_no_folder(tmp_path, model, sentence):
    model.register_parameter("scale", nn.Parameter(torch.ones(1)))
    with pytest.raises(ValueError, match=re.escape(sentence)):
        train(toy_data(), quick(), out=tmp_path / "run", model=model)
    assert not (tmp_path / "run").exists()


def test_the_model_is_evaluated_before_its_first_step_once(tmp_path):
    data, seen = toy_data(), []
    with pytest.raises(Killed):
        train(data, quick(), out=tmp_path, model=dying_in("training", 1), on_epoch=seen.append)
    assert [epoch.epoch for epoch in seen] == [0]
    model = toy_model()
    untrained = TrainingLoop(model, data, quick(), torch.device("cpu")).evaluator.test()
    result = train(data, quick(evaluate_every=0), out=tmp_path / "other", model=toy_model())
    assert result.zero_shot == untrained
    result = train(data, quick(), out=tmp_path, model=toy_model(), resume=True, on_epoch=seen.append)
    assert result.zero_shot == untrained
    assert [epoch.epoch for epoch in seen] == [0, 1, 2, 3, 4]
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0]) == {"epoch": 0, "step": 0, **untrained}


def test_overlap_is_tracked_and_survives_a_stop(tmp_path, monkeypatch):
    monkeypatch.setattr("lookalike.analysis.tracking.ANCHORS", 50)
    settings = quick(track_overlap=True)
    data = toy_data(classes=60)
    train(data, settings, out=tmp_path / "whole", model=toy_model())
    with pytest.raises(Interrupted):
        train(data, settings, out=tmp_path / "parts", model=stopping_in(20))
    train(data, settings, out=tmp_path / "parts", model=toy_model(), resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    for epoch in metrics(tmp_path / "whole")[1:-1]:
        shares = [epoch["overlap"][bits] for bits in ("128", "256", "512", "1024")]
        assert 0.6 < shares[0] <= shares[-1] <= 1  # 128 of 240 are found even by chance
        shifts = [epoch["positional_distance"][bits] for bits in ("128", "1024")]
        assert shifts[0] > shifts[1]


def test_bits_are_chosen_while_training_and_recorded(tmp_path):
    data, settings = toy_data(classes=60), quick("lsh:auto", target_overlap=0.75, warm_start="off")
    assert settings.strategy == "lsh:auto"
    seen = []
    train(data, settings, out=tmp_path / "whole", model=toy_model(), on_epoch=seen.append)
    assert seen[1].bits == 1024  # nothing is known in the first epoch
    assert all(epoch.bits < 1024 for epoch in seen[2:])
    for steps in (3, 21, 30):
        with contextlib.suppress(Interrupted):
            train(data, settings, out=tmp_path / "parts", model=stopping_in(steps), resume=True)
    train(data, settings, out=tmp_path / "parts", model=toy_model(seed=9), resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")


@pytest.mark.parametrize("paired", [False, True])
def test_what_the_loss_masks_is_reported_by_epoch_and_survives_a_stop(tmp_path, paired):
    data, settings = toy_data(paired=paired), quick(mask_above=0.5, pairs_per_batch=6)
    seen = []
    train(data, settings, out=tmp_path / "whole", model=toy_model(), on_epoch=seen.append)
    assert seen[0].masked is None
    assert all(0 < epoch.masked < 1 for epoch in seen[1:])
    assert len({epoch.masked for epoch in seen[1:]}) == 4  # of each epoch alone
    for steps in (2, 6, 7):
        with contextlib.suppress(Interrupted):
            train(data, settings, out=tmp_path / "parts", model=stopping_in(steps), resume=True)
    train(data, settings, out=tmp_path / "parts", model=toy_model(seed=9), resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")


class Failing(nn.Module):
    """Gives NaN from some training step on."""

    def __init__(self, healthy_steps):
        super().__init__()
        self.inner, self.left = toy_model(), healthy_steps

    def forward(self, x):
        self.left -= self.training
        return self.inner(x) * (torch.nan if self.left < 0 else 1.0)


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_state(tmp_path):
    with pytest.raises(
        DivergenceError, match=r"became nan at step 19 of 32 \(epoch 3\).*keeps the state after epoch 2"
    ):
        train(toy_data(), quick(), out=tmp_path, model=Failing(18))
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert state["epoch"] == 2
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state["model"].values())
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_failure_in_the_evaluation_costs_no_epoch(tmp_path, monkeypatch):
    calls = []

    def fail(*_, **__):
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("out of memory")
        return {"recall@1": 0.0}

    monkeypatch.setattr("lookalike.training.evaluating.summarize", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        train(toy_data(), quick(epochs=2), out=tmp_path, model=toy_model(), device="cpu")
    checkpoint = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert checkpoint["step"] == len(checkpoint["this_epoch"]["losses"]) > 0


@pytest.mark.parametrize("paired", [False, True])
def test_the_first_epoch_says_what_became_of_the_warm_start(tmp_path, paired):
    data, seen = toy_data(paired=paired, classes=60), {}
    for name, options in {
        "auto": {"learning_rate": 1e-4},
        "off": {"warm_start": "off"},
        "torn": {"learning_rate": 50.0, "clip": 0.0, "epochs": 1},
    }.items():
        seen[name] = []
        torch.manual_seed(0)
        train(data, quick(**options), out=tmp_path / name, model=nn.Linear(8, 16), on_epoch=seen[name].append)
    assert [epoch.warm_start for epoch in seen["auto"][:3]] == [None, "used", None]
    assert seen["auto"][1].readiness > 0.7
    assert seen["auto"][2].readiness is None
    assert (seen["off"][1].warm_start, seen["off"][1].readiness) == (None, None)
    assert seen["torn"][1].warm_start == "given up"
