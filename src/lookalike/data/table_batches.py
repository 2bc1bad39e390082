"""Read tables batch by batch: Parquet by row groups, text formats line by line; never a whole file at once."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from lookalike.data.table_files import (
    SEPARATED,
    TABLES,
    Table,
    check_header,
    json_rows,
    json_table,
    readable_parquet,
    separated_rows,
    separated_table,
)
from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ROWS = 4096  # of a batch
BUFFER = 1 << 20  # bytes of a column of a Parquet file to read at a time
GLIMPSED = 256  # rows that are looked at for the names of columns


def glimpse(path: Path, *, header: bool = True) -> Table | None:
    """Return the first rows of a table, or of a Parquet file only its names; None if it has no rows.

    Raises:
        ImportError: The file is Parquet and pyarrow is not installed.
        ValueError: The file is not what its name says.
    """
    check_header(path, header=header)
    if path.suffix.lower() != ".parquet":
        return next(read_batches(path, header=header, rows=GLIMPSED), None)
    parquet = optional_import("pyarrow.parquet", "reading parquet", TABLES)
    with readable_parquet(path), parquet.ParquetFile(path) as file:
        names, number = list(file.schema_arrow.names), file.metadata.num_rows
    return Table(str(path), names, lambda _: []) if number else None


def read_batches(
    path: Path, columns: Sequence[str] | None = None, *, header: bool = True, rows: int = ROWS
) -> Iterator[Table]:
    """Yield the rows of a .csv, .tsv, .jsonl, .json or .parquet file, a few thousand at a time.

    A .json file that is one array is read as a whole; all others can be of any size.

    Args:
        path: The file; text is UTF-8, with or without a byte order mark.
        columns: The columns to read from a Parquet file; by default all of them.
        header: Whether the first line of a .csv or .tsv file names the columns.
        rows: Rows of a batch.

    Raises:
        ImportError: The file is Parquet and pyarrow is not installed.
        ValueError: The file is not what its name says; the message names the line.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from _parquet_batches(path, columns, rows)
    elif suffix in SEPARATED:
        numbered = separated_rows(path)
        names = next(numbered, (0, []))[1] if header else None
        while part := list(islice(numbered, rows)):
            names = [str(i + 1) for i in range(len(part[0][1]))] if names is None else names
            yield separated_table(path, names, [row for _, row in part], [n for n, _ in part], header=header)
    else:
        first, objects = 0, json_rows(path)
        while found := list(islice(objects, rows)):
            lines = [number for number, _ in found if number is not None]
            yield json_table(path, [value for _, value in found], lines or None, first)
            first += len(found)


def _parquet_batches(path: Path, columns: Sequence[str] | None, rows: int) -> Iterator[Table]:
    parquet = optional_import("pyarrow.parquet", "reading parquet", TABLES)
    first = 0
    with readable_parquet(path):
        file = parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)  # and not a whole row group at once
    with file:
        batches = file.iter_batches(batch_size=rows, columns=None if columns is None else list(columns))
        while True:
            with readable_parquet(path):  # and not around what the caller does with a batch
                batch: Any = next(batches, None)
            if batch is None:
                return
            yield Table(str(path), batch.schema.names, _loader(batch), first=first)
            first += batch.num_rows


def _loader(batch: Any) -> Any:
    return lambda name: batch.column(batch.schema.names.index(name)).to_pylist()
