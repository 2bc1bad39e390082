"""What the command line mines from: pairs in a file or a Hugging Face data set, further texts, a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lookalike.data.table_files import SUFFIXES, Table, read_lines, read_table
from lookalike.data.text_pairs import REFERENCES, TextPairs, listed, match_column, read_text_pairs, texts_of
from lookalike.mining.options import FROM_TEXTS
from lookalike.utils.imports import optional_import, sentence_transformers
from lookalike.utils.messages import first_line

LINES = ".txt"  # a text per line
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # a repository, with or without its owner
TEXTS = ("text", "passage", "document", "contents", "body")


def read_pairs(source: str, columns: str | None, split: str | None, *, header: bool = True) -> TextPairs:
    """Read pairs from a .csv, .tsv, .jsonl, .json or .parquet file, or from a Hugging Face data set.

    Args:
        source: A file, the folder of a data set that was saved to disk, or the name of one.
        columns: The columns of queries and positives, with a comma between them; by default those with known names.
        split: Which split of a data set.
        header: Whether the first line of a .csv or .tsv file names its columns.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: There are no such columns, or a row holds something else than texts.
    """
    return read_text_pairs(open_table(source, split, header=header), columns)


def read_corpus(path: str, column: str | None, *, header: bool = True) -> list[str]:
    """Read further texts to search: one per line of a .txt file, or a column of a table.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: There is no such column, there are no texts, or a row holds something else than a text.
    """
    check_corpus(path, column, header=header)
    file = Path(path).expanduser()
    if _holds_lines(file):
        texts = [line for _, line in read_lines(file)]
        if not texts:
            raise ValueError(f"{path} holds no texts; --corpus takes one text per line.")
        return texts
    table = open_table(path, None, header=header)
    return texts_of(table, corpus_column(table, column))


def check_corpus(path: str, column: str | None, *, header: bool = True) -> None:
    """Refuse a corpus that cannot be read, as far as that can be told without reading it.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A .txt file has no columns, so that none can be chosen.
    """
    file = Path(path).expanduser()
    _refuse_missing(file)
    if _holds_lines(file) and (column is not None or not header):
        raise ValueError(f"{path} has a text per line and no columns; leave out --corpus-column and the like.")


def _holds_lines(path: Path) -> bool:
    return path.suffix.lower() == LINES and path.is_file()


def _refuse_missing(path: Path) -> None:
    """Refuse what is not there and cannot be the name of a data set either."""
    is_path = path.suffix.lower() in (*SUFFIXES, LINES) or path.is_absolute()
    if is_path and not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file.")


def corpus_column(table: Table, column: str | None) -> str:
    """Return the column of a table that holds texts to search.

    Raises:
        ValueError: It cannot be told; the message lists the columns.
    """
    names = list(table.names)
    if column is not None and (match := match_column(column, names)) is not None:
        return match
    known = [name for name in names if name.strip().lower() in (*TEXTS, *REFERENCES)]
    if column is None and len(known) == 1:
        return known[0]
    if column is None and len(names) == 1 and not table.header:
        return names[0]
    what = f"no column {column!r}" if column is not None else "several columns of texts" if known else "no known column"
    hint = ""
    if table.separated and table.header:
        number = "" if len(names) == 1 else "--corpus-column 2 "
        hint = f", or {number}--no-corpus-header if its first line holds data"
    raise ValueError(
        f"{table.source} has {what}, but {listed(names)}; --corpus-column says which one holds the texts{hint}."
    )


def open_table(source: str, split: str | None, *, header: bool = True) -> Table:
    """Open a file or a Hugging Face data set.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It cannot be read.
    """
    path = Path(source).expanduser()
    if path.is_file():
        if path.suffix.lower() not in SUFFIXES:
            raise ValueError(f"{path} must be one of {', '.join(SUFFIXES)}, or the folder of a saved data set.")
        if split is not None:
            raise ValueError(f"--split chooses a split of a data set, but {path} is a file; leave it out.")
        return read_table(path, header=header)
    _refuse_missing(path)
    if not header:
        raise ValueError(f"{source} is a data set, which names its columns itself; leave out --no-header.")
    datasets = optional_import("datasets", *FROM_TEXTS)
    try:
        found = datasets.load_from_disk(str(path)) if path.is_dir() else datasets.load_dataset(source, split=split)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        what = "the data set in the folder" if path.is_dir() else "there is no such file, and the data set of the name"
        raise ValueError(f"{what} {source} cannot be loaded: {first_line(error)}.") from error
    if isinstance(found.column_names, dict):  # several splits
        chosen = split or ("train" if "train" in found else next(iter(found)))
        if chosen not in found:
            raise ValueError(f"{source} has no split {chosen!r}; it has {', '.join(found)}.")
        found = found[chosen]
    if len(found) == 0:
        raise ValueError(f"{source} has no rows; mining needs pairs of a query and a positive.")
    return Table(source, list(found.column_names), lambda name: list(found[name]))


def check_model_path(name: str) -> None:
    """Refuse a model that is not there and, by its name, cannot be on the Hugging Face Hub either.

    Raises:
        FileNotFoundError: There is no such folder.
    """
    if not HUB_NAME.fullmatch(name) and not Path(name).exists():
        raise FileNotFoundError(f"{name}: there is no such folder of a model.")


def load_model(name: str, device: str | None, kind: str = "SentenceTransformer") -> Any:
    """A model by the name of its folder, or of a repository.

    Raises:
        ImportError: sentence-transformers is not installed.
        ValueError: It cannot be loaded.
    """
    with sentence_transformers() as library:
        try:
            return getattr(library, kind)(name, device=device, trust_remote_code=False)
        except Exception as error:
            raise ValueError(
                f"the model {name!r} cannot be loaded as a {kind} ({first_line(error)}); give the folder that its "
                "save wrote, or its name on the Hugging Face Hub."
            ) from error
