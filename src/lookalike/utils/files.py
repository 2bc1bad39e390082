"""Write files atomically, and report folders that cannot be written to."""

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

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no space, no quota, file too large
TEMPORARY = ".tmp"


class DiskFullError(OSError):
    """The disk is full; the message says what was kept and how to continue."""


class UnwritableError(OSError):
    """A folder cannot be written to."""


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
        if error.errno is None:  # one of our own, which already says what is wrong
            raise
        hint = ", or change its permissions" if error.errno in (errno.EACCES, errno.EPERM) else ""
        raise UnwritableError(
            f"{folder} cannot be written to ({error.strerror}): choose another folder{hint}."
        ) from error


@contextmanager
def room_for(what: str, then: str) -> Iterator[None]:
    """Report in one sentence that the disk is full.

    Args:
        what: What the block writes.
        then: What the user can do.

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
    """Return the system's message if an error means that the disk is full.

    torch raises an error of its own after the OSError of a write, and safetensors quotes only its number.
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
    """Yield a temporary file to write; move it to `path` at the end, or remove it after an error."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=TEMPORARY)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # as for any new file; mkstemp makes private ones
        temporary.replace(path)
        _sync_entries(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; move it to `path` at the end, or remove it after an error.

    A folder cannot be replaced in one step: a process killed at the end may leave neither the old nor the new folder,
    but never part of one.
    """
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{path.name}.", suffix=TEMPORARY))
    try:
        yield temporary
        for each in (temporary, *temporary.rglob("*")):
            each.chmod((0o777 if each.is_dir() else 0o666) & ~_umask())  # some libraries write private files
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
    """Sync a folder, so that a rename in it survives a power failure, if the system supports that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_leftovers(*paths: Path) -> None:
    """Remove temporary files that a killed process left beside these paths."""
    for path in paths:
        for leftover in path.parent.glob(f"{glob.escape(path.name)}.????????{TEMPORARY}"):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def cache_folder() -> Path:
    """Return the folder for files that can be recreated: LOOKALIKE_CACHE, or the user's cache folder.

    A user without a home gets a path that cannot be created.
    """
    if "LOOKALIKE_CACHE" in os.environ:
        return Path(os.environ["LOOKALIKE_CACHE"])
    nowhere = Path(os.devnull) / "lookalike"
    try:
        folder = platformdirs.user_cache_path("lookalike", appauthor=False)
    except RuntimeError:  # what platformdirs raises for a user without a home, in some versions
        return nowhere
    return folder if folder.is_absolute() else nowhere


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
