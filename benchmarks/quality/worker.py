"""A process of the pool: trains one cell after another, with imports, data and the GPU's context paid for once."""

import gc
import json
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from benchmarks.quality.cells import Cell
from benchmarks.quality.loops import ObservedLoop
from benchmarks.quality.tokens import make_encoder_with_kept_tokens
from benchmarks.quality.triplets import with_mined_negatives
from lookalike.data import RetrievalData
from lookalike.training import run
from lookalike.training.errors import Interrupted
from lookalike.training.run_folder import RunFolder


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: with a result, with an error, or with neither, if it was stopped and can be resumed."""

    result: dict[str, Any] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    """Metrics of every epoch; the first is the model before training."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What `ObservedLoop` saw; empty if the run was finished before."""
    description: str = ""
    """The data in one sentence."""
    error: str | None = None


def work(connection: Connection, inputs: Path, runs: Path, log: Path, keeps_tokens: bool) -> None:
    """Train the cells that come through the connection until None comes; answer each with an `Outcome`.

    Args:
        connection: To the pool.
        inputs: The folder of inputs.
        runs: The folder of the runs.
        log: File for what is printed.
        keeps_tokens: Tokenise every text once, which makes times of epochs after the first too short.
    """
    with log.open("a") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.setpgrp()  # only the parent receives Ctrl-C and passes it on
    signal.signal(signal.SIGTERM, _State.stop)
    threading.Thread(target=_stop_without_parent, daemon=True).start()
    os.chdir(inputs)  # data and weights are named relative to it
    torch.set_num_threads(1)
    ObservedLoop.known = runs / "untrained"
    loops: Any = run  # `train` offers no other way to observe its loop
    loops.TrainingLoop, ObservedLoop.check_earlier = ObservedLoop, _State.check
    if keeps_tokens:
        loops.make_encoder = make_encoder_with_kept_tokens
    loaded: dict[str, RetrievalData] = {}
    while (cell := connection.recv()) is not None:
        _State.is_busy = True
        try:
            _State.check()
            outcome = _trained(cell, runs, loaded)
        except Interrupted:
            outcome = Outcome()
        except Exception:  # noqa: BLE001 - whatever it is, other cells are not affected
            outcome = Outcome(error=traceback.format_exc())
        _State.is_busy = False
        connection.send(outcome)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # other processes need it


def _trained(cell: Cell, runs: Path, loaded: dict[str, RetrievalData]) -> Outcome:
    print(f"{cell.folder}: begins", flush=True)
    folder = RunFolder(runs / cell.folder)
    name = f"{cell.source}, {cell.negatives and cell.model}, {cell.negatives}"
    if name not in loaded:
        loaded[name] = cell.source.load()
        if cell.negatives:
            loaded[name] = with_mined_negatives(loaded[name], cell.model, cell.negatives, runs / "negatives")
    ObservedLoop.notes = {}
    result = run.train(loaded[name], cell.settings, out=folder.path, model=cell.model, resume=True, progress=False)
    shutil.rmtree(folder.model, ignore_errors=True)  # hundreds of runs would fill the disk
    history = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return Outcome(result.as_json(), history, ObservedLoop.notes, loaded[name].description)


class _State:
    """Whether this process works, and whether it was asked to stop."""

    is_busy = is_stopping = False

    @classmethod
    def stop(cls, number: int, frame: FrameType | None) -> None:  # noqa: ARG003 - signal prescribes the arguments
        """Stop a cell that does not train yet; `train` has a handler of its own."""
        cls.is_stopping = True
        if cls.is_busy:
            raise Interrupted(number)

    @classmethod
    def check(cls) -> None:
        """Raise `Interrupted` if a signal came before the work began."""
        if cls.is_stopping:
            raise Interrupted(signal.SIGTERM)


def _stop_without_parent() -> None:
    """Save and stop if the parent is killed; the connection then ends as well."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
