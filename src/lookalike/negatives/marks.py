"""Marks: a file to which people's decisions that two samples are the same are appended; imports no torch."""

from __future__ import annotations

import json
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from lookalike.utils.checks import checked_integer, checked_positive
from lookalike.utils.files import writable, write_text
from lookalike.utils.locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from lookalike.utils.arrays import Array

KIND = "same"
EXPECTED_HEADER = '{"lookalike": "same", "samples": ..., "data": ..., "checksum": ...}'
EXPECTED_LINE = '{"first": 12, "second": 940, "same": true}'
LONGEST_QUOTE = 60  # characters

Pair = tuple[int, int]


class Data(NamedTuple):
    """The data set that marks are about: what the first line of their file says."""

    samples: int
    """Ids are below it."""
    references: int | None = None
    """Where `second` counts the rows of a separate reference: how many it has."""
    name: str | None = None
    checksum: str | None = None

    def pair(self, first: int, second: int) -> Pair:
        """Return the two in the order in which they are kept: the smaller id first, or the query first."""
        return (first, second) if self.references is not None or first <= second else (second, first)

    def is_itself(self, first: int, second: int) -> bool:
        """Return whether the two are one sample."""
        return self.references is None and first == second

    def check_range(self, first: int, second: int, place: str) -> None:
        """Check that the data set has such ids.

        Raises:
            ValueError: It has not; the sentence begins with `place`.
        """
        for name, value, n in (("first", first, self.samples), ("second", second, self.references or self.samples)):
            if not 0 <= value < n:
                raise ValueError(f"{place}: {name} must be an id between 0 and {n - 1}, got {value}.")

    def check_equal(self, other: Data, place: str) -> None:
        """Check that marks about `other` data can be used for these.

        Raises:
            ValueError: The number of samples differs, or the checksum, where both are known.
        """
        ours = (self.samples, self.references, self.checksum if other.checksum is not None else None)
        theirs = (other.samples, other.references, other.checksum if self.checksum is not None else None)
        if ours != theirs:
            raise ValueError(
                f"{place} holds marks of other data: they are of {other.described()}, here there are "
                f"{self.described()}; choose the file of these data."
            )

    def described(self) -> str:
        """Describe the data set for an error."""
        name = "" if self.name is None else f" of {self.name}"
        references = "" if self.references is None else f" and {self.references} references"
        checksum = "" if self.checksum is None else f" (checksum {self.checksum})"
        return f"{self.samples} samples{references}{name}{checksum}"

    def header(self) -> str:
        """Return the first line of a file of marks."""
        counts = {"samples": self.samples} | ({} if self.references is None else {"references": self.references})
        return json.dumps({"lookalike": KIND, **counts, "data": self.name, "checksum": self.checksum}) + "\n"


class Marked(NamedTuple):
    """What a file of marks holds."""

    data: Data
    pairs: dict[Pair, None]
    """The pairs that are marked as the same, after every decision, in the order of marking."""
    size: int
    """Bytes of the file without a last line that was cut off."""
    ends_line: bool
    """Whether those end with the end of a line."""


def read_marks(path: Path) -> Marked:
    """Read a file of marks; a last line that was cut off is ignored.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a file of marks, or damaged; the message names the line.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of marks.")
    lines = path.read_bytes().splitlines(keepends=True)
    data = _header(lines[0] if lines else b"", f"{path}, line 1")
    pairs: dict[Pair, None] = {}
    size = sum(map(len, lines))
    for number, line in enumerate(lines[1:], 2):
        place = f"{path}, line {number}"
        if number == len(lines) and not line.endswith(b"\n") and _parsed(line) is None:
            return Marked(data, pairs, size - len(line), ends_line=True)  # whoever wrote it was killed meanwhile
        if not line.strip():
            continue
        first, second, is_same = _decision(line, place)
        data.check_range(first, second, place)
        if data.is_itself(first, second):
            raise ValueError(f"{place}: first and second are both {first}, but two different samples were expected.")
        _apply(pairs, data.pair(first, second), is_same=is_same)
    return Marked(data, pairs, size, lines[-1].endswith(b"\n"))


def _parsed(line: bytes) -> Any:
    """Parse JSON; return None for anything else."""
    try:
        return json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def _header(line: bytes, place: str) -> Data:
    header = _parsed(line)
    if isinstance(header, dict) and header.get("lookalike") == KIND:
        counts = [header.get("samples"), header.get("references", 1)]
        texts = [header.get("data"), header.get("checksum")]
        are_counts = all(type(count) is int and count > 0 for count in counts)
        if are_counts and all(text is None or isinstance(text, str) for text in texts):
            return Data(header["samples"], header.get("references"), *texts)
    raise ValueError(f"{place}: expected {EXPECTED_HEADER}, got {_quoted(line)}; it is not a file of marks.")


def _decision(line: bytes, place: str) -> tuple[int, int, bool]:
    decision = _parsed(line)
    if isinstance(decision, dict):
        first, second, is_same = (decision.get(name) for name in ("first", "second", "same"))
        if type(first) is int and type(second) is int and type(is_same) is bool:
            return first, second, is_same
    raise ValueError(f"{place}: expected a line such as {EXPECTED_LINE}, got {_quoted(line)}; mend or remove it.")


def _quoted(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 3] + "...") if text else "nothing"


def _apply(pairs: dict[Pair, None], pair: Pair, *, is_same: bool) -> None:
    pairs.pop(pair, None)
    if is_same:
        pairs[pair] = None


def as_pairs(pairs: Iterable[Pair]) -> Array:
    """Return pairs in ascending order, int64 [m, 2]."""
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


class Marks:
    """Append decisions that two samples are the same to a file, each on disk before the call returns.

    The file is JSON lines: the data set on the first, then a decision per line, of which the last about two samples
    counts. One process at a time has it open.

    Args:
        path: The file; it is created if it does not exist.
        samples: Number of samples of the data set; ids are below it.
        references: Where `first` is a query and `second` a row of a separate reference: how many rows that has.
        data: Name of the data set, for people who read the file.
        checksum: Checksum of the data set, where it has one.

    Raises:
        FolderInUseError: Another process has the file open; the message names it.
        UnwritableError: The folder cannot be written to.
        ValueError: The file is damaged, holds marks of other data, or is not called .jsonl, by which readers know it.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "marks.jsonl"
        >>> with Marks(path, samples=1000) as marks:
        ...     marks.mark(940, 12)
        ...     marks.mark(3, 4)
        ...     marks.unmark(4, 3)
        ...     marks.pairs.tolist()
        [[12, 940]]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        samples: int,
        references: int | None = None,
        data: str | None = None,
        checksum: str | None = None,
    ) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() != ".jsonl":
            raise ValueError(f"{self.path} must be a .jsonl file: marks can be read from other kinds, not added.")
        rows = None if references is None else checked_positive("references", references)
        self._data = Data(checked_positive("samples", samples), rows, data, checksum)
        self._one_at_a_time = threading.Lock()
        with ExitStack() as stack:
            work = self.path.with_name(f".{self.path.name}.lookalike")  # the lock's: gone once the file is closed
            stack.enter_context(locked(work, named=str(self.path), remove_empty=True))
            if not self.path.exists():
                with writable(self.path.parent):
                    write_text(self.path, self._data.header())  # whole or not at all: no other line can lack its header
            marked = read_marks(self.path)
            self._data.check_equal(marked.data, str(self.path))
            self._pairs = marked.pairs
            with writable(self.path.parent):
                self._file = stack.enter_context(self.path.open("r+b", buffering=0))
                self._file.truncate(marked.size)
                self._file.seek(marked.size)
                self._end = marked.size
                if not marked.ends_line:
                    self._append(b"\n")
            self._stack = stack.pop_all()

    @property
    def pairs(self) -> Array:
        """The pairs that are marked as the same, int64 [m, 2], ascending."""
        with self._one_at_a_time:
            return as_pairs(self._pairs)

    @property
    def in_order(self) -> list[Pair]:
        """The same pairs in the order in which they were marked, the newest last."""
        with self._one_at_a_time:
            return list(self._pairs)

    def __contains__(self, pair: Pair) -> bool:
        """Return whether two samples are marked as the same, as a pair by itself."""
        return self._data.pair(*pair) in self._pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def mark(self, first: int, second: int) -> None:
        """Mark two samples as the same.

        Raises:
            ValueError: There is no such sample, the two are one, or another program has touched the file.
            DiskFullError: The disk is full; nothing was marked.
        """
        self._decide(first, second, is_same=True)

    def unmark(self, first: int, second: int) -> None:
        """Take the mark of two samples back.

        Raises:
            ValueError: There is no such sample, the two are one, or another program has touched the file.
            DiskFullError: The disk is full; nothing was changed.
        """
        self._decide(first, second, is_same=False)

    def close(self) -> None:
        """Close the file, so that another process may open it."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _decide(self, first: int, second: int, *, is_same: bool) -> None:
        first, second = checked_integer("first", first), checked_integer("second", second)
        self._data.check_range(first, second, "a pair of the same samples")
        if self._data.is_itself(first, second):
            raise ValueError(f"first and second must be two different samples, got {first} twice.")
        line = json.dumps({"first": first, "second": second, "same": is_same}) + "\n"
        with self._one_at_a_time:
            if self._file.closed:
                raise ValueError(f"{self.path} is closed: open it again to mark pairs.")
            if not self._is_untouched():
                raise ValueError(
                    f"{self.path} was moved, removed or changed by another program after it was opened, so nothing is "
                    "added: open it again."
                )
            with writable(self.path.parent):
                self._append(line.encode())
            _apply(self._pairs, self._data.pair(first, second), is_same=is_same)

    def _is_untouched(self) -> bool:
        """Return whether the path still leads to the open file, as it was left: others would read what lies there."""
        try:
            there = self.path.stat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._file.fileno())) and there.st_size == self._end

    def _append(self, line: bytes) -> None:
        """Append to the file and wait until the disk has it; after an error the file is as it was."""
        try:
            rest = line
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            raise
        self._end += len(line)
