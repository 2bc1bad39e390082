"""Read tables from CSV, TSV, JSON lines, JSON and Parquet files, and remember where in the file each row is.

pyarrow reads Parquet. Text formats are read here, because errors name the line, which pyarrow does not report. This
module does not import torch, so that a command can refuse a table before it loads anything heavy.
"""

from __future__ import annotations

import csv
import json
from array import array
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookalike.utils.imports import optional_import
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SEPARATED = (".csv", ".tsv")
SUFFIXES = (*SEPARATED, ".jsonl", ".json", ".parquet")
TABLES = "'lookalike[tables]'"  # the extra that brings pyarrow
LONGEST_FIELD = 2**31 - 1  # characters; the csv module stops at 131,072 unless told otherwise


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    Args:
        source: What errors call the table: its path, or the name of a data set.
        names: The columns in order; without a header they are called 1, 2, ...
        load: Returns a column by name; values that a row lacks are None.
        lines: The line of the file where each row begins, for formats that have lines.
        header: Whether the file itself names its columns.
    """

    source: str
    names: Sequence[str]
    load: Callable[[str], Sequence[Any]]
    lines: Sequence[int] | None = None
    header: bool = True

    @property
    def separated(self) -> bool:
        """Whether this is a .csv or .tsv file, which may lack a header."""
        return Path(self.source).suffix.lower() in SEPARATED

    def place(self, row: int) -> str:
        """Return the place of a row for an error, counted from 1."""
        return f"{self.source}, row {row + 1}" if self.lines is None else f"{self.source}, line {self.lines[row]}"

    def values(self, name: str) -> Sequence[Any]:
        """Return a column that has a value in every row.

        Raises:
            ValueError: A row lacks the value, or two columns share the name.
        """
        column = self.column(name)
        for row, value in enumerate(column):
            if value is None:
                raise ValueError(f"{self.place(row)} has no {name!r}; add it or remove the row.")
        return column

    def column(self, name: str) -> Sequence[Any]:
        """Return a column, with None where a row lacks the value.

        Raises:
            ValueError: Two columns share the name.
        """
        if list(self.names).count(name) > 1:
            raise ValueError(f"{self.source} has {list(self.names).count(name)} columns called {name!r}; rename one.")
        return self.load(name)


def read_table(path: Path, *, header: bool = True) -> Table:
    """Read a .csv, .tsv, .jsonl, .json or .parquet file.

    Args:
        path: The file; text is UTF-8, with or without a byte order mark.
        header: Whether the first line of a .csv or .tsv file names the columns.

    Raises:
        ImportError: The file is Parquet and pyarrow is not installed.
        ValueError: The file is not what its name says; the message names the line.
    """
    suffix = path.suffix.lower()
    if not header and suffix not in SEPARATED:
        raise ValueError(f"{path} names its columns itself; only .csv and .tsv files can lack a header.")
    if suffix == ".parquet":
        return _parquet(path)
    with _decoding(path):
        if suffix in SEPARATED:
            return _separated(path, header=header)
        return _json(path)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Return the lines of a UTF-8 file that are not blank, with their numbers.

    Lines end at "\n" or "\r\n" and nowhere else: a text may contain any other Unicode line separator.

    Raises:
        ValueError: A line is not UTF-8, or lines end at "\r" alone.
    """
    return ((number, line) for number, line in _all_lines(path) if line.strip())


def _all_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every line, blank ones included."""
    with _decoding(path), path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if number == 1 and not line.endswith("\n") and "\r" in line.strip("\r"):
                raise ValueError(
                    f"{path} ends its lines with carriage returns (\\r) alone; save it with \\n line ends."
                )
            yield number, line.removesuffix("\n").removesuffix("\r")


def _separated(path: Path, *, header: bool) -> Table:
    rows: list[list[str]] = []
    lines = array("q")
    for number, row in _csv_rows(path) if path.suffix.lower() == ".csv" else _tsv_rows(path):
        rows.append(row)
        lines.append(number)
    if not rows:
        raise ValueError(f"{path} is empty.")
    width = len(rows[0])
    names = rows[0] if header else [str(i + 1) for i in range(width)]
    if header:
        rows, lines = rows[1:], lines[1:]
    for number, row in zip(lines, rows, strict=True):
        if len(row) != width:
            quoting = "quote texts that contain a comma" if path.suffix.lower() == ".csv" else "texts contain no tabs"
            raise ValueError(
                f"{path}, line {number} has {len(row)} fields where the first line has {width}; {quoting}."
            )
    if not rows:
        raise ValueError(f"{path} has a header and no rows.")

    def load(name: str) -> list[str]:
        place = names.index(name)
        return [row[place] for row in rows]

    return Table(str(path), names, load, lines, header)


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    limit = csv.field_size_limit(LONGEST_FIELD)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            first = 1
            for row in reader:
                if row:
                    yield first, row
                first = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {first} cannot be read as CSV ({first_line(error)}); inside quotes, a "
            "quote is written twice."
        ) from None
    finally:
        csv.field_size_limit(limit)


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in _all_lines(path):
        if line:  # a line of nothing but tabs is a row of empty fields, not a blank line
            yield number, line.split("\t")  # TSV has no quotes


def _json(path: Path) -> Table:
    values, lines = _json_values(path)
    if not values:
        raise ValueError(f"{path} has no rows.")
    names = dict.fromkeys(name for value in values if isinstance(value, dict) for name in value)
    table = Table(str(path), list(names), lambda name: [value.get(name) for value in values], lines)
    for row, value in enumerate(values):
        if not isinstance(value, dict):
            raise ValueError(f"{table.place(row)}: expected an object, got {json.dumps(value)[:60]}.")
    return table


def _json_values(path: Path) -> tuple[list[Any], Sequence[int] | None]:
    """Read one value per line, with line numbers, or the array that makes up a .json file."""
    text = path.read_text(encoding="utf-8-sig") if path.suffix.lower() == ".json" else ""
    if text.lstrip().startswith("["):
        return _parsed(text, str(path)), None
    values = []
    lines = array("q")
    for number, line in read_lines(path):
        try:
            values.append(_parsed(line, f"{path}, line {number}"))
        except ValueError:
            if not _is_json(text):
                raise
            raise ValueError(
                f"{path} is one JSON value over several lines; a .json file must be an array of objects, or hold one "
                "object per line."
            ) from None
        lines.append(number)
    return values, lines


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parsed(text: str, place: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: It is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"{place} is not a table: its JSON is nested too deeply; rows must be flat objects.") from None
    except ValueError as error:
        raise ValueError(f"{place} is not JSON: {first_line(error)}.") from None


def _parquet(path: Path) -> Table:
    parquet = optional_import("pyarrow.parquet", "reading parquet", TABLES)

    def load(name: str) -> list[Any]:
        with _readable(path):
            column: list[Any] = parquet.read_table(path, columns=[name]).column(0).to_pylist()
        return column

    with _readable(path), parquet.ParquetFile(path) as file:
        names, rows = list(file.schema_arrow.names), file.metadata.num_rows
    if not rows:
        raise ValueError(f"{path} has no rows.")
    return Table(str(path), names, load)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {first_line(error)}.") from error


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Name the line of a file that is not UTF-8."""
    try:
        yield
    except UnicodeDecodeError:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise ValueError(
                        f"{path}, line {number} is not UTF-8 (byte 0x{line[error.start]:02x}); save the file as UTF-8."
                    ) from None
        raise
