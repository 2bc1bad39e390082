"""Files that are there whole or not at all, whenever the process or the machine stops."""

import contextlib
import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room, no quota, no larger files allowed
TEMPORARY = ".tmp"


class DiskFullError(OSError):
    """There is no room for a file; says what is kept and how to go on."""


class UnwritableError(OSError):
    """A folder does not accept files."""


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Report in one sentence that `folder` cannot be written to.

    Raises:
        UnwritableError: It is read-only, something in its path is a file, or the system refuses for another reason.
        DiskFullError: Its disk is full.
    """
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise UnwritableError(
            f"{error.filename or folder} is a file where a folder is needed: choose another folder, or remove the file."
        ) from error
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(
                f"{folder} cannot be written to ({error.strerror}): make room and try again."
            ) from error
        if error.errno is None:  # one of ours, which says what is wrong
            raise
        hint = ", or change its permissions" if error.errno in (errno.EACCES, errno.EPERM) else ""
        raise UnwritableError(
            f"{folder} cannot be written to ({error.strerror}): choose another folder{hint}."
        ) from error


@contextmanager
def room_for(what: str, then: str) -> Iterator[None]:
    """Say in one sentence that a disk is full while `what` is written, and what to do `then`.

    Raises:
        DiskFullError: The disk is full.
    """
    try:
        yield
    except Exception as error:
        reason = _full(error)
        if reason is None:
            raise
        raise DiskFullError(f"there is no room left for {what} ({reason}): {then}.") from error


def _full(error: BaseException) -> str | None:
    """Return the system's words for a full disk, if that is what an error is about.

    torch raises an error of its own after the OSError of a write, and safetensors only quotes its number.
    """
    for number in FULL:
        if f"(os error {number})" in str(error):
            return os.strerror(number)
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in FULL:
            return found.strerror
        found = found.__cause__ or found.__context__
    return None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write; it takes the place of `path` at the end, or, after an error, vanishes."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=TEMPORARY)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # as any new file; mkstemp makes private ones
        temporary.replace(path)
        _sync_entries(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; it takes the place of the folder `path` at the end, or vanishes on an error.

    A folder cannot be replaced in one step: a process that is killed at the end may leave neither the old one nor the
    new one, but never half of one.
    """
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{path.name}.", suffix=TEMPORARY))
    try:
        yield temporary
        for each in (temporary, *temporary.rglob("*")):
            each.chmod((0o777 if each.is_dir() else 0o666) & ~_umask())  # as any new one; some libraries write private
            if each.is_file():
                with each.open("rb") as file:
                    os.fsync(file.fileno())
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
        _sync_entries(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _sync_entries(folder: Path) -> None:
    """Make a rename survive a power failure, where the system can: it is the folder that knows names."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_leftovers(*paths: Path) -> None:
    """Remove what `replacing` and `replacing_folder` leave beside these paths when their process is killed."""
    for path in paths:
        for leftover in path.parent.glob(f"{glob.escape(path.name)}.????????{TEMPORARY}"):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return the folder for files that can be made again: LOOKALIKE_CACHE, or the user's cache folder.

    A user without a home gets a path that cannot be created.
    """
    if "LOOKALIKE_CACHE" in os.environ:
        return Path(os.environ["LOOKALIKE_CACHE"])
    try:
        folder = platformdirs.user_cache_path("lookalike", appauthor=False)
    except RuntimeError:  # as newer versions say that there is no home; older ones return a path from "~"
        folder = Path()
    return folder if folder.is_absolute() else Path(os.devnull) / "lookalike"


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
