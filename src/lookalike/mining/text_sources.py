"""Stream texts from any source, batch by batch: files, shards, Hugging Face data sets and streams."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lookalike.data.table_batches import glimpse, read_batches
from lookalike.data.table_files import SUFFIXES, Table, read_lines, read_table
from lookalike.data.text_pairs import LISTED, listed, pair_columns, read_text_pairs, texts_of
from lookalike.mining.shard_files import files_identity, find_files, is_pattern
from lookalike.mining.sources import LINES, checked_texts, find_dataset, text_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Batch = TypeVar("Batch")
PairBatch = tuple[list[str], list[str]]  # queries, and the texts that answer them

ROWS = 4096  # of a batch
SAVED = ("state.json", "dataset_info.json", "dataset_dict.json")  # in the folder of a saved data set
ID_NAME = re.compile(r"(.*[\W_])?id|[qpd]id|docid", re.IGNORECASE)


@dataclass(frozen=True)
class TextSource(Generic[Batch]):
    """Texts that are read in batches, as often as the source can be: a stream once.

    Args:
        name: What errors call the source.
        columns: The columns that are read; none for lines.
        identity: What `source_identity` says of it.
        named: What the columns are called in an output, where the source names none.
    """

    name: str
    columns: tuple[str, ...]
    identity: dict[str, Any]
    _read: Callable[[], Iterator[Batch]] = field(repr=False)
    named: tuple[str, ...] | None = None

    @property
    def reads_files(self) -> bool:
        """Whether columns were found in files or by the name of a data set, and not in an object."""
        return "rows" not in self.identity and "stream" not in self.identity

    def __iter__(self) -> Iterator[Batch]:
        """Read all batches.

        Raises:
            TypeError: A value is not a text.
            ValueError: A text is empty or not valid; the message names the file and the line, or the row.
        """
        return self._read()


def open_pairs(
    source: Any, columns: str | Sequence[str] | None = None, split: str | None = None, *, header: bool = True
) -> TextSource[PairBatch]:
    """Open pairs of texts; nothing but the names of columns is read yet.

    Args:
        source: A .jsonl, .json, .parquet, .tsv or .csv file, a list of them, a pattern such as "data/*.parquet", or a
            folder of them; the folder or name of a Hugging Face data set; a `datasets.Dataset` or a stream.
        columns: The columns of queries and positives; by default those with known names.
        split: Which split of a data set to read; by default "train", or the only one.
        header: Whether the first line of a .csv or .tsv file names its columns.

    Raises:
        FileNotFoundError: There is no such file.
        TypeError: The source is something else.
        ValueError: There are no such columns or no rows, or the columns of two shards differ.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "pairs.jsonl")
        >>> _ = path.write_text('{"query": "q", "answer": "a"}\\n' * 2)
        >>> pairs = open_pairs(path)
        >>> pairs.columns, list(pairs)
        (('query', 'answer'), [(['q', 'q'], ['a', 'a'])])
    """
    files, data, name = _opened(source, split, SUFFIXES, "pairs", header=header)
    if files is None:
        return _dataset_pairs(data, name, columns, source_identity(source, split))
    tables = _not_empty(files, header=header)
    found = pair_columns(next(iter(tables.values())), columns)
    _check_columns(tables, found)

    def read() -> Iterator[PairBatch]:
        for file in tables:
            for table in read_batches(file, found, header=header, rows=ROWS):
                pairs = read_text_pairs(table, found)
                _refuse_ids(table, found, (pairs.queries, pairs.references))
                yield pairs.queries, pairs.references

    return TextSource(name, found, files_identity(files), read)


def open_corpus(source: Any, column: str | None = None, *, header: bool = True) -> TextSource[list[str]]:
    """Open further texts to search; nothing but the names of columns is read yet.

    Args:
        source: .txt files with one text per line, or what `open_pairs` opens.
        column: The column of texts; by default the one with a known name.
        header: Whether the first line of a .csv or .tsv file names its columns.

    Raises:
        FileNotFoundError: There is no such file.
        TypeError: The source is something else.
        ValueError: There is no such column or there are no texts, or the columns of two shards differ.
    """
    files, data, name = _opened(source, None, (LINES, *SUFFIXES), "texts", header=header)
    if files is None:
        return _dataset_corpus(data, name, column, source_identity(source))
    if all(file.suffix.lower() == LINES for file in files):
        if column is not None or not header:
            raise ValueError(
                f"{name} has one text per line and no columns; leave out corpus_column= and corpus_header=False."
            )
        return TextSource(name, (), files_identity(files), lambda: _line_batches(files, name))
    if any(file.suffix.lower() == LINES for file in files):
        raise ValueError(f"{name} holds lines of texts and tables; give one kind of files.")
    tables = _not_empty(files, header=header)
    found = text_column(next(iter(tables.values())), column)
    _check_columns(tables, (found,))

    def read() -> Iterator[list[str]]:
        for file in tables:
            for table in read_batches(file, [found], header=header, rows=ROWS):
                texts = texts_of(table, found)
                _refuse_ids(table, (found,), (texts,))
                yield texts

    return TextSource(name, (found,), files_identity(files), read)


def source_identity(source: Any, split: str | None = None) -> dict[str, Any]:
    """Describe a source so that a resumed run can tell whether it changed, without reading it.

    Files are told apart by their names, sizes and times, a data set by its fingerprint. A stream has nothing of the
    kind: compare the checksums of what was read.
    """
    if not _is_path(source) and not isinstance(source, list | tuple):
        if not hasattr(source, "__len__"):
            return {"stream": True}
        return {"rows": len(source), "fingerprint": getattr(source, "_fingerprint", None)}
    if isinstance(source, list | tuple) or is_pattern(Path(source).expanduser()):
        return files_identity(find_files(source, (LINES, *SUFFIXES), "texts"))
    path = Path(source).expanduser()
    if path.is_file():
        return files_identity([path])
    if path.is_dir() and not _is_saved(path):
        return files_identity(find_files(path, (LINES, *SUFFIXES), "texts"))
    if path.is_dir():
        return files_identity(sorted(each for each in path.rglob("*") if each.is_file()))
    return {"dataset": str(source), "split": split}


def text_batches(name: str, texts: Sequence[Any], rows: int = ROWS) -> Iterator[list[str]]:
    """Yield texts that are in memory, or that can be sliced, batch by batch, after a check.

    Raises:
        TypeError: One is not a text.
        ValueError: One is empty, or is not valid Unicode; the message names `name` and the row.
    """
    for first in range(0, len(texts), rows):
        yield checked_texts(name, texts[first : first + rows], first)


def _opened(
    source: Any, split: str | None, suffixes: Sequence[str], what: str, *, header: bool
) -> tuple[list[Path] | None, Any, str]:
    """Return the files, or None and a data set or stream; and the name of the source."""
    if not _is_path(source) and not isinstance(source, list | tuple):
        if isinstance(getattr(source, "column_names", None), dict):
            raise TypeError(f"{what} are read from a data set, got {type(source).__name__}; take one of its splits.")
        if not hasattr(source, "column_names") or not hasattr(source, "iter"):
            raise TypeError(
                f"{what} are read from files, a datasets.Dataset or a stream of Hugging Face, got "
                f"{type(source).__name__}; make one with Dataset.from_dict."
            )
        return None, source, "the stream" if not hasattr(source, "__len__") else "the data set"
    path = None if isinstance(source, list | tuple) else Path(source).expanduser()
    is_name = path is not None and not path.exists() and not is_pattern(path)
    if path is not None and (is_name or (path.is_dir() and _is_saved(path))):
        return None, find_dataset(str(source), split, header=header), str(source)
    if split is not None:
        raise ValueError(
            f"split= chooses a split of a data set, but {_named(source)} is read from files; leave it out."
        )
    return find_files(source, suffixes, what), None, _named(source)


def _is_path(source: Any) -> bool:
    return isinstance(source, str | os.PathLike)


def _is_saved(folder: Path) -> bool:
    """Return whether `save_to_disk` wrote a folder."""
    return any((folder / name).is_file() for name in SAVED)


def _named(source: Any) -> str:
    if not isinstance(source, list | tuple):
        return str(source)
    return str(source[0]) + ("" if len(source) == 1 else f" and {len(source) - 1} more")


def _not_empty(files: list[Path], *, header: bool) -> dict[Path, Table]:
    """Return the files that have rows, and the first of these.

    Raises:
        ValueError: None has any.
    """
    found = {file: table for file in files if (table := glimpse(file, header=header)) is not None}
    if not found and len(files) == 1:
        read_table(files[0], header=header)  # says what is wrong with it
    if not found:
        raise ValueError(f"none of the {len(files)} files from {files[0]} to {files[-1]} has any rows.")
    return found


def _check_columns(tables: dict[Path, Table], columns: tuple[str, ...]) -> None:
    """Refuse shards that lack a column of the first one."""
    first = next(iter(tables.values()))
    for table in tables.values():
        if any(name not in table.names for name in columns):
            raise ValueError(
                f"{table.source} has the columns {listed(table.names)}, but {first.source} has {listed(first.names)}; "
                f"all files must have {' and '.join(columns)}."
            )


def _refuse_ids(table: Table, columns: Sequence[str], values: Sequence[Sequence[str]]) -> None:
    """Refuse numbers in a column whose name says that it holds ids."""
    for name, texts in zip(columns, values, strict=True):
        if ID_NAME.fullmatch(name.strip()) and all(text.strip().isdigit() for text in texts):
            raise ValueError(
                f"{table.place(0)}: {name} holds ids and not texts ({texts[0][:20]!r}); look up the texts that they "
                "stand for, and give files of texts."
            )


def _line_batches(files: list[Path], name: str) -> Iterator[list[str]]:
    some = False
    for file in files:
        lines = (line for _, line in read_lines(file))
        while texts := list(islice(lines, ROWS)):
            some = True
            yield texts
    if not some:
        raise ValueError(f"{name} holds no texts; a corpus has one text per line.")


def _dataset_batches(data: Any, name: str) -> tuple[list[str], Callable[[Sequence[str]], Iterator[Table]]]:
    """Return the names of the columns of a data set or stream, and what reads some of them in batches.

    Raises:
        ValueError: It has no rows.
    """
    peeked: Any = None
    nothing = ValueError(f"{name} has no rows; mining needs pairs of a query and a positive.")
    if hasattr(data, "__len__") and len(data) == 0:
        raise nothing
    names = None if data.column_names is None else list(data.column_names)
    if names is None:  # a stream that tells the names of its columns with its first rows
        rest = iter(data.iter(batch_size=ROWS))
        peeked = next(rest, None)
        if peeked is None:
            raise nothing
        names = list(peeked)

    def read(columns: Sequence[str]) -> Iterator[Table]:
        nonlocal peeked
        if peeked is None:
            batches = iter(data.select_columns(list(columns)).iter(batch_size=ROWS))
        else:  # once
            batches, peeked = chain([peeked], rest), None
        first = 0
        for batch in batches:
            yield Table(name, list(columns), partial(_column, batch), first=first)
            first += len(batch[columns[0]])
        if not first:
            raise nothing

    return names, read


def _column(batch: Any, name: str) -> list[Any]:
    return list(batch[name])


def _dataset_pairs(
    data: Any, name: str, columns: str | Sequence[str] | None, identity: dict[str, Any]
) -> TextSource[PairBatch]:
    names, read = _dataset_batches(data, name)
    found = pair_columns(Table(name, names, lambda _: []), columns)

    def pairs() -> Iterator[PairBatch]:
        for table in read(found):
            if found[1].strip().lower() == LISTED:  # may hold lists of texts
                both = read_text_pairs(table, found)
                yield both.queries, both.references
                continue
            queries, references = (checked_texts(f"column {c!r}", table.column(c), table.first) for c in found)
            _refuse_ids(table, found, (queries, references))
            yield queries, references

    return TextSource(name, found, identity, pairs)


def _dataset_corpus(data: Any, name: str, column: str | None, identity: dict[str, Any]) -> TextSource[list[str]]:
    names, read = _dataset_batches(data, name)
    found = text_column(Table(name, names, lambda _: []), column)

    def texts() -> Iterator[list[str]]:
        for table in read([found]):
            part = checked_texts(f"column {found!r}", table.column(found), table.first)
            _refuse_ids(table, (found,), (part,))
            yield part

    return TextSource(name, (found,), identity, texts)
