"""Log a run to TensorBoard, Weights & Biases or trackio: a file per library, imported only when it is asked for."""

from __future__ import annotations

import importlib
import tempfile
from typing import TYPE_CHECKING

from lookalike.utils.files import writable
from lookalike.utils.messages import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lookalike.training.trackers.tracker import Tracker

NAMES = ("tensorboard", "wandb", "trackio")  # modules of this package
NONE = "none"


def tracker_names(report_to: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the trackers that `report_to` names: a name, several with commas between them, a list, "none" or None.

    Raises:
        ValueError: There is no such tracker.

    Examples:
        >>> tracker_names("tensorboard, wandb"), tracker_names("none")
        (('tensorboard', 'wandb'), ())
    """
    given = report_to.split(",") if isinstance(report_to, str) and report_to else report_to or ()
    names = tuple(dict.fromkeys(name.strip() for name in given))
    if names == (NONE,):
        return ()
    for name in names:
        if name not in NAMES:
            also = f" {NONE} stands alone." if name == NONE else ""
            raise ValueError(
                f"report_to= takes {', '.join(NAMES)} or {NONE}, got {name!r}{suggestion(name, NAMES)}{also}"
            )
    return names


def check_trackers(names: Iterable[str], out: Path) -> None:
    """Import the libraries, and check that they can write where they write, before any work is lost.

    Args:
        names: As `tracker_names` returns them.
        out: Folder of the run.

    Raises:
        MissingLibraryError: A library is not installed; names the pip command.
        UnwritableError: It cannot write to its folder.
    """
    for name in names:
        folder = make_tracker(name).folder(out)
        nearest = next(each for each in (folder, *folder.parents) if each.exists())
        with writable(folder), tempfile.TemporaryFile(dir=nearest):
            pass


def make_tracker(name: str) -> Tracker:
    """Import a tracker's library and return its adapter.

    Raises:
        MissingLibraryError: The library is not installed; names the pip command.
    """
    made: Tracker = importlib.import_module(f"{__name__}.{name}").Adapter()
    return made
