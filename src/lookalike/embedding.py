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
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn

BATCH = 1024


def embed_run(path: Path, *, progress: bool = False) -> tuple[Tensor, Tensor | None]:
    """Embeddings of a run's training set, clean, by its final weights, float32 [n, dim], and their labels.

    Raises:
        FileNotFoundError: The folder holds no run, or the data are gone.
        ValueError: The run is not finished, or the data have changed.
    """
    config = RunFolder(path).read_config()
    model, part = load_run_model(path, config), load_data(config["data"]).train
    n = part.pairs if part.pairs is not None else len(_known(part.labels))
    return embed(model, lambda ids: part.plain("reference", ids), n, progress=progress), part.labels


def load_run_model(path: Path, config: dict[str, Any]) -> nn.Module:
    """The network of a finished run with its final weights.

    Raises:
        ValueError: The run is not finished, or its network is none of ours.
    """
    weights = RunFolder(path).weights
    if not weights.exists():
        raise ValueError(f"{path} holds no finished run: {weights.name} is missing; lookalike train --resume ends it.")
    model = ConvNet(**config["model_options"])
    try:
        model.load_state_dict(load_file(weights))
    except RuntimeError as error:
        raise ValueError(f"{weights} does not fit the network of config.json: {str(error).splitlines()[0]}") from None
    return model.eval()


@torch.no_grad()
def embed(model: nn.Module, view: Callable[[Tensor], Any], n: int, *, progress: bool = False) -> Tensor:
    """Unit embeddings of samples 0 to n - 1, float32 [n, dim]."""
    parts = []
    with progress_bar("embedding", n, shown=progress) as bar:
        for ids in torch.split(torch.arange(n), BATCH):
            parts.append(torch.nn.functional.normalize(model(view(ids)).float(), dim=1))
            bar.advance(len(ids))
    return torch.cat(parts)


def _known(labels: Tensor | None) -> Tensor:
    assert labels is not None  # noqa: S101 - labelled data has labels
    return labels
