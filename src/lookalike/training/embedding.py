"""Embeddings of a finished run: load its data and its model again, and embed the training set."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lookalike.data import DataSource
from lookalike.training.encoders import ConvNet, load_saved
from lookalike.training.loading import embed
from lookalike.training.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from lookalike.data.retrieval import RetrievalData, TrainingPart


def embed_run(path: Path, *, progress: bool = False) -> tuple[Tensor, Tensor | None]:
    """Embed a run's training set, not augmented, with its trained model; return float32 `[n, dim]` and the labels.

    Raises:
        FileNotFoundError: The folder holds no run, or the data are missing.
        ValueError: The run is not finished, its model was not built by `make_encoder`, or the data have changed.
    """
    config = RunFolder(path).read_config()
    model, part = load_run_model(path, config), load_run_data(config, progress=progress)
    return embed_part(model, part, "reference", progress=progress), part.labels


def load_run_data(config: dict[str, Any], *, progress: bool = False) -> TrainingPart:
    """Load the training part that a run was trained on, and verify its checksum.

    Raises:
        ValueError: The data have changed since.
    """
    return load_run_data_set(config, progress=progress).train


def load_run_data_set(config: dict[str, Any], *, progress: bool = False) -> RetrievalData:
    """Load the whole data set that a run was trained on, as `load_run_data` loads its training part."""
    source, checksum = DataSource.of_run(config), config.get("data_checksum")
    data = source.load(progress=progress)
    if checksum not in (None, data.checksum):
        raise ValueError(
            f"{source.name} is not what the run was trained on: its checksum was {checksum}, now it is {data.checksum}."
        )
    return data


def load_run_model(path: Path, config: dict[str, Any]) -> nn.Module:
    """Load the trained model of a finished run from the run's own folder, without running any code from there.

    Raises:
        ValueError: The run is not finished, its model cannot be loaded, or it was not built by `make_encoder`.
    """
    folder = RunFolder(path)
    if not folder.is_finished or not folder.model.is_dir():
        missing = folder.result.name if folder.model.is_dir() else folder.model.name
        # `resume` is no option of the commands that load a model, so the sentence names the command that has it.
        raise ValueError(
            f"{path} holds no finished run: {missing} is missing; train it to the end with "
            f"lookalike train --out {path} --resume."
        )
    options = config.get("model_options")
    if not isinstance(options, dict) or not isinstance(options.get("encoder", ""), str):
        raise ValueError(f"{folder.config} is damaged (model_options is {options!r}).")
    name = str(config.get("model", "")).partition(" ")[0]
    if "encoder" not in options and name != ConvNet.__name__:
        raise ValueError(
            f"the run trained {name or 'a module'} made in Python, which cannot be rebuilt from its options; a model "
            "that is named, as in model='convnet', can."
        )
    return load_saved(folder.model, **options).eval()


def embed_part(model: nn.Module, part: TrainingPart, tower: str, *, progress: bool = False) -> Tensor:
    """Return unit embeddings of all samples of a training part, not augmented, float32 `[n, dim]`."""
    n = part.pairs if part.pairs is not None else len(part.labels) if part.labels is not None else 0
    found = embed(model, partial(part.plain, tower), n, tower=tower, progress=progress)
    return torch.nn.functional.normalize(found, dim=1)
