"""Find the two columns of a table that hold pairs of texts, and check that they hold texts.

`load_data("texts")`, `from_dataset` and `lookalike mine` all read pairs through this module.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.data.table_files import Table

QUERIES = ("query", "anchor", "question", "sentence1", "text1")
LISTED = "pos"  # holds a list of positives, as FlagEmbedding has it
REFERENCES = (
    "reference",
    "positive",
    "passage",
    "answer",
    "document",
    "response",
    "sentence2",
    "text2",
    LISTED,
)
SHOWN = 12  # columns in a message
WIDTH = 40  # characters of each
PLAIN = r"[\w.-]+"  # a name that needs no quotes


@dataclass(frozen=True)
class TextPairs:
    """Queries and the texts that answer them, row by row."""

    columns: tuple[str, str]
    queries: list[str]
    references: list[str]
    splits: list[str] | None  # the split of each pair, if the table has such a column

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs, query first."""
        return list(zip(self.queries, self.references, strict=True))


def read_text_pairs(table: Table, columns: str | Sequence[str] | None = None) -> TextPairs:
    """Take pairs of texts from a table.

    A column called pos may hold lists of texts: each text of a list makes a pair with the query of its row.

    Args:
        table: The table.
        columns: The columns of queries and of what answers them; by default those with known names.

    Raises:
        ValueError: There are no such columns, or a value is not a text; the message names the row.
    """
    found = pair_columns(table, columns)
    lists = found[1].strip().lower() == LISTED
    queries, answers = texts_of(table, found[0]), texts_of(table, found[1], lists=lists)
    split = next((name for name in table.names if name.strip().lower() == "split"), None)
    splits = [] if split is None or split in found else table.column(split)
    if not lists:
        return TextPairs(found, queries, answers, _as_words(splits) if splits else None)
    rows = [(row, text) for row, value in enumerate(answers) for text in ([value] if isinstance(value, str) else value)]
    return TextPairs(
        found,
        [queries[row] for row, _ in rows],
        [text for _, text in rows],
        _as_words([splits[row] for row, _ in rows]) if splits else None,
    )


def pair_columns(table: Table, columns: str | Sequence[str] | None) -> tuple[str, str]:
    """Return the columns of queries and of what answers them.

    Raises:
        ValueError: The names do not settle it; the message lists the columns and says how to choose two of them.
    """
    names = list(table.names)
    may_lack_header = table.separated and table.header
    header_hint = ", or pass header=False if the first line is already a pair" if may_lack_header else ""
    if columns is not None:
        wanted = column_names(columns)
        found = [match_column(name, names) for name in wanted]
        for name, match in zip(wanted, found, strict=True):
            if match is None:
                raise ValueError(
                    f"{table.source} has no column {name!r}, but {listed(names)}; name two of those{header_hint}."
                )
        return str(found[0]), str(found[1])
    if not table.header:
        if len(names) == 2:
            return names[0], names[1]
        raise ValueError(
            f"{table.source} has {len(names)} columns; say which two hold the queries and what answers them, as in "
            "columns=1,2."
        )
    if len(names) == 1 and table.separated:
        raise ValueError(
            f"{table.source} has one column, {listed(names)}; fields of a .csv file are separated by commas, those of "
            "a .tsv file by tabs."
        )
    queries, references = known_columns(names)
    if len(queries) == len(references) == 1:
        return queries[0], references[0]
    several = next((found for found in (queries, references) if len(found) > 1), None)
    what = "no known pair of queries and answers" if several is None else f"several to choose from ({listed(several)})"
    example = ",".join(names) if len(names) == 2 and all(re.fullmatch(PLAIN, n) for n in names) else "QUERY,ANSWER"
    raise ValueError(
        f"{table.source} has the columns {listed(names)}: {what}. Name the two, queries first, with "
        f"columns={example}{header_hint}."
    )


def known_columns(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns with the known names of queries, and those with the known names of answers.

    Examples:
        >>> known_columns(["id", "Question", "answer"])
        (['Question'], ['answer'])
    """
    queries, references = ([name for name in names if name.strip().lower() in known] for known in (QUERIES, REFERENCES))
    return queries, references


def column_names(columns: str | Sequence[str]) -> tuple[str, str]:
    """Return two column names, given as a pair or with a comma between them.

    Raises:
        ValueError: They are not two different names.

    Examples:
        >>> column_names("claim,evidence")
        ('claim', 'evidence')
    """
    given = next(csv.reader([columns], skipinitialspace=True), []) if isinstance(columns, str) else columns
    names = [str(name).strip() for name in given] if isinstance(given, (list, tuple)) else []
    if len(names) != 2 or names[0] == names[1]:
        raise ValueError(
            f"columns must name two columns, queries and what answers them, as in query,answer; got {columns!r}."
        )
    return names[0], names[1]


def match_column(name: str, names: Sequence[str]) -> str | None:
    """Find a column by its name; without an exact match, ignore case and surrounding spaces.

    Examples:
        >>> match_column("text", ["id", "Text "])
        'Text '
    """
    if name in names:
        return name
    close = [each for each in names if each.strip().lower() == name.strip().lower()]
    return close[0] if len(close) == 1 else None


def listed(names: Sequence[str]) -> str:
    """List column names for an error, shortened: the first line of a file without a header may hold whole texts.

    Examples:
        >>> listed(["id", "What is it, and why?"])
        "id, 'What is it, and why?'"
    """
    short = [name if len(name) <= WIDTH else f"{name[:WIDTH]}..." for name in names[:SHOWN]]
    shown = ", ".join(name if re.fullmatch(PLAIN, name) else repr(name) for name in short)
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def text_problem(value: Any) -> str | None:
    """Return what keeps a value from being a text that a model can encode; None if it is one.

    Examples:
        >>> text_problem(None), text_problem("  "), text_problem("a")
        ('is missing (null)', 'is empty', None)
    """
    if value is None:
        return "is missing (null)"
    if not isinstance(value, str):
        kind = {"bytes": "bytes", "list": "a list"}.get(type(value).__name__, f"of type {type(value).__name__}")
        return f"is {kind} and not a text"
    if not value.strip():
        return "is empty"
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return "holds half of a surrogate pair, which is not a character"
    return None


def texts_of(table: Table, name: str, *, lists: bool = False) -> list[Any]:
    """Return a column of texts; with `lists`, a column of texts and lists of texts.

    Raises:
        ValueError: A row holds something else; the message names the first one.
    """
    values = table.column(name)
    first, count = "", 0
    for row, value in enumerate(values):
        problem = _list_problem(value) if lists and isinstance(value, (list, tuple)) else text_problem(value)
        if problem is not None:
            first = first or f"{table.place(row)}: {name} {problem}"
            count += 1
    if count:
        others = "" if count == 1 else f", and {count - 1:,} more like it"
        hint = f"; lists of texts belong in a column called {LISTED}" if "a list" in first and not lists else ""
        raise ValueError(f"{first}{others}; correct or remove such rows{hint}.")
    return list(values)


def _list_problem(texts: Sequence[Any]) -> str | None:
    if not texts:
        return "is an empty list"
    problem = next((found for found in map(text_problem, texts) if found is not None), None)
    return None if problem is None else f"holds a text that {problem}"


def _as_words(splits: Sequence[Any]) -> list[str]:
    return ["" if split is None else str(split) for split in splits]
