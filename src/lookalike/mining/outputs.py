"""Rows and ids -> files, as they come: JSON lines, parquet, NumPy. A file is there whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lookalike.mining.store import NOTE, remove_stores
from lookalike.utils.files import remove_leftovers, replacing, room_for, writable
from lookalike.utils.imports import optional_import
from lookalike.utils.locks import locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from lookalike.mining.vectors import Part

ROWS_AT_A_TIME = 4096
Version = tuple[int, int]  # inode and time of change of a file


class IdWriter(Protocol):
    """Takes negatives as row numbers, part by part."""

    def write(self, part: Part) -> None:
        """Append a part."""

    def finish(self) -> None:
        """Bring everything to the disk: from here on, only names change."""


def check_output(path: Path, suffixes: tuple[str, ...], *, force: bool) -> None:
    """Refuse what could not be written in the end, before anything is computed.

    Raises:
        ImportError: Writing it needs a library that is not installed.
        ValueError: It exists, or is of another kind, or its folder cannot be written to.
    """
    if path.suffix not in suffixes:
        raise ValueError(f"--output must end in {' or '.join(suffixes)}, got {path.name}.")
    _refuse_existing(path, force=force)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; --output names a file.")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is not a folder; create it or choose another --output.")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"{path.parent} cannot be written to; choose another --output.")
    if path.suffix == ".parquet":
        optional_import("pyarrow.parquet", "writing parquet")


@contextlib.contextmanager
def reserved(output: Path, *, force: bool) -> Iterator[None]:
    """Hold `output`, through its `work_folder`, for this process.

    Once the output is written, nothing that was encoded stays in the folder. The folder is gone at the end unless there
    is something in it to resume from.

    Raises:
        FolderInUseError: Another process writes the same output; the message names it.
        UnwritableError: The folder of the output cannot be written to.
        ValueError: Another process has written it in the meantime.
    """
    work = work_folder(output)
    with locked(work, remove_empty=True):
        before = version(output)
        try:
            _refuse_existing(output, force=force)
            remove_leftovers(output, scores_path(output), summary_path(output))
            yield
        finally:
            with contextlib.suppress(OSError):  # somebody has tidied up
                remove_stores(work, only_empty=version(output) in (None, before))


def _refuse_existing(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        work = work_folder(path)
        left = f" {work.name} beside it is what an interrupted run has kept." if any(work.glob(f"*/{NOTE}")) else ""
        raise ValueError(f"{path} exists; --force overwrites it, --output chooses another file.{left}")


def work_folder(output: Path) -> Path:
    """Return the folder beside an output for what is needed on the way to it."""
    return output.with_name(f"{output.name}.cache")


def summary_path(output: Path) -> Path:
    """Return where the summary of an output is."""
    return output.with_name(f"{output.stem}.summary.json")


def write_summary(output: Path, text: str) -> None:
    """Write the summary, which comes last before the output itself is put in its place.

    Whatever these replace is removed before: a process that is killed in between leaves less, but never the rows of one
    run beside the summary or the scores of another.
    """
    summary = summary_path(output)
    with replacing(summary) as temporary:
        temporary.write_text(text, encoding="utf-8")
        for old in (summary, output, *((scores_path(output),) if output.suffix == ".npy" else ())):
            old.unlink(missing_ok=True)


def version(path: Path) -> Version | None:
    """Tell a file from the one that takes its place; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


@contextlib.contextmanager
def row_writer(path: Path, rows: Iterable[dict[str, Any]], then: str) -> Iterator[int]:
    """Write rows, yield how many there are, and put the file in its place at the end: nothing is left to do then.

    Raises:
        DiskFullError: There is no room; says what to do `then`, and nothing is left behind.
        ValueError: There are no rows.
    """
    number = 0
    with writable(path.parent), room_for(str(path), then), replacing(path) as temporary:
        if path.suffix == ".jsonl":
            with temporary.open("w", encoding="utf-8") as file:
                for row in rows:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                    number += 1
        else:
            pa, pq = (
                optional_import("pyarrow", "writing parquet"),
                optional_import("pyarrow.parquet", "writing parquet"),
            )
            with contextlib.ExitStack() as stack:
                writer = None
                remaining = iter(rows)
                while group := list(islice(remaining, ROWS_AT_A_TIME)):
                    table = pa.Table.from_pylist(group, schema=None if writer is None else writer.schema)
                    if writer is None:
                        writer = stack.enter_context(pq.ParquetWriter(temporary, table.schema))
                    writer.write_table(table)
                    number += len(group)
        if number == 0:
            raise ValueError(
                f"there is nothing to write to {path}: no query has the negatives that a row takes; lower "
                "num_negatives or loosen the filters."
            )
        yield number


@contextlib.contextmanager
def id_writer(path: Path, num_rows: int, num_negatives: int) -> Iterator[IdWriter]:
    """Yield a writer of row numbers: .npy, with the scores in another .npy beside it, or .parquet."""
    kind = _ParquetIds if path.suffix == ".parquet" else _NumpyIds
    again = "make room and run the same again"
    with writable(path.parent), room_for(str(path), again), contextlib.ExitStack() as stack:
        yield kind(stack, path, num_rows, num_negatives)


def scores_path(path: Path) -> Path:
    """Where the scores of a .npy of row numbers are."""
    return path.with_name(f"{path.stem}.scores.npy")


class _NumpyIds:
    """Two arrays [n, num_negatives]: int64, and float32 beside it."""

    def __init__(self, stack: contextlib.ExitStack, path: Path, num_rows: int, num_negatives: int) -> None:
        self.files = []
        for target, dtype in ((path, np.int64), (scores_path(path), np.float32)):  # the first is put in its place last
            file = stack.enter_context(stack.enter_context(replacing(target)).open("wb"))
            header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (num_rows, num_negatives)}
            np.lib.format.write_array_header_1_0(file, header)
            self.files.append(file)

    def write(self, part: Part) -> None:
        """Append a part."""
        for file, values in zip(self.files, (part.indices, part.scores), strict=True):
            file.write(values.numpy().tobytes())

    def finish(self) -> None:
        """Bring everything to the disk."""
        for file in self.files:
            file.flush()


class _ParquetIds:
    """A row per query: its number, its negatives and their scores, without padding."""

    def __init__(self, stack: contextlib.ExitStack, path: Path, num_rows: int, num_negatives: int) -> None:  # noqa: ARG002 - as the other
        self.pa, pq = (
            optional_import("pyarrow", "writing parquet"),
            optional_import("pyarrow.parquet", "writing parquet"),
        )
        pa = self.pa
        fields = {"query": pa.int64(), "negatives": pa.list_(pa.int64()), "scores": pa.list_(pa.float32())}
        self.schema = pa.schema(fields)
        temporary = stack.enter_context(replacing(path))
        self.writer = stack.enter_context(pq.ParquetWriter(temporary, self.schema))
        self.first = 0

    def write(self, part: Part) -> None:
        """Append a part."""
        there = (part.indices >= 0).numpy()
        offsets = np.concatenate([[0], there.sum(1).cumsum()]).astype(np.int32)
        numbers = self.pa.array(np.arange(self.first, self.first + len(there)))
        lists = [self.pa.ListArray.from_arrays(offsets, x.numpy()[there]) for x in (part.indices, part.scores)]
        self.writer.write_table(self.pa.Table.from_arrays([numbers, *lists], schema=self.schema))
        self.first += len(there)

    def finish(self) -> None:
        """Bring everything to the disk."""
        self.writer.close()
