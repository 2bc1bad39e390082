"""Training with hard negatives, from a model and a data set to a finished run.

    train(model, data, Settings(sampler="lsh", bits=512, epochs=10), Path("runs/first"))

Evaluate the model as it is. Then, each epoch: compose batches of hard negatives from what the last epoch left (bits,
floats or nothing), train on them with InfoNCE while the sampler observes every embedding, evaluate, save. Randomness
depends on the seed, the epoch and the step alone, so that a run that was killed and resumed ends with the same weights.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lookalike.training.interruptions import Interrupted, Request, stop_requests
from lookalike.training.loading import Unreadable
from lookalike.training.loop import Diverged, TrainingLoop, model_name
from lookalike.training.runs import RunFolder
from lookalike.utils.machine import checked_device, machine, versions
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lookalike.data import DataSource
    from lookalike.data.retrieval import RetrievalData
    from lookalike.training.settings import Settings


def train(
    model: nn.Module,
    data: RetrievalData,
    settings: Settings,
    out: Path,
    *,
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    keep_checkpoint: bool = False,
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
        out: The run's folder, held by one process at a time; `lookalike.training.runs` lists its files.
        device: Where; by default a GPU if there is one.
        resume: Continue the run in `out`, if there is one; the result of a finished run is returned as it is.
        force: Overwrite the run in `out`.
        keep_checkpoint: Keep the last state of the optimizer and the sampler when the run ends.
        model_options: What the model was built with, recorded in the run's configuration,
        source: and where the data came from, so that reports and analyses find both again.
        report: Called with the metrics of every epoch, first those of epoch 0, the model before training.
        show_progress: Draw a bar on a terminal.

    Raises:
        ValueError: `out` holds another run, or the settings are impossible.
        FolderInUseError: Another process trains in `out`.
        DiskFullError: There is no room for a checkpoint or the model; the last whole checkpoint is kept.
        UnwritableError: `out` cannot be written to.
        Unreadable: A sample cannot be read; everything is saved.
        Diverged: The loss became infinite or NaN; the last good checkpoint is kept.
        Interrupted: Ctrl-C or SIGTERM; everything is saved.
    """
    device = checked_device(device)
    folder = RunFolder(out)
    config = {**asdict(settings), **({"data": data.name} if source is None else source.as_config())}
    config |= {"data_checksum": data.checksum, "model": model_name(model), "model_options": model_options or {}}
    folder.check_free(force=force)
    folder.check(config, resume=resume, force=force)
    if resume and (result := finished_result(folder, keep_checkpoint=keep_checkpoint)) is not None:
        return result
    with folder.held():
        if resume and (result := folder.read_result()) is not None:  # another process has just finished it
            return result
        run = TrainingLoop(model, data, settings, torch.device(device), show_progress=show_progress)
        run.try_model()  # before anything is written
        run.compile_kernels()
        state = folder.begin(config, resume=resume, force=force)
        if state is not None:
            _load(run, state, folder)
        else:
            folder.save(run.state_dict())  # a run that is killed in its first epoch begins with the same weights
        with stop_requests() as request:
            try:
                _train(run, folder, request, report)
            except (Interrupted, Unreadable):
                folder.save(run.state_dict())
                raise
            except Diverged as error:
                raise Diverged(f"{error} {folder.path} keeps the state after epoch {len(run.history)}.") from None
            result = {**run.result(), "config": config, "machine": machine(device), "versions": versions()}
            folder.finish(result, model, keep_checkpoint=keep_checkpoint)
    return result


def finished_result(folder: RunFolder, *, keep_checkpoint: bool) -> dict[str, Any] | None:
    """Return the result of a finished run, and None of any other.

    The checkpoint goes if the process was killed between writing the result and removing it.
    """
    result = folder.read_result()
    if result is not None and not keep_checkpoint and folder.checkpoints.exist():
        with folder.held():
            folder.checkpoints.remove()
    return result


def _train(
    run: TrainingLoop, folder: RunFolder, request: Request, report: Callable[[dict[str, Any]], None] | None
) -> None:
    """Train to the end, saving on the way."""
    if run.zero_shot is None:
        metrics = run.evaluate_zero_shot(request.check)
        folder.save(run.state_dict())
        if report is not None:
            report(metrics)
    while run.epoch < run.settings.epochs:
        run.train_epoch(request.check)
        folder.save(run.state_dict())  # an evaluation that fails costs no epoch
        metrics = run.end_epoch(request.check)
        folder.save(run.state_dict())
        if report is not None:
            report(metrics)


def _load(run: TrainingLoop, state: dict[str, Any], folder: RunFolder) -> None:
    """Continue from a checkpoint.

    Raises:
        ValueError: It is of another run.
    """
    try:
        run.load_state_dict(state)
    except (KeyError, RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{folder.checkpoints.newest} does not fit the run in {folder.config} ({first_line(error)}): put the right "
            "one back, or begin anew with --force."
        ) from error
