"""Runs for tests: quick ones, and ones that stop or die at a chosen moment."""

import contextlib
import json
import os
import pathlib
import shutil
import signal

import pytest

from lookalike.training.errors import Interrupted
from lookalike.training.run import train
from lookalike.training.settings import Settings, parse_strategy
from tests.toys import toy_data, toy_model

TIMES = ("seconds", "mining_seconds", "mining_share", "mining_seconds_per_epoch")
FILES = {"run.json", "metrics.jsonl", "result.json", "model"}


def quick(sampler="lsh", **options):
    """Settings of a run of 32 steps on toys."""
    return Settings(**{"bits": 64, "epochs": 4, "pairs_per_batch": 8, **parse_strategy(sampler), **options})


def brief(**options):
    """Settings of a run of 8 steps on toys."""
    return quick(**{"epochs": 2, "pairs_per_batch": 16, **options})


def trained(out, settings=None, **options):
    return train(toy_data(), settings or brief(), out=out, model=toy_model(), progress=False, **options)


def stopped(out, steps, settings=None, **options):
    """Leave a run that was interrupted in some training step."""
    with pytest.raises(Interrupted):
        train(toy_data(), settings or brief(), out=out, model=stopping_in(steps), progress=False, **options)


def stopping_in(steps):
    """Return a model that asks its own process to terminate in the given training step."""
    return _acting_in("training", steps, lambda: os.kill(os.getpid(), signal.SIGTERM))


class Killed(BaseException):
    """Ends a run as kill -9 does: nothing more is saved."""


def killed_in(mode, passes):
    """Return a model that kills its own process in the given forward pass of a mode, as `dying_in` counts them."""
    return _acting_in(mode, passes, lambda: os.kill(os.getpid(), signal.SIGKILL))


def dying_in(mode, passes):
    """Return a model that dies in the given forward pass of a mode: "training" or "evaluation"."""

    def die():
        raise Killed

    return _acting_in(mode, passes, die)


def _acting_in(mode, passes, act):
    model, calls = toy_model(), 0

    def count(module, _inputs):
        nonlocal calls
        if module.training == (mode == "training"):
            calls += 1
            if calls == passes:
                act()

    model.register_forward_pre_hook(count)
    return model


@contextlib.contextmanager
def killed_before(monkeypatch, number):
    """Die before the given change of the file system; yields a list that is empty if it did not come to that."""
    died = []
    count = 0

    def dying(function):
        def change(*arguments, **options):
            nonlocal count
            count += 1
            if count >= number:
                died.append(count)
                raise Killed
            return function(*arguments, **options)

        return change

    with monkeypatch.context() as patch:
        for owner, name in (
            (pathlib.Path, "unlink"),
            (pathlib.Path, "replace"),
            (pathlib.Path, "rename"),
            (shutil, "rmtree"),
            (os, "fsync"),
        ):
            patch.setattr(owner, name, dying(getattr(owner, name)))
        with contextlib.suppress(Killed):
            yield died


def names(folder):
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def without_times(content):
    return {name: value for name, value in content.items() if name not in TIMES}


def outcome(result):
    return without_times(result.as_json())


def metrics(folder):
    """Everything that a finished run recorded, except times."""
    lines = [*(folder / "metrics.jsonl").read_text().splitlines(), (folder / "result.json").read_text()]
    return [without_times(json.loads(line)) for line in lines]


def weights(folder):
    return (folder / "model" / "model.safetensors").read_bytes()
