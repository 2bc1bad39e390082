"""A run's folder: config.json, metrics.jsonl, checkpoint.pt and, once finished, result.json and model.safetensors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from lookalike.files import replacing, write_text
from lookalike.wording import first_line

if TYPE_CHECKING:
    from pathlib import Path

MAY_CHANGE = ("data_root",)  # data that were moved are the same data: their checksum says so
FILES = ("config.json", "metrics.jsonl", "checkpoint.pt", "result.json", "model.safetensors")


class RunFolder:
    """Where a training run leaves its traces. Every file is whole or absent, whenever the process is killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.metrics, self.checkpoint, self.result, self.weights = (path / name for name in FILES)

    def begin(self, config: dict[str, Any], *, resume: bool, force: bool) -> bool:
        """Prepare the folder and say whether there is a checkpoint to go on from.

        Raises:
            ValueError: The folder holds another run, or one that must be resumed or overwritten explicitly.
        """
        if force and not resume:
            for name in FILES:
                (self.path / name).unlink(missing_ok=True)
        self.check(config, resume=resume, force=force)
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.config, json.dumps(config, indent=2) + "\n")
        return resume and self.checkpoint.exists()

    def check(self, config: dict[str, Any], *, resume: bool, force: bool) -> None:
        """Whether a run of this configuration, or of this part of it, may begin or go on here.

        Raises:
            ValueError: It may not.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file; a run needs a folder.")
        if not self.config.exists() or (force and not resume):
            return
        if not resume:
            state = "a finished run" if self.result.exists() else "an unfinished run (--resume goes on with it)"
            raise ValueError(f"{self.path} holds {state}; --force overwrites it, --out chooses another folder.")
        before = self.read_config()
        differing = [
            f"{name} was {before.get(name)!r}, now {value!r}"
            for name, value in sorted(config.items())
            if before.get(name) != value and name not in MAY_CHANGE
        ]
        if differing:
            raise ValueError(
                f"{self.path} holds a run of another configuration: {'; '.join(differing)}. "
                "Resume it as it was begun, or choose another folder with --out."
            )

    def read_config(self) -> dict[str, Any]:
        """The configuration that the run was begun with.

        Raises:
            FileNotFoundError: There is no run.
        """
        return _read_json(self.config)

    def read_result(self) -> dict[str, Any] | None:
        """The result; None if the run is not finished."""
        return _read_json(self.result) if self.result.exists() else None

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint, and make the metrics say what it knows."""
        with replacing(self.checkpoint) as temporary:
            torch.save(state, temporary)
        write_text(self.metrics, "".join(json.dumps(epoch) + "\n" for epoch in state["history"]))

    def load_checkpoint(self) -> dict[str, Any]:
        """The last state that was saved.

        Raises:
            ValueError: The file is damaged.
        """
        try:
            state: dict[str, Any] = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        except Exception as error:
            raise ValueError(f"{self.checkpoint} cannot be read ({first_line(error)}); --force begins anew.") from error
        return state

    def finish(self, result: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
        """Write the result; the run is over."""
        from safetensors.torch import save_file  # noqa: PLC0415 - only here

        seen: set[int] = set()
        tensors = {}
        for name, tensor in weights.items():
            here = tensor.cpu().contiguous()
            shared = here.untyped_storage().data_ptr() in seen  # tied weights are written as often as they are named
            seen.add(here.untyped_storage().data_ptr())
            tensors[name] = here.clone() if shared else here
        with replacing(self.weights) as temporary:
            save_file(tensors, temporary)
        write_text(self.result, json.dumps(result, indent=2) + "\n")


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path.parent} holds no run: {path.name} is missing.")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}); --force begins anew.") from None
    return content
