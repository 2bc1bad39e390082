"""Training with hard negatives, from a model and a data set to a finished run.

    train(model, data, Settings(sampler="lsh", bits=512, epochs=10), Path("runs/first"))

Each epoch: compose batches of hard negatives from what the last epoch left (bits, floats or nothing), train on them
with InfoNCE while every embedding is observed as it leaves the model, evaluate, save. Randomness depends on the seed,
the epoch and the step alone, so that a run that was killed and resumed ends with the same weights.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lookalike.interruptions import Interrupted, stop_requests
from lookalike.loading import Unreadable
from lookalike.loop import Diverged, TrainingLoop, model_name
from lookalike.machine import checked_device, machine, versions
from lookalike.runs import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lookalike.data import DataSource
    from lookalike.data.retrieval import RetrievalData
    from lookalike.settings import Settings


def train(
    model: nn.Module,
    data: RetrievalData,
    settings: Settings,
    out: Path,
    *,
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    model_options: dict[str, Any] | None = None,
    source: DataSource | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Train a model and return the result, which is also written into the folder `out`.

    Args:
        model: Any module that turns what `data` gives into embeddings `[n, dim]`.
        data: What to train and to test on.
        settings: How.
        out: The run's folder: config.json, metrics.jsonl, checkpoint.pt, result.json, model.safetensors.
        device: Where; by default a GPU if there is one.
        resume: Go on with the run in `out`, if there is one; a finished run is returned as it is.
        force: Overwrite the run in `out`.
        model_options: What the model was built with, to be kept in config.json,
        source: and where the data came from, so that reports and analyses find both again.
        report: Called with the metrics of every epoch.
        show_progress: Draw a bar on a terminal.

    Raises:
        ValueError: `out` holds another run, or settings that cannot be.
        Unreadable: A sample cannot be read; everything is saved.
        Diverged: The loss became infinite or NaN; the last good checkpoint is kept.
        Interrupted: Ctrl-C or SIGTERM; everything is saved.
    """
    device = checked_device(device)
    folder = RunFolder(out)
    config = {**asdict(settings), **({"data": data.name} if source is None else source.as_config())}
    config |= {"data_checksum": data.checksum, "model": model_name(model), "model_options": model_options or {}}
    folder.check(config, resume=resume, force=force)
    if resume and (result := folder.read_result()) is not None:
        return result
    run = TrainingLoop(model, data, settings, torch.device(device), show_progress=show_progress)
    run.try_model()  # before anything is written
    if folder.begin(config, resume=resume, force=force):
        run.load_state_dict(folder.load_checkpoint())
    else:
        folder.save_checkpoint(run.state_dict())  # whoever is killed in the first epoch begins with the same weights
    with stop_requests() as request:
        try:
            while run.epoch < settings.epochs:
                run.train_epoch(request.check)
                folder.save_checkpoint(run.state_dict())  # an evaluation that fails costs no epoch
                metrics = run.end_epoch()
                folder.save_checkpoint(run.state_dict())
                if report is not None:
                    report(metrics)
        except (Interrupted, Unreadable):
            folder.save_checkpoint(run.state_dict())
            raise
        except Diverged as error:
            raise Diverged(f"{error} {folder.checkpoint} keeps the state after epoch {len(run.history)}.") from None
        result = {**run.result(), "config": config, "machine": machine(device), "versions": versions()}
        folder.finish(result, model.state_dict())
    return result
