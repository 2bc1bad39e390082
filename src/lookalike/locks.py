"""One process per folder: a lock that the operating system releases when its process ends, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from lookalike.files import remove_leftovers, writable, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK, HOLDER = ".lock", ".lock.json"
LOOKS, PAUSE = 20, 0.02  # how often, and with how many seconds between, to look for the name of a holder


class FolderInUseError(ValueError):
    """Another process works in the folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder`, which is created if needed, for this process.

    Temporary files that killed processes left behind are removed: nobody else can be writing them.

    Raises:
        FolderInUseError: Another process holds it; the message names that process.
        UnwritableError: The folder cannot be written to.
    """
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise FolderInUseError(
                f"{folder} is in use by {_holder(folder)}; wait for it to end, or choose another folder."
            ) from None
    try:
        with writable(folder):
            remove_leftovers(folder)
            write_text(folder / HOLDER, json.dumps({"pid": os.getpid(), "command": _command()}) + "\n")
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / HOLDER).unlink()
        lock.release()


def _command() -> str:
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _holder(folder: Path) -> str:
    """Describe the process that holds the lock; one that has just taken it is about to write its name."""
    for _ in range(LOOKS):
        try:
            holder = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
            with contextlib.suppress(PermissionError):  # it runs as another user
                os.kill(int(holder["pid"]), 0)  # raises ProcessLookupError for one that is gone
            return f"process {holder['pid']} ({holder['command']})"
        except (OSError, ValueError, KeyError, TypeError):
            time.sleep(PAUSE)
    return "another process"
