"""Kernels are compiled before anything is timed."""

import sys

import pytest
import torch
from numba.core.dispatcher import Dispatcher

from lookalike import train
from lookalike.training.settings import Settings, parse_strategy
from tests.processes import run_function
from tests.toys import toy_data, toy_model


def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("lookalike")]
    kernels = [kernel for module in modules for kernel in vars(module).values() if isinstance(kernel, Dispatcher)]
    return {(str(kernel.py_func), str(signature)) for kernel in kernels for signature in kernel.signatures}


def train_and_look(folder, sampler, paired, options, threads):
    torch.set_num_threads(threads)
    assert not compiled()  # a process in which nothing has run yet
    known = {}
    settings = Settings(epochs=3, pairs_per_batch=16, **parse_strategy(sampler), **options)
    data = toy_data(paired=paired, classes=300)
    train(data, settings, model=toy_model(), out=folder, on_epoch=lambda it: known.setdefault(it.epoch, compiled()))
    assert 0 in known, f"nothing was reported before the first epoch, which compiled {known[1]}"
    assert known[0]
    assert known[0] == compiled(), compiled() - known[0]


@pytest.mark.parametrize(
    ("sampler", "paired", "options", "threads"),
    [
        ("random", False, {}, 1),
        ("random", True, {}, 2),
        ("incremental", False, {"neighbourhood": 8}, 1),
        ("lsh:128", False, {"guard": 0.95}, 2),
        ("lsh:auto", True, {"method": "sample4geo"}, 1),
    ],
)
def test_no_epoch_compiles_anything(tmp_path, sampler, paired, options, threads):
    done = run_function(train_and_look, tmp_path, sampler, paired, options, threads)
    assert done.returncode == 0, done.stderr
