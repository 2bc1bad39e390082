"""Lock a folder for one process; the operating system releases the lock when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lookalike.utils.files import remove_leftovers, writable, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK, HOLDER = ".lock", ".lock.json"
HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)  # errors for a lock that another process holds
ATTEMPTS = 100  # to open a lock file that its last holder does not remove in the meantime
LOOKS, PAUSE = 20, 0.02  # times to look for the holder's name, and seconds in between


class FolderInUseError(ValueError):
    """Another process is using the folder."""


@contextmanager
def locked(
    folder: Path, *, remove_empty: bool = False, named: str | None = None, shared: bool = False
) -> Iterator[None]:
    """Lock `folder` for this process, creating it if needed.

    At the end the lock's files are removed, and so are folders that were created here and are still empty.

    Args:
        folder: The folder.
        remove_empty: Remove the folder at the end if it is empty, even if it was not created here.
        named: The file that the folder stands for, which the error then names instead.
        shared: Share the lock with other processes that share it, and only with them.

    Raises:
        FolderInUseError: Another process holds the lock; the message names that process.
        UnwritableError: The folder cannot be written to.
    """
    with writable(folder):
        created = [each for each in (folder, *folder.parents) if not each.exists()] or [folder] * remove_empty
        handle = _acquired(folder, shared=shared)
    if handle is None:
        name, kind = (str(folder), "folder") if named is None else (named, "file")
        raise FolderInUseError(f"{name} is in use by {_holder(folder)}; wait for it to end, or choose another {kind}.")
    try:
        with writable(folder):
            if not shared:  # those it is shared with may be writing theirs
                remove_leftovers(folder / HOLDER)
            process = {"pid": os.getpid(), "host": socket.gethostname(), "command": _command()}
            write_text(folder / HOLDER, json.dumps(process) + "\n")
        yield
    finally:
        try:
            if not shared:  # those it is shared with still need the file
                _tidy(folder, handle, created)
        finally:
            os.close(handle)


def _tidy(folder: Path, handle: int, created: list[Path]) -> None:
    """Remove the lock's files while holding it: whoever has them open will notice that they are gone."""
    with contextlib.suppress(OSError):
        if _is_at(handle, folder / LOCK):
            (folder / HOLDER).unlink(missing_ok=True)
            (folder / LOCK).unlink()
    with contextlib.suppress(OSError):  # it is not empty
        for each in created:
            each.rmdir()


def _acquired(folder: Path, *, shared: bool) -> int | None:
    """Lock the lock file and return its handle, or None if another process holds it."""
    for attempt in reversed(range(ATTEMPTS)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the last holder has just removed the folder
            if not attempt:
                raise
            continue
        try:
            _lock(handle, shared=shared)
            if _is_at(handle, folder / LOCK):
                return handle
            os.close(handle)  # its last holder removed the file in between, and there may be a new one
        except OSError as error:
            os.close(handle)
            if error.errno in HELD:
                return None
            raise
    return None


def _lock(handle: int, *, shared: bool) -> None:
    if sys.platform == "win32":  # which has no shared locks of this kind
        if not shared:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _is_at(handle: int, path: Path) -> bool:
    """Return whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _command() -> str:
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _holder(folder: Path) -> str:
    """Describe the process that holds the lock; one that just took it may not have written its name yet."""
    for _ in range(LOOKS):
        try:
            holder = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
            pid, host = int(holder["pid"]), str(holder["host"])
            if host != socket.gethostname():
                return f"process {pid} on {host} ({holder['command']})"
            if _is_running(pid):
                return f"process {pid} ({holder['command']})"
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        time.sleep(PAUSE)
    return "another process"


def _is_running(pid: int) -> bool:
    if pid <= 0 or pid >= 2**31:
        return False
    if sys.platform == "win32":  # where os.kill would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as another user
        return True
    return True
