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
        first: How many rows of the source come before these.
    """

    source: str
    names: Sequence[str]
    load: Callable[[str], Sequence[Any]]
    lines: Sequence[int] | None = None
    header: bool = True
    first: int = 0

    @property
    def separated(self) -> bool:
        """Whether this is a .csv or .tsv file, which may lack a header."""
        return Path(self.source).suffix.lower() in SEPARATED

    def place(self, row: int) -> str:
        """Return the place of a row for an error, counted from 1."""
        if self.lines is None:
            return f"{self.source}, row {self.first + row + 1}"
        return f"{self.source}, line {self.lines[row]}"

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
    check_header(path, header=header)
    if suffix == ".parquet":
        return _parquet(path)
    with _decoding(path):
        if suffix in SEPARATED:
            return _separated(path, header=header)
        return _json(path)


def check_header(path: Path, *, header: bool) -> None:
    """Refuse to read a file without a header that always has one.

    Raises:
        ValueError: It names its columns itself.
    """
    if not header and path.suffix.lower() not in SEPARATED:
        raise ValueError(f"{path} names its columns itself; only .csv and .tsv files can lack a header.")


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
    for number, row in separated_rows(path):
        rows.append(row)
        lines.append(number)
    if not rows:
        raise ValueError(f"{path} is empty.")
    names = rows[0] if header else [str(i + 1) for i in range(len(rows[0]))]
    if header:
        rows, lines = rows[1:], lines[1:]
    if not rows:
        raise ValueError(f"{path} has a header and no rows.")
    return separated_table(path, names, rows, lines, header=header)


def separated_table(
    path: Path, names: list[str], rows: list[list[str]], lines: Sequence[int], *, header: bool
) -> Table:
    """Make a table of rows of a .csv or .tsv file."""

    def load(name: str) -> list[str]:
        place = names.index(name)
        return [row[place] for row in rows]

    return Table(str(path), names, load, lines, header)


def separated_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a .csv or .tsv file, a header included, with the numbers of their lines.

    Raises:
        ValueError: A row has another number of fields than the first one, or cannot be read; the message names it.
    """
    comma = path.suffix.lower() == ".csv"
    width = None
    with _decoding(path):
        for number, row in _csv_rows(path) if comma else _tsv_rows(path):
            width = len(row) if width is None else width
            if len(row) != width:
                quoting = "quote texts that contain a comma" if comma else "texts contain no tabs"
                raise ValueError(
                    f"{path}, line {number} has {len(row)} fields where the first line has {width}; {quoting}."
                )
            yield number, row


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
    values, lines = [], array("q")
    for number, value in json_rows(path):
        values.append(value)
        if number is not None:
            lines.append(number)
    if not values:
        raise ValueError(f"{path} has no rows.")
    return json_table(path, values, lines or None)


def json_table(path: Path, values: list[dict[str, Any]], lines: Sequence[int] | None, first: int = 0) -> Table:
    """Make a table of rows of a .jsonl or .json file."""
    names = dict.fromkeys(name for value in values for name in value)
    return Table(str(path), list(names), lambda name: [value.get(name) for value in values], lines, first=first)


def json_rows(path: Path) -> Iterator[tuple[int | None, dict[str, Any]]]:
    """Yield one object per line, with line numbers, or those of the array that makes up a .json file.

    Raises:
        ValueError: Something else is there; the message names the line or the row.
    """
    for row, (number, value) in enumerate(_json_values(path), 1):
        if not isinstance(value, dict):
            place = f"row {row}" if number is None else f"line {number}"
            raise ValueError(f"{path}, {place}: expected an object, got {json.dumps(value)[:60]}.")
        yield number, value


def _json_values(path: Path) -> Iterator[tuple[int | None, Any]]:
    whole = path.suffix.lower() == ".json"
    if whole and _begins_with_bracket(path):
        with _decoding(path):
            text = path.read_text(encoding="utf-8-sig")
        yield from ((None, value) for value in _parsed(text, str(path)))
        return
    for number, line in read_lines(path):
        try:
            value = _parsed(line, f"{path}, line {number}")
        except ValueError:
            if not whole or not _is_json(path.read_text(encoding="utf-8-sig")):
                raise
            raise ValueError(
                f"{path} is one JSON value over several lines; a .json file must be an array of objects, or hold one "
                "object per line."
            ) from None
        yield number, value


def _begins_with_bracket(path: Path) -> bool:
    with _decoding(path), path.open(encoding="utf-8-sig") as file:
        return next((line for line in file if line.strip()), "").lstrip().startswith("[")


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
        with readable_parquet(path):
            column: list[Any] = parquet.read_table(path, columns=[name]).column(0).to_pylist()
        return column

    with readable_parquet(path), parquet.ParquetFile(path) as file:
        names, rows = list(file.schema_arrow.names), file.metadata.num_rows
    if not rows:
        raise ValueError(f"{path} has no rows.")
    return Table(str(path), names, load)


@contextmanager
def readable_parquet(path: Path) -> Iterator[None]:
    """Name the file where pyarrow cannot read it."""
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
