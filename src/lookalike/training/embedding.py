"""The embeddings of a finished run: its data, its model, its weights, put together again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lookalike.data import DataSource
from lookalike.training.encoders import ConvNet, load_saved
from lookalike.training.loading import batches_ahead, moved, read, read_ahead
from lookalike.training.runs import RunFolder
from lookalike.utils.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn

    from lookalike.data.retrieval import TrainingPart

BATCH = 256  # samples at a time


def embed_run(path: Path, *, progress: bool = False) -> tuple[Tensor, Tensor | None]:
    """Embed a run's training set, without augmentation, with its trained model: float32 [n, dim], and the labels.

    Raises:
        FileNotFoundError: The folder holds no run, or the data are gone.
        ValueError: The run is not finished, its model was not built by `make_encoder`, or the data have changed.
    """
    config = RunFolder(path).read_config()
    model, part = load_run_model(path, config), load_run_data(config, progress=progress)
    return embed_part(model, part, "reference", progress=progress), part.labels


def load_run_data(config: dict[str, Any], *, progress: bool = False) -> TrainingPart:
    """Load the training part that a run was trained on, by the name and the checksum in its configuration.

    Raises:
        ValueError: The data are others than the run's.
    """
    source, checksum = DataSource.of_run(config), config.get("data_checksum")
    data = source.load(progress=progress)
    if checksum not in (None, data.checksum):
        raise ValueError(
            f"{source.name} is not what the run was trained on: its checksum was {checksum}, now it is {data.checksum}."
        )
    return data.train


def load_run_model(path: Path, config: dict[str, Any]) -> nn.Module:
    """Load the trained model of a finished run from the run's own folder. No code from there is run.

    Raises:
        ValueError: The run is not finished, its model cannot be loaded, or it was not built by `make_encoder`.
    """
    folder = RunFolder(path)
    if not folder.result.exists() or not folder.model.is_dir():
        missing = folder.result.name if folder.model.is_dir() else folder.model.name
        raise ValueError(f"{path} holds no finished run: {missing} is missing; train it with resume=True.")
    options = config.get("model_options")
    if not isinstance(options, dict) or not isinstance(options.get("encoder", ""), str):
        raise ValueError(f"{folder.config} is damaged (model_options is {options!r}).")
    name = str(config.get("model", "")).partition(" ")[0]
    if "encoder" not in options and name != ConvNet.__name__:
        raise ValueError(
            f"the run trained {name or 'something'} from Python, which cannot be rebuilt from its options; runs of the "
            "command line can."
        )
    return load_saved(folder.model, **options).eval()


def embed_part(model: nn.Module, part: TrainingPart, tower: str, *, progress: bool = False) -> Tensor:
    """Unit embeddings of all samples of a training part, as they are, float32 [n, dim]."""
    n = part.pairs if part.pairs is not None else len(part.labels) if part.labels is not None else 0
    return torch.nn.functional.normalize(embed(model, partial(part.plain, tower), n, progress=progress), dim=1)


@torch.no_grad()
def embed(
    model: nn.Module,
    view: Callable[[Tensor], Any],
    n: int,
    *,
    batch_size: int = BATCH,
    precision: torch.dtype = torch.float32,
    check: Callable[[], None] | None = None,
    progress: bool = False,
) -> Tensor:
    """Embed samples 0 to n - 1, float32 [n, dim], where the model is; it is left in evaluation mode.

    Args:
        model: The model.
        view: What the model is given for some ids.
        n: How many there are.
        batch_size: Samples at a time.
        precision: Of the computation.
        check: Called between batches; may raise to stop.
        progress: Show a bar on a terminal.

    Raises:
        UnreadableSampleError: A sample cannot be read.
    """
    model.eval()
    device = next(model.parameters()).device
    prepare = getattr(model, "prepare", None)

    def prepared(ids: Tensor) -> Any:
        x = read(view, ids)
        return x if prepare is None else prepare(x)

    batches = torch.split(torch.arange(n), batch_size)
    embeddings = torch.empty(0)
    done = 0
    with (
        progress_bar(f"embedding {n:,} samples", n, shown=progress) as bar,
        torch.autocast(device.type, precision, enabled=precision != torch.float32),
    ):
        jobs = (partial(prepared, ids) for ids in batches)
        for x in read_ahead(jobs, batches_ahead(device)):
            part = model(moved(x, device)).float()
            if done == 0:
                embeddings = torch.empty((n, *part.shape[1:]), device=part.device)
            embeddings[done : done + len(part)] = part
            done += len(part)
            bar.advance(len(part))
            if check is not None:
                check()
    return embeddings
