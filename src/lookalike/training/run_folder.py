"""The folder of a run. Only this file knows what is in it:

run.json                  the configuration
metrics.jsonl             one line per epoch; epoch 0 is the model before training
checkpoint.pt             the newest state
checkpoint.previous.pt    the one before it; both are removed when the run ends, unless they are to be kept
model/                    the trained model, in the format of its library
result.json               the outcome; its presence marks a finished run
trackers.json             the identity of the run in trackers, if it was reported to any
tensorboard/, wandb/      what they have written
explore.npz               codes of the training set, which `lookalike explore` keeps
same.jsonl                pairs that were marked as the same there
"""

from __future__ import annotations

import json
import logging
import shutil
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lookalike.training.checkpoints import NEWEST, PREVIOUS, Checkpoints
from lookalike.training.encoders.saving import save_model
from lookalike.training.results import RunResult
from lookalike.utils.files import remove_leftovers, replacing_folder, room_for, writable, write_text
from lookalike.utils.locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import nn

logger = logging.getLogger("lookalike")

CONFIG, METRICS, RESULT, MODEL = "run.json", "metrics.jsonl", "result.json", "model"
MAY_CHANGE = ("data_root", "same_file", "chunk")  # files may move, checksums tell; chunks are a matter of memory
TRACKERS = ("trackers.json", "tensorboard", "wandb")
BEGIN_AGAIN = "force=True begins the run again, out= chooses another folder."
EXPECTED_CONFIG = {"sampler": str, "seed": int, "epochs": int, "data": str, "model": str, "model_options": dict}
EXPECTED_RESULT = {"config": dict, "metrics": dict, "seconds": (int, float), "kept_bytes": int}


class RunFolder:
    """The files of a run. Each is complete or absent, at whatever moment the process is killed.

    Args:
        path: The folder, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.metrics, self.result = (path / name for name in (CONFIG, METRICS, RESULT))
        self.model, self.analysis = path / MODEL, path / "analysis.json"
        self.codes, self.same = path / "explore.npz", path / "same.jsonl"
        self._states = path / PREVIOUS, path / NEWEST

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """The states that an unfinished run continues from."""
        return Checkpoints(self.path)

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended and left a result."""
        return self.result.exists()

    @contextmanager
    def held(self, config: dict[str, Any], *, resume: bool, force: bool) -> Iterator[None]:
        """Lock the folder, and check that a run with this configuration may begin or continue in it.

        Args:
            config: The configuration, or the part of it that is known already.
            resume: Continue the run in the folder.
            force: Overwrite it.

        Raises:
            FolderInUseError: Another process trains in it.
            UnwritableError: It cannot be written to.
            ValueError: It holds another run, or one that must be resumed or overwritten explicitly.
        """
        nearest = next((each for each in (self.path, *self.path.parents) if each.exists()), None)
        if nearest is not None and not nearest.is_dir():
            raise ValueError(f"{nearest} is a file; a run needs a folder.")
        with locked(self.path):
            self._check_contents(config, resume=resume, force=force)
            yield

    def check(self, config: dict[str, Any], *, resume: bool, force: bool) -> None:
        """Raise what `held` raises; another process may hold a finished run that is only to be read.

        Raises:
            FolderInUseError: Another process trains in it.
            UnwritableError: It cannot be written to.
            ValueError: It holds another run, or one that must be resumed or overwritten explicitly.
        """
        if resume and self.is_finished:
            self._check_contents(config, resume=True, force=False)
            return
        with self.held(config, resume=resume, force=force):
            pass

    def _check_contents(self, config: dict[str, Any], *, resume: bool, force: bool) -> None:
        if not self.config.exists():
            strangers = [path.name for path in (self.result, self.metrics, self.model, *self._states) if path.exists()]
            if strangers:
                raise ValueError(
                    f"{self.path} holds {' and '.join(strangers)} but no {CONFIG}, so it is not a run that can be "
                    "continued or overwritten: remove what it holds, or choose another folder with out=."
                )
        elif resume:
            self.check_unchanged(config)
        elif not force:
            state = "a finished run" if self.is_finished else "an unfinished run: resume=True continues it"
            raise ValueError(f"{self.path} holds {state}; force=True overwrites it, out= chooses another folder.")

    def check_unchanged(self, config: dict[str, Any]) -> None:
        """Compare a configuration, or a part of it, with that of the run in the folder.

        Raises:
            ValueError: They differ, or the configuration in the folder is damaged.
        """
        before, now = self.read_begun(), json.loads(json.dumps(config))
        differing = [
            f"{name} was {before.get(name)!r}, now {value!r}"
            for name, value in sorted(now.items())
            if before.get(name) != value and name not in MAY_CHANGE
        ]
        if differing:
            raise ValueError(
                f"{self.path} holds a run with other settings: {'; '.join(differing)}. "
                "Resume it as it was begun, or choose another folder with out=."
            )

    def begin(self, config: dict[str, Any], *, resume: bool, force: bool) -> dict[str, Any] | None:
        """Write the whole configuration, and return the state to continue from, if there is one.

        Raises:
            ValueError: The run in the folder differs in what `held` did not know yet, or its checkpoints are damaged.
        """
        is_begun = resume and self.config.exists()
        if is_begun:
            self.check_unchanged(config)
        with writable(self.path):
            remove_leftovers(self.config, self.metrics, self.result, self.model, self.analysis, *self._states)
            if force:
                self.clear()
            write_text(self.config, json.dumps(config, indent=2) + "\n")
        if not is_begun:
            return None
        if self.checkpoints.exist():
            try:
                return self.checkpoints.load()
            except ValueError as error:
                raise ValueError(f"{error}: force=True begins the run again.") from error
        if self.metrics.exists() and self.metrics.stat().st_size:
            logger.warning("%s holds metrics but no checkpoint: the run begins again.", self.path)
        return None

    def clear(self) -> None:
        """Remove the run in an order that never mixes files of two runs.

        The result goes first, since its presence marks a finished run, and the configuration last.
        """
        for path in (self.result, self.analysis, *self._states, self.metrics):
            path.unlink(missing_ok=True)
        for path in (self.model, *(self.path / name for name in TRACKERS)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self.config.unlink(missing_ok=True)

    def read_config(self) -> dict[str, Any]:
        """Read the configuration.

        Raises:
            FileNotFoundError: There is no run.
            ValueError: The file is damaged.
        """
        if not self.config.exists():
            raise FileNotFoundError(f"{self.path} holds no run: {CONFIG} is missing.")
        return _read_object(self.config, EXPECTED_CONFIG)

    def read_begun(self) -> dict[str, Any]:
        """Read the configuration of a run to continue.

        Raises:
            FileNotFoundError: There is no run.
            ValueError: The file is damaged; the message says how to begin again.
        """
        try:
            return self.read_config()
        except ValueError as error:
            raise ValueError(f"{error} {BEGIN_AGAIN}") from None

    def read_result(self) -> RunResult:
        """Read the result of a finished run.

        Raises:
            ValueError: The file is damaged; the message says how to repair it.
        """
        try:
            return RunResult.from_json(_read_object(self.result, EXPECTED_RESULT))
        except ValueError as error:
            kept = self.checkpoints.exist()
            way = "Remove it, and resume=True writes it again" if kept else "force=True trains the run again"
            raise ValueError(f"{error} {way}.") from None

    def save(self, state: dict[str, Any]) -> None:
        """Save a checkpoint, and the metrics of the epochs in it.

        Raises:
            DiskFullError: There is no room; what was saved before is kept.
        """
        with self._room("a checkpoint"):
            self.checkpoints.save(state)
            write_text(self.metrics, "".join(json.dumps(epoch) + "\n" for epoch in state["history"]))

    def finish(self, result: RunResult, model: nn.Module, *, keep_checkpoint: bool) -> None:
        """Write the model and then the result, which marks the run as finished."""
        with self._room("the model"):
            with replacing_folder(self.model) as temporary:
                save_model(model, temporary)
            write_text(self.result, json.dumps(result.as_json(), indent=2) + "\n")
        if not keep_checkpoint:
            self.checkpoints.remove()

    def remove_checkpoints(self) -> None:
        """Remove the checkpoints of a finished run, if it has any."""
        if self.checkpoints.exist():
            with locked(self.path):
                self.checkpoints.remove()

    @contextmanager
    def _room(self, what: str) -> Iterator[None]:
        with writable(self.path), room_for(f"{what} in {self.path}", "make room, then continue with resume=True"):
            yield


def _read_object(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    """Read a JSON object with some entries of known types.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}).") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged (it holds {type(content).__name__}, not an object).")
    for name, kind in expected.items():
        if not isinstance(content.get(name), kind):
            problem = f"{name} is {content[name]!r}" if name in content else f"{name} is missing"
            raise ValueError(f"{path} is damaged ({problem[:200]}).")
    return content
