"""Weights & Biases: the project is WANDB_PROJECT, by default "lookalike"; WANDB_MODE=offline needs no network."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.training.trackers.tracker import Row, Tracked

FOLDER, LAST_STEP = "wandb", "last_step.txt"
PROMPT = {"x_transaction_log_flush_interval": 0.1}  # seconds, where a version knows it: what a killed run can lose


class Adapter:
    """Logs to a run of wandb whose id is that of the folder, so that a resumed run continues it.

    The server knows the last step that it has received. Offline nobody does, so a file in the run's folder notes it.
    """

    def __init__(self) -> None:
        self._wandb = optional_import("wandb", "report_to=wandb", "'lookalike[wandb]'")
        self._run: Any = None
        self._last_step: int | None = None  # file descriptor

    def folder(self, out: Path) -> Path:
        """Return where it writes."""
        return out / FOLDER

    def start(self, run: Tracked) -> int:
        """Begin the run, or resume it by its id."""
        note = self.folder(run.out) / LAST_STEP
        note.parent.mkdir(parents=True, exist_ok=True)
        noted = note.read_text(encoding="utf-8") if note.exists() else ""
        known = getattr(self._wandb.Settings, "model_fields", {})
        prompt = {name: value for name, value in PROMPT.items() if name in known}
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "lookalike"),
            id=run.identity,
            name=os.environ.get("WANDB_NAME", run.name),
            group=os.environ.get("WANDB_RUN_GROUP", run.group),
            dir=str(run.out),
            config=run.config,
            resume="allow",
            reinit="create_new",
            settings=self._wandb.Settings(console="off", **prompt),
        )
        self._last_step = os.open(note, os.O_WRONLY | os.O_CREAT, 0o666)
        return max(int(self._run.step), int(noted) + 1 if noted.strip().isdigit() else 0)

    def log(self, row: Row) -> None:
        """Log the row as a whole, and note its step."""
        self._run.log(dict(row.values), step=row.step, commit=True)
        if self._last_step is not None:
            os.lseek(self._last_step, 0, os.SEEK_SET)
            os.write(self._last_step, b"%-20d" % row.step)  # over the last one, so that no kill leaves the file empty

    def flush(self) -> None:
        """Do nothing: wandb's own process has the rows, and writes them at once."""

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
        if self._last_step is not None:
            os.close(self._last_step)
            self._last_step = None
