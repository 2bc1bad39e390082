"""The embeddings of a finished run: its data, its model, its weights, put together again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from lookalike.data import load_data
from lookalike.encoders import ConvNet
from lookalike.progress import progress_bar
from lookalike.runs import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from lookalike.data.retrieval import TrainingPart

BATCH = 1024  # samples at a time


def embed_run(path: Path, *, progress: bool = False) -> tuple[Tensor, Tensor | None]:
    """Embeddings of a run's training set, clean, by its final weights, float32 [n, dim], and their labels.

    Raises:
        FileNotFoundError: The folder holds no run, or the data are gone.
        ValueError: The run is not finished, its network is none of ours, or the data have changed.
    """
    config = RunFolder(path).read_config()
    model, part = load_run_model(path, config), load_run_data(config, progress=progress)
    return embed(model, part, "reference", progress=progress), part.labels


def load_run_data(config: dict[str, Any], *, progress: bool = False) -> TrainingPart:
    """The training part that a run was trained on, by the name and the checksum in its configuration.

    Raises:
        ValueError: The data are others than the run's.
    """
    name, checksum = str(config.get("data")), config.get("data_checksum")
    data = load_data(name, progress=progress)
    if checksum not in (None, data.checksum):
        raise ValueError(
            f"{name} is not what the run was trained on: its checksum was {checksum}, now it is {data.checksum}."
        )
    return data.train


def load_run_model(path: Path, config: dict[str, Any]) -> nn.Module:
    """The network of a finished run with its final weights.

    Raises:
        ValueError: The run is not finished, or its network is none of ours.
    """
    weights = RunFolder(path).weights
    if not weights.exists():
        raise ValueError(f"{path} holds no finished run: {weights.name} is missing; lookalike train --resume ends it.")
    name = str(config.get("model", "")).partition(" ")[0]
    if name != ConvNet.__name__:
        raise ValueError(f"only a ConvNet can be rebuilt from its options, and the run trained {name or 'something'}.")
    model = ConvNet(**config.get("model_options", {}))
    try:
        model.load_state_dict(load_file(weights))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f"{weights} does not fit the network of config.json: {reason}") from None
    return model.eval()


@torch.no_grad()
def embed(model: nn.Module, part: TrainingPart, tower: str, *, progress: bool = False) -> Tensor:
    """Unit embeddings of all samples, as they are, float32 [n, dim]."""
    n = part.pairs if part.pairs is not None else len(part.labels) if part.labels is not None else 0
    parts = []
    with progress_bar(f"embedding {n:,} samples", n, shown=progress) as bar:
        for ids in torch.split(torch.arange(n), BATCH):
            parts.append(torch.nn.functional.normalize(model(part.plain(tower, ids)).float(), dim=1))
            bar.advance(len(ids))
    return torch.cat(parts)
