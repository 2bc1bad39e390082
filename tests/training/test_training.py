import contextlib
import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import time

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lookalike.training.errors import DivergenceError, Interrupted
from lookalike.training.loop import TrainingLoop
from lookalike.training.run import train
from lookalike.training.settings import SAMPLERS, Settings, parse_strategy
from lookalike.training.strategies import make_optimizer, schedule
from tests.processes import PATIENCE
from tests.toys import toy_data, toy_model

TIMES = ("seconds", "mining_seconds", "mining_share", "mining_seconds_per_epoch")


def quick(sampler="lsh", **options):
    return Settings(**{"bits": 64, "epochs": 4, "pairs_per_batch": 8, **parse_strategy(sampler), **options})


def metrics(folder):
    """Everything that was recorded, but for times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines.append(json.loads((folder / "result.json").read_text()))
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


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
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {
        "run.json",
        "metrics.jsonl",
        "result.json",
        "model",
    }


def hardest_negatives(model, folder):
    """Per sampler and epoch, with a model that stands still: learning would even the hardness out."""
    hardest = {}
    for sampler in ("random", "lsh"):
        seen = []
        settings = quick(sampler, pairs_per_batch=5, learning_rate=1e-9)
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


class Tied(nn.Module):
    """Two layers that share their weights, as encoder and decoder of a language model."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


def test_tied_weights_are_saved(tmp_path):
    model = Tied()
    train(toy_data(), quick(epochs=1), out=tmp_path, model=model)
    other = Tied()
    other.load_state_dict(load_file(tmp_path / "model" / "model.safetensors"))
    assert torch.equal(other.second.weight, model.first.weight)


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


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_stopped_after_any_step_and_resumed_it_ends_the_same(tmp_path, sampler, paired):
    data, settings = toy_data(paired=paired), quick(sampler)
    train(data, settings, out=tmp_path / "whole", model=toy_model())
    for steps in (1, 3, 4, 5, 3, 8, 7):  # some end with the last batch of an epoch, most in its middle
        with contextlib.suppress(Interrupted):
            train(data, settings, out=tmp_path / "parts", model=_stopping_in(steps), resume=True)
    train(data, settings, out=tmp_path / "parts", model=toy_model(seed=9), resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]


def _stopping_in(steps):
    """A model that asks its own process to terminate in the so-manieth training step."""
    model = toy_model()
    calls = 0

    def count(module, _inputs):
        nonlocal calls
        calls += module.training
        if calls == steps and module.training:
            os.kill(os.getpid(), signal.SIGTERM)

    model.register_forward_pre_hook(count)
    return model


class Killed(BaseException):
    """Ends a run as kill -9 does: nothing more is saved."""


def _dying(when):
    """Return a model that dies in the so-manieth forward pass of a mode: ("evaluation", 3) or ("training", 1)."""
    mode, passes = when
    model, calls = toy_model(), 0

    def count(module, _inputs):
        nonlocal calls
        calls += module.training == (mode == "training")
        if calls == passes and module.training == (mode == "training"):
            raise Killed

    model.register_forward_pre_hook(count)
    return model


def _killed_and_resumed(folder, data, settings, deaths):
    for when in deaths:
        with pytest.raises(Killed):
            train(data, settings, out=folder, model=_dying(when), resume=True)
    return train(data, settings, out=folder, model=toy_model(seed=9), resume=True)


# In evaluation mode, a run embeds two samples, to try the model, and then the test's references and queries.
@pytest.mark.parametrize("sampler", ["lsh", "random"])
@pytest.mark.parametrize(
    "deaths",
    [
        [("evaluation", 2)],  # before training
        [("evaluation", 3), ("training", 3)],
        [("training", 6), ("evaluation", 4)],
        [("evaluation", 4), ("training", 1)],  # in the first epoch's evaluation, then in the second epoch
    ],
)
def test_killed_in_an_evaluation_and_then_in_an_epoch_it_ends_the_same(tmp_path, sampler, deaths):
    data, settings = toy_data(), quick(sampler)
    train(data, settings, out=tmp_path / "whole", model=toy_model())
    _killed_and_resumed(tmp_path / "parts", data, settings, deaths)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]


def test_the_model_is_evaluated_before_its_first_step_once(tmp_path):
    data, seen = toy_data(), []
    with pytest.raises(Killed):
        train(data, quick(), out=tmp_path, model=_dying(("training", 1)), on_epoch=seen.append)
    assert [epoch.epoch for epoch in seen] == [0]
    model = toy_model()
    untrained = TrainingLoop(model, data, quick(), torch.device("cpu")).evaluate()
    result = train(data, quick(evaluate_every=0), out=tmp_path / "other", model=toy_model())
    assert result.zero_shot == untrained
    result = train(data, quick(), out=tmp_path, model=toy_model(), resume=True, on_epoch=seen.append)
    assert result.zero_shot == untrained
    assert [epoch.epoch for epoch in seen] == [0, 1, 2, 3, 4]
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0]) == {"epoch": 0, "step": 0, **untrained}


def test_an_evaluation_can_be_interrupted(tmp_path):
    """The embedding of millions of passages takes hours."""
    data, settings = toy_data(), quick()
    whole = train(data, settings, out=tmp_path / "whole", model=toy_model())
    model, passes = toy_model(), []

    def stop(module, _inputs):
        passes.append(module.training)
        if passes == [False, False]:  # the first tries the model, the second is of the evaluation before training
            os.kill(os.getpid(), signal.SIGTERM)

    model.register_forward_pre_hook(stop)
    with pytest.raises(Interrupted):
        train(data, settings, out=tmp_path / "part", model=model)
    assert passes == [False, False]
    assert train(data, settings, out=tmp_path / "part", model=toy_model(), resume=True).metrics == whole.metrics


def train_in_process(folder):
    torch.set_num_threads(1)
    train(toy_data(), quick(epochs=12), out=folder, model=toy_model(), resume=True)


def test_killed_at_twenty_random_moments_it_ends_the_same(tmp_path):
    """kill -9 leaves no time to save anything; what was saved before must do."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.test_training"])
    whole = context.Process(target=train_in_process, args=(tmp_path / "whole",))
    began = time.perf_counter()
    whole.start()
    whole.join(PATIENCE)
    assert whole.exitcode == 0
    duration = time.perf_counter() - began
    moments, kills, lives = random.Random(0), 0, 0
    while kills < 20:
        lives += 1
        assert lives < 200, "the run ends before it can be killed"
        process = context.Process(target=train_in_process, args=(tmp_path / "killed",))
        process.start()
        time.sleep(moments.uniform(0, duration / 4))
        process.kill()
        process.join(PATIENCE)
        kills += process.exitcode == -signal.SIGKILL
        if (tmp_path / "killed" / "result.json").exists() and kills < 20:  # all over: go back, and on killing
            (tmp_path / "killed" / "result.json").unlink()
            (tmp_path / "killed" / "metrics.jsonl").unlink()
    last = context.Process(target=train_in_process, args=(tmp_path / "killed",))
    last.start()
    last.join(PATIENCE)
    assert last.exitcode == 0
    assert metrics(tmp_path / "killed") == metrics(tmp_path / "whole")
    assert {path.name for path in (tmp_path / "killed").iterdir()} - {".lock"} == {
        "run.json",
        "metrics.jsonl",
        "result.json",
        "model",
    }


def test_overlap_is_tracked_and_survives_a_stop(tmp_path, monkeypatch):
    monkeypatch.setattr("lookalike.analysis.tracking.ANCHORS", 50)
    settings = quick(track_overlap=True)
    data = toy_data(classes=60)
    train(data, settings, out=tmp_path / "whole", model=toy_model())
    with pytest.raises(Interrupted):
        train(data, settings, out=tmp_path / "parts", model=_stopping_in(20))
    train(data, settings, out=tmp_path / "parts", model=toy_model(), resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    for epoch in metrics(tmp_path / "whole")[1:-1]:
        shares = [epoch["overlap"][bits] for bits in ("128", "256", "512", "1024")]
        assert 0.6 < shares[0] <= shares[-1] <= 1  # 128 of 240 are found even by chance
        shifts = [epoch["positional_distance"][bits] for bits in ("128", "1024")]
        assert shifts[0] > shifts[1]


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


def test_other_peoples_runs_are_not_touched(tmp_path):
    data = toy_data()
    train(data, quick(), out=tmp_path, model=toy_model())
    before = (tmp_path / "result.json").read_bytes()
    with pytest.raises(ValueError, match="holds a finished run; force=True overwrites it"):
        train(data, quick(), out=tmp_path, model=toy_model())
    with pytest.raises(ValueError, match=r"another configuration: bits was 64, now 128; epochs was 4, now 5\."):
        train(data, quick(bits=128, epochs=5), out=tmp_path, model=toy_model(), resume=True)
    assert (tmp_path / "result.json").read_bytes() == before
    assert train(data, quick(), out=tmp_path, model=toy_model(), resume=True).as_json() == json.loads(before)
    train(data, quick(epochs=2), out=tmp_path, model=toy_model(), force=True)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    (tmp_path / "result.json").unlink()
    with pytest.raises(ValueError, match=r"an unfinished run: resume=True continues it; force=True"):
        train(data, quick(epochs=2), out=tmp_path, model=toy_model())


def test_weights_decay_but_norms_biases_and_temperature_do_not():
    model = toy_model()
    optimizer = make_optimizer([model], quick(), torch.device("cpu"))
    decaying = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert decaying == {id(model[0].weight), id(model[4].weight)}


def test_schedule_rises_then_falls_to_zero():
    rates = [schedule(step, 100, 0.1) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1.0
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    assert rates[100] == 0
    assert schedule(0, 1, 0.0) == 1.0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"sampler": "hardest"},
            "sampler must be one of 'random', 'batchhard', 'full', 'incremental', 'lsh', got 'hardest'",
        ),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"pairs_per_batch": 1}, "pairs_per_batch must be at least 2"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"warmup": 1.0}, "warmup must be at least 0 and below 1, got 1"),
        ({"guard": 7.0}, "guard must be above 0 and at most 2, got 7"),
        ({"hardness": 1.5}, "hardness must be at least 0 and at most 1, got 1.5"),
        ({"method": "kmeans"}, "method must be one of 'growth', 'sample4geo', got 'kmeans'"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"learning_rate": float("inf")}, "learning_rate must be above 0, got inf"),
        ({"temperature": float("nan")}, "temperature must be above 0, got nan"),
        ({"target_overlap": 0.0}, "target_overlap must be above 0 and at most 1, got 0"),
    ],
)
def test_settings_that_cannot_be(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings(**options)


@pytest.mark.parametrize("options", [{"epochs": "3"}, {"hardness": "all"}, {"seed": 1.5}, {"track_overlap": "yes"}])
def test_settings_of_another_type(options):
    with pytest.raises(TypeError, match=f"{next(iter(options))} must be "):
        Settings(**options)


def test_bits_are_chosen_while_training_and_recorded(tmp_path):
    data, settings = toy_data(classes=60), quick("lsh:auto", target_overlap=0.75)
    assert settings.strategy == "lsh:auto"
    seen = []
    train(data, settings, out=tmp_path / "whole", model=toy_model(), on_epoch=seen.append)
    assert seen[1].bits == 1024  # nothing is known in the first epoch
    assert all(epoch.bits < 1024 for epoch in seen[2:])
    for steps in (3, 21, 30):
        with contextlib.suppress(Interrupted):
            train(data, settings, out=tmp_path / "parts", model=_stopping_in(steps), resume=True)
    train(data, settings, out=tmp_path / "parts", model=toy_model(seed=9), resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")


def test_strategies_by_name():
    assert parse_strategy("lsh:auto") == {"sampler": "lsh", "bits": "auto"}
    assert parse_strategy("lsh:128") == {"sampler": "lsh", "bits": 128}
    assert Settings(**parse_strategy("lsh:128")).strategy == "lsh:128"
    for text in ("random:128", "random:auto", "lsh:many", "lsh:-8"):
        with pytest.raises(ValueError, match="only lsh takes a number of bits"):
            parse_strategy(text)
