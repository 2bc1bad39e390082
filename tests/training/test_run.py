"""`train`: from names or objects to a run that can be stopped, killed and resumed at any moment."""

import contextlib
import json
import os
import pathlib
import random
import signal
import traceback

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from lookalike.data import DataSource
from lookalike.samplers.warmup import compile_kernels
from lookalike.training.encoders import make_encoder
from lookalike.training.errors import Interrupted
from lookalike.training.run import Plan, check_run, train
from lookalike.training.settings import SAMPLERS
from tests.processes import held_by_another, run_function
from tests.toys import toy_data, toy_model, write_glyph_file
from tests.training.runs import (
    FILES,
    Killed,
    dying_in,
    metrics,
    names,
    quick,
    stopped,
    stopping_in,
    trained,
    weights,
)

NETWORK = {"encoder": "convnet", "width": 8, "dim": 32}


@pytest.fixture
def glyphs(tmp_path):
    return str(write_glyph_file(tmp_path / "own.npz"))


# Names and objects


def test_a_name_takes_model_and_settings_from_its_recipe():
    plan = Plan.of("glyphs", None, None)
    assert plan.model_options == {"encoder": "convnet", "width": 24, "dim": 256}
    assert plan.settings.pairs_per_batch == 32
    assert Plan.of("glyphs", quick(), "convnet").model_options == {"encoder": "convnet"}
    assert Plan.of("glyphs", quick(), {}).model_options == {}
    assert Plan.of("glyphs", quick(), {}).settings == quick()


def test_an_encoder_is_built_once_and_only_if_it_is_needed(glyphs, tmp_path, monkeypatch):
    built = []

    def counted(**options):
        built.append(options)
        return make_encoder(**options)

    monkeypatch.setattr("lookalike.training.run.make_encoder", counted)
    settings, out = quick(epochs=1), tmp_path / "run"
    result = train(glyphs, settings, out=out, model=NETWORK, progress=False)
    assert built == [NETWORK]
    assert train(glyphs, settings, out=out, model=NETWORK, resume=True, progress=False) == result
    assert built == [NETWORK]
    assert result.config["data"] == glyphs
    assert (result.config["data_options"], result.config["model_options"]) == ({}, NETWORK)


def test_the_seed_decides_everything(glyphs, tmp_path):
    loaded = DataSource(glyphs).load()
    for name, data, seed in (("a", glyphs, 1), ("b", loaded, 1), ("c", glyphs, 2)):
        torch.rand(seed)  # whatever happened before
        train(data, quick(epochs=1, seed=seed), out=tmp_path / name, model=NETWORK, progress=False)
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(tmp_path / "c")
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")


def test_a_run_says_what_it_trains(glyphs, tmp_path):
    out, settings = tmp_path / "run", quick("lsh:auto", epochs=1)
    source = DataSource(glyphs, options={"merge_identical": False})
    train(source, settings, out=out, model=NETWORK, progress=False)
    assert Plan.recorded(out) == Plan(data=source, settings=settings, model_options=NETWORK)
    trained(tmp_path / "toys")
    with pytest.raises(ValueError, match=r"toys holds a run on data made in Python: .* resume=True"):
        Plan.recorded(tmp_path / "toys")
    config = json.loads((out / "run.json").read_text())
    for content, reason in (({**config, "epochs": -3}, r"epochs must be at least 1, got -3"), ({"bits": 8}, "sampler")):
        (out / "run.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=rf"run.json is damaged \({reason}.*\)\. force=True begins the run again"):
            Plan.recorded(out)


def check(data, settings, model, **how):
    check_run(Plan.of(data, settings, model), **how)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"resume": True, "force": True}, "resume=True continues a run and force=True overwrites it: set one of them"),
        ({"data": "glyph"}, "there is no data set 'glyph'"),
        ({"model": "convnett"}, "there is no encoder 'convnett'"),
        ({"model": {"widht": 8}}, "does not take the option 'widht'; did you mean 'width'"),
        ({"data": toy_data(), "model": None}, "toys has no recipe to take a model from: say what to train with model="),
        ({"device": "cuda:99"}, "there is no device 'cuda:99' here"),
    ],
)
@pytest.mark.parametrize("function", [train, check])
def test_impossible_arguments_are_noticed_before_anything_is_loaded(
    tmp_path, monkeypatch, function, arguments, sentence
):
    monkeypatch.setattr(DataSource, "load", lambda *_, **__: pytest.fail("data were loaded"))
    monkeypatch.setattr("lookalike.training.run.make_encoder", lambda **_: pytest.fail("a model was built"))
    with pytest.raises(ValueError, match=sentence):
        function(**{"data": "glyphs", "settings": quick(), "out": tmp_path / "run", "model": NETWORK, **arguments})
    assert not (tmp_path / "run").exists()


def test_a_run_can_be_checked_before_it_begins(tmp_path):
    data, out = toy_data(), tmp_path / "run"
    check_run(Plan.of(data, quick(), toy_model()), out)
    assert not out.exists()
    trained(out)
    with pytest.raises(ValueError, match="holds a finished run"):
        check_run(Plan.of(data, quick(), toy_model()), out)
    with pytest.raises(ValueError, match="epochs was 2, now 4"):
        check_run(Plan.of(data, quick(), toy_model()), out, resume=True)
    check_run(Plan.of(data, quick(), toy_model()), out, force=True)
    assert names(out) == FILES
    with held_by_another(out), pytest.raises(ValueError, match="is in use by process"):
        check_run(Plan.of(data, quick(), toy_model()), out, force=True)


def test_other_peoples_runs_are_not_touched(tmp_path):
    data = toy_data()
    train(data, quick(), out=tmp_path, model=toy_model())
    before = (tmp_path / "result.json").read_bytes()
    with pytest.raises(ValueError, match="holds a finished run; force=True overwrites it, out= chooses another folder"):
        train(data, quick(), out=tmp_path, model=toy_model())
    with pytest.raises(ValueError, match=r"other settings: bits was 64, now 128; epochs was 4, now 5\."):
        train(data, quick(bits=128, epochs=5), out=tmp_path, model=toy_model(), resume=True)
    with pytest.raises(ValueError, match=r"other settings: data_checksum was '30-False', now '31-False'"):
        train(toy_data(classes=31), quick(), out=tmp_path, model=toy_model(), resume=True)
    assert (tmp_path / "result.json").read_bytes() == before
    assert train(data, quick(), out=tmp_path, model=toy_model(), resume=True).as_json() == json.loads(before)
    train(data, quick(epochs=2), out=tmp_path, model=toy_model(), force=True)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    (tmp_path / "result.json").unlink()
    with pytest.raises(ValueError, match=r"an unfinished run: resume=True continues it; force=True"):
        train(data, quick(epochs=2), out=tmp_path, model=toy_model())


def test_data_that_change_are_noticed_once_they_are_loaded(glyphs, tmp_path):
    settings = quick(epochs=1)
    train(glyphs, settings, out=tmp_path / "run", model=NETWORK, progress=False)
    write_glyph_file(tmp_path / "own.npz", classes=41)
    for finished in (True, False):
        with pytest.raises(ValueError, match="other settings: data_checksum was"):
            train(glyphs, settings, out=tmp_path / "run", model=NETWORK, resume=True, progress=False)
        if finished:
            (tmp_path / "run" / "result.json").unlink()


# Stopped, killed and resumed


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_stopped_after_any_step_and_resumed_it_ends_the_same(tmp_path, sampler, paired):
    data, settings = toy_data(paired=paired), quick(sampler)
    train(data, settings, out=tmp_path / "whole", model=toy_model())
    for steps in (1, 3, 4, 5, 3, 8, 7):  # some end with the last batch of an epoch, most in its middle
        with contextlib.suppress(Interrupted):
            train(data, settings, out=tmp_path / "parts", model=stopping_in(steps), resume=True)
    train(data, settings, out=tmp_path / "parts", model=toy_model(seed=9), resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


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
    for when in deaths:
        with pytest.raises(Killed):
            train(data, settings, out=tmp_path / "parts", model=dying_in(*when), resume=True)
    train(data, settings, out=tmp_path / "parts", model=toy_model(seed=9), resume=True)
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


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


def live(folder, moment):
    """Train, and kill this process with SIGKILL at a moment: before a forward pass or a change of the file system."""
    moments = 0

    def count(*_):
        nonlocal moments
        moments += 1
        if moments == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(function):
        def change(*arguments, **options):
            count()
            return function(*arguments, **options)

        return change

    pathlib.Path.replace, os.fsync = counted(pathlib.Path.replace), counted(lambda _: None)
    pathlib.Path.unlink, pathlib.Path.rename = counted(pathlib.Path.unlink), counted(pathlib.Path.rename)
    model = toy_model()
    model.register_forward_pre_hook(count)
    train(toy_data(), quick(epochs=8), out=folder, model=model, resume=True, progress=False)
    (folder.parent / "moments").write_text(str(moments))


def lived(folder, moment=None):
    """Tell whether a forked process has trained to the end; otherwise it was killed."""
    child = os.fork()
    if not child:
        try:
            live(folder, moment)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


def kill_twenty_times(folder):
    torch.set_num_threads(1)  # a fork inherits no threads
    compile_kernels()  # once, and not in every life
    assert lived(folder / "whole")
    latest = int((folder / "moments").read_text()) // 12
    chosen = random.Random(0)
    for _ in range(20):
        if lived(folder / "killed", chosen.randint(1, latest)):  # all over: go back, and on killing
            (folder / "killed" / "result.json").unlink()
            (folder / "killed" / "metrics.jsonl").unlink()
    assert lived(folder / "killed")


def test_killed_at_twenty_random_moments_it_ends_the_same(tmp_path):
    """kill -9 leaves no time to save anything; what was saved before must do."""
    done = run_function(kill_twenty_times, tmp_path)
    assert done.returncode == 0, done.stderr
    assert metrics(tmp_path / "killed") == metrics(tmp_path / "whole")
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")
    assert names(tmp_path / "killed") == FILES


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


def test_a_stopped_run_keeps_its_configuration_and_its_state(tmp_path):
    stopped(tmp_path, 5)
    assert names(tmp_path) == {"run.json", "metrics.jsonl", "checkpoint.pt", "checkpoint.previous.pt"}
