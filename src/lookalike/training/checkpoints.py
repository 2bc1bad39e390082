"""Checkpoints with a checksum: the newest one, and the one before it in case the newest turns out to be damaged."""

from __future__ import annotations

import hashlib
import io
import logging
from typing import IO, TYPE_CHECKING, Any, cast

import torch

from lookalike.utils.files import replacing
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("lookalike")

MARK = b"sha256:"  # precedes the digest; `torch.load` ignores what follows its own data
CHUNK = 1 << 20
NEWEST, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"


class Checkpoints:
    """The last two states of a run; at every moment, one of them is complete.

    Args:
        folder: Folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.newest, self.previous = folder / NEWEST, folder / PREVIOUS

    def exist(self) -> bool:
        """Return whether there is a state to continue from."""
        return self.newest.exists() or self.previous.exists()

    def save(self, state: dict[str, Any]) -> None:
        """Save a state; what was the newest becomes the previous one."""
        with replacing(self.newest) as temporary:
            with temporary.open("wb") as file:
                hashed = _HashedFile(file)
                torch.save(state, cast("IO[bytes]", hashed))
                file.write(MARK + hashed.digest())
            if self.newest.exists():
                self.newest.replace(self.previous)  # a run that is killed here continues from the previous one

    def load(self) -> dict[str, Any]:
        """Load the newest state or, if it is damaged, the one before it with a warning.

        Raises:
            ValueError: Both checkpoints are damaged.
            OSError: A checkpoint cannot be read now, but may be intact.
        """
        problems = []
        for path in (self.newest, self.previous):
            if not path.exists():
                continue
            try:
                state = _read(path)
            except ValueError as error:
                problems.append(f"{path.name}: {first_line(error)}")
                continue
            if path == self.previous:
                if problems:
                    logger.warning(
                        "%s is damaged (%s): the run continues from the checkpoint before it, and repeats what it "
                        "trained since.",
                        self.newest,
                        problems[0].partition(": ")[2],
                    )
                path.replace(self.newest)  # or the next save would keep the damaged one instead
            return state
        raise ValueError(f"no checkpoint in {self.newest.parent} can be read ({'; '.join(problems)})")

    def remove(self) -> None:
        """Remove both checkpoints."""
        for path in (self.previous, self.newest):
            path.unlink(missing_ok=True)


class _HashedFile(io.RawIOBase):
    """Computes the checksum of a file while it is written, which saves reading gigabytes again."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def digest(self) -> bytes:
        return self._hash.digest()


def _read(path: Path) -> dict[str, Any]:
    """Verify the checksum of a file and load its state.

    Raises:
        ValueError: The file is damaged.
    """
    trailer = len(MARK) + hashlib.sha256().digest_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = path.stat().st_size - trailer
        while left > 0:
            chunk = file.read(min(CHUNK, left))
            if not chunk:
                break
            digest.update(chunk)
            left -= len(chunk)
        if file.read() != MARK + digest.digest():
            raise ValueError("its checksum is wrong")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):  # which says nothing about the file
        raise
    except Exception as error:
        raise ValueError(first_line(error)) from error
    if not isinstance(state, dict):
        raise ValueError(f"it holds {type(state).__name__}")
    return state
