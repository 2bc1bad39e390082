"""Runs that take a second, and what they leave."""

import json
import signal

import pytest

from lookalike import Settings, train
from lookalike.data import DataSource
from lookalike.training.errors import Interrupted

NETWORK = ("--model-option", "width=8", "--model-option", "dim=32")
QUICK = ("--epochs", "3", *NETWORK, "--pairs-per-batch", "8")
MODEL = {"encoder": "convnet", "width": 8, "dim": 32}


def leave_unfinished(glyph_file, folder):
    """Leave what `train` with QUICK and lsh:64 leaves when it is stopped after its first epoch."""

    def stop(epoch):
        if epoch.epoch == 1:
            raise Interrupted(signal.SIGINT)

    settings = Settings(epochs=3, pairs_per_batch=8, bits=64)
    with pytest.raises(Interrupted):
        train(DataSource(str(glyph_file)), settings, out=folder, model=MODEL, on_epoch=stop, progress=False)


def first_cells(shown):
    """Return the first cell of each row of the tables on the screen."""
    return [line.split("│")[1].strip() for line in shown.splitlines() if line.startswith("│")]


def outcome(folder):
    """Return what a run depends on and what it came to, without times: its configuration, and its metrics per epoch."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    timed = {"seconds", "mining_seconds", "mining_share"}
    metrics = [{name: value for name, value in json.loads(line).items() if name not in timed} for line in lines]
    return json.loads((folder / "run.json").read_text()), metrics
