"""trackio: a local data base, or what TRACKIO_SPACE_ID or TRACKIO_SERVER_URL names; the project is TRACKIO_PROJECT."""

from __future__ import annotations

import os
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    from lookalike.training.trackers.tracker import Row, Tracked


class Adapter:
    """Logs to a run of trackio, which it finds again by its name when it resumes.

    trackio hands rows to its data base every half second, so a process that is killed may lose the last ones.
    """

    def __init__(self) -> None:
        self._trackio = optional_import("trackio", "report_to=trackio", "'lookalike[trackio]'")
        self._run: Any = None

    def folder(self, out: Path) -> Path:  # noqa: ARG002 - the protocol's
        """Return where it writes: one data base for all runs of a project."""
        cache = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
        return Path(os.environ.get("TRACKIO_DIR", cache / "trackio"))

    def start(self, run: Tracked) -> int:
        """Begin the run, or resume it by its name.

        In a context of its own: trackio finishes the current run of a context at exit, a second time, and a script may
        have a current run itself.
        """
        self._run = copy_context().run(
            self._trackio.init,
            project=os.environ.get("TRACKIO_PROJECT", "lookalike"),
            name=f"{run.name}-{run.identity}",
            group=run.group,
            config=run.config,
            resume="allow",
            embed=False,  # or a notebook would start a server
        )
        return int(getattr(self._run, "_next_step", run.next_step))  # the step after the last one that it holds

    def log(self, row: Row) -> None:
        """Log the row."""
        self._run.log(dict(row.values), step=row.step)

    def flush(self) -> None:
        """Do nothing: trackio cannot be asked to."""

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
