"""Load the trained model of a finished run in one call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from lookalike.training.embedding import load_run_model
from lookalike.training.run_folder import CONFIG, RunFolder
from lookalike.utils.machine import checked_device

if TYPE_CHECKING:
    from lookalike.training.encoders.encoding import Encoder


def load_model(run: str | Path, *, device: str | None = None) -> Encoder:
    """Load the trained model of a finished run, in evaluation mode. Nothing that the folder holds is executed.

    The model is the run's encoder, a `torch.nn.Module`: call it like any other, or call `encode` with any number of
    samples. `sentence-transformers:` encoders hold the library's own model in `.model`, those of `transformers:` and
    `timm:` in `.network`.

    Args:
        run: Folder of the run: what was `out=` in `train`.
        device: Device of torch; by default a GPU if there is one.

    Raises:
        FileNotFoundError: There is no such folder, or it holds no run.
        ValueError: The run is not finished, its model was made in Python, or it cannot be loaded.
        ImportError: The library that the model comes from is not installed.

    Examples:
        >>> import lookalike
        >>> model = lookalike.load_model("runs/questions", device="cpu")  # doctest: +SKIP
        >>> model.encode(["how do bees sleep?", "the life of honey bees"]).shape  # doctest: +SKIP
        torch.Size([2, 384])
    """
    path = Path(run).expanduser()
    if not path.is_dir():
        raise FileNotFoundError(f"{path} {'is not a folder' if path.exists() else 'does not exist'}; name a run.")
    if not (path / CONFIG).exists() and (path.parent / CONFIG).exists():
        raise FileNotFoundError(f"{path} is part of a run; name the run itself, {path.parent}.")
    where = checked_device(device)
    return cast("Encoder", load_run_model(path, RunFolder(path).read_config()).to(where))
