"""Kernels are compiled before anything is timed."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys, torch
from pathlib import Path
from lookalike.training.settings import Settings, parse_strategy
from lookalike.training.run import train
from tests.toys import toy_data, toy_model
from numba.core.dispatcher import Dispatcher

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("lookalike")]
    kernels = {kernel.py_func: kernel for module in modules for kernel in vars(module).values()
               if isinstance(kernel, Dispatcher)}
    return {(str(f), str(s)) for f, kernel in kernels.items() for s in kernel.signatures}

torch.set_num_threads(THREADS)
known = {}
settings = Settings(epochs=3, pairs_per_batch=16, **parse_strategy("SAMPLER"), **OPTIONS)
train(toy_data(paired=PAIRED, classes=300), settings, model=toy_model(), out=Path(sys.argv[1]),
      on_epoch=lambda metrics: known.setdefault(metrics.epoch, compiled()))
assert 0 in known, "nothing was reported before the first epoch, which compiled " + str(known[1])
assert known[0] and known[0] == compiled(), compiled() - known[0]
"""


@pytest.mark.parametrize(
    ("sampler", "paired", "options", "threads"),
    [
        ("random", False, {}, 1),
        ("random", True, {}, 2),
        ("incremental", False, {"clusters": 2}, 1),
        ("lsh:128", False, {"guard": 0.95}, 2),
        ("lsh:auto", True, {"method": "sample4geo"}, 1),
    ],
)
def test_no_epoch_compiles_anything(tmp_path, sampler, paired, options, threads):
    pytest.importorskip("numba")
    script = SCRIPT.replace("SAMPLER", sampler).replace("PAIRED", repr(paired)).replace("OPTIONS", repr(options))
    script = script.replace("THREADS", str(threads))
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
