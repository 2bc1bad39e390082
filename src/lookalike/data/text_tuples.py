"""Read pairs of texts with the negatives that a table brings along: triplets, n-tuples, lists, labelled pairs.

Every layout of texts that `lookalike mine` writes with labels or without scores is one of them.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lookalike.data.text_pairs import pair_columns, read_text_pairs, text_problem, texts_of
from lookalike.utils.checks import checked_integer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lookalike.data.table_files import Table

logger = logging.getLogger("lookalike")

NEGATIVE = re.compile(r"neg|negative(_\d+)?")
LABEL, LABELS = "label", "labels"  # 1 for a positive, 0 for a negative; labels holds a list
PASSAGES = ("positive_passages", "negative_passages")  # lists of objects with a title and a text, as in Tevatron
MOST = 32  # negatives per pair, unless their number is given


@dataclass(frozen=True)
class TextTuples:
    """Pairs of texts and the negatives of each."""

    columns: tuple[str, str]
    pairs: list[tuple[str, str]]
    negatives: list[list[str]] | None  # of each pair, as many as it has; None if the table has none
    splits: list[str] | None  # the split of each pair, if the table has such a column


class _Example(NamedTuple):
    row: int
    query: str
    positives: Sequence[str]
    negatives: Sequence[str]


def read_text_tuples(
    table: Table, columns: str | Sequence[str] | None = None, negatives: int | None = None
) -> TextTuples:
    """Take pairs of texts and their negatives from a table.

    Negatives are found in columns called negative, negative_1, negative_2 and so on, or neg, which may hold lists; in
    negative_passages, as in Tevatron; and in the column of answers, if a column label, or labels for lists, says 0
    there. Rows with the same pair are one pair with the negatives of all of them.

    Args:
        table: The table.
        columns: The columns of queries and of what answers them; by default those with known names.
        negatives: Number of negatives to use of each pair, the first; 0 for none, None for all.

    Raises:
        TypeError: `negatives` is not a whole number.
        ValueError: There are no such columns, a value is not a text, there are no negatives although `negatives` asks
            for them, or there are very many and `negatives` does not say how many to use.
    """
    if negatives is not None:
        checked_integer("negatives", negatives)
    found, examples = _examples(table, columns)
    if examples is None:
        if negatives:
            raise ValueError(
                f"{table.source} holds no negatives: there is no column called negative, negative_1 or neg; leave out "
                "negatives=."
            )
        plain = read_text_pairs(table, columns)
        return TextTuples(plain.columns, plain.pairs, None, plain.splits)
    split = _column(table, "split")
    splits = None if split is None or split in found else ["" if s is None else str(s) for s in table.column(split)]
    merged: dict[tuple[str, str, str], dict[str, None]] = {}
    for row, query, positives, others in examples:
        for text in positives:
            own = merged.setdefault((query, text, splits[row] if splits else ""), {})
            own.update(dict.fromkeys(other for other in others if other != text))
    lists = [list(each)[:negatives] for each in merged.values()]
    if negatives is None and (most := max(map(len, lists), default=0)) > MOST:
        raise ValueError(
            f"{table.source} has up to {most:,} negatives per pair, all of which would be embedded in every step: say "
            "how many to use, as in negatives=4."
        )
    pairs = [(query, text) for query, text, _ in merged]
    return TextTuples(found, pairs, lists if any(lists) else None, [s for *_, s in merged] if splits else None)


def holds_passages(names: Sequence[str]) -> bool:
    """Return whether these are the columns of Tevatron's layout."""
    return {"query", PASSAGES[0]} <= set(names)


def _examples(table: Table, columns: str | Sequence[str] | None) -> tuple[tuple[str, str], Iterable[_Example] | None]:
    """Return the columns that were found, and queries with their texts; None if the table has no negatives."""
    if columns is None and holds_passages(table.names):
        return ("query", PASSAGES[0]), _of_passages(table)
    found = pair_columns(table, columns)
    flags = _column(table, LABELS)
    if flags is not None and flags not in found and any(isinstance(value, list) for value in table.column(found[1])):
        return found, _of_labelled_lists(table, found, flags)
    names = [name for name in table.names if name not in found and NEGATIVE.fullmatch(name.strip().lower())]
    if names:
        return found, _of_columns(table, found, sorted(names, key=_place))
    flag = _column(table, LABEL)
    return found, None if flag is None or flag in found else _of_labelled_pairs(table, found, flag)


def _of_columns(table: Table, found: tuple[str, str], names: Sequence[str]) -> Iterable[_Example]:
    lists = found[1].strip().lower() == "pos"
    queries, answers = texts_of(table, found[0]), texts_of(table, found[1], lists=lists)
    columns = [_optional_texts(table, name) for name in names]
    for row, (query, answer) in enumerate(zip(queries, answers, strict=True)):
        others = [text for column in columns for text in column[row]]
        yield _Example(row, query, [answer] if isinstance(answer, str) else answer, others)


def _of_labelled_lists(table: Table, found: tuple[str, str], name: str) -> Iterable[_Example]:
    queries, lists = texts_of(table, found[0]), [_as_list(value) for value in table.column(found[1])]
    for row, (texts, labels) in enumerate(zip(lists, table.column(name), strict=True)):
        flags = [_flag(label) for label in _as_list(labels)]
        if len(flags) != len(texts) or None in flags:
            raise ValueError(
                f"{table.place(row)}: {name} must hold a 1 or a 0 for each of the {len(texts)} texts in {found[1]}."
            )
        _check_texts(table, row, found[1], texts)
        chosen = [[text for text, flag in zip(texts, flags, strict=True) if flag == wanted] for wanted in (1, 0)]
        yield _Example(row, queries[row], *chosen)


def _of_labelled_pairs(table: Table, found: tuple[str, str], name: str) -> Iterable[_Example] | None:
    """Return None if the column means something else, which it may if no query has both a 1 and a 0."""
    flags = [_flag(value) for value in table.column(name)]
    if None in flags or len(set(flags)) < 2:
        return None
    queries, texts = (texts_of(table, column) for column in found)
    others: defaultdict[str, list[str]] = defaultdict(list)
    rows = []
    for row, (query, text, flag) in enumerate(zip(queries, texts, flags, strict=True)):
        if flag:
            rows.append(row)
        else:
            others[query].append(text)
    answered = {queries[row] for row in rows}
    if missing := others.keys() - answered:
        are_flags = not others.keys().isdisjoint(answered)
        logger.warning(
            "%s has a column %s of zeros and ones, but %s queries have no row with a 1: %s.",
            table.source,
            name,
            f"{len(missing):,}",
            "they are left out" if are_flags else "every row is read as a pair, whatever it says there",
        )
        if not are_flags:
            return None
    return [_Example(row, queries[row], [texts[row]], others[queries[row]]) for row in rows]


def _of_passages(table: Table) -> Iterable[_Example]:
    queries = texts_of(table, "query")
    columns = [table.column(name) if name in table.names else [None] * len(queries) for name in PASSAGES]
    for row, query in enumerate(queries):
        lists = [_passages(table, row, *each) for each in zip(PASSAGES, (c[row] for c in columns), strict=True)]
        yield _Example(row, query, *lists)


def _passages(table: Table, row: int, name: str, value: Any) -> list[str]:
    texts = []
    for passage in _as_list(value):
        if not isinstance(passage, dict) or not isinstance(passage.get("text"), str):
            raise ValueError(f"{table.place(row)}: {name} must hold a list of objects, each with a text.")
        texts.append(f"{passage.get('title') or ''} {passage['text']}".strip())
    _check_texts(table, row, name, texts)
    return texts


def _optional_texts(table: Table, name: str) -> list[list[str]]:
    """Return a column of texts or lists of texts as lists; null and empty fields are empty lists."""
    rows = []
    for row, value in enumerate(table.column(name)):
        is_missing = value is None or (isinstance(value, str) and not value.strip())
        texts = [] if is_missing else _as_list(value)
        _check_texts(table, row, name, texts)
        rows.append(texts)
    return rows


def _check_texts(table: Table, row: int, name: str, texts: Sequence[Any]) -> None:
    for text in texts:
        if (problem := text_problem(text)) is not None:
            raise ValueError(f"{table.place(row)}: {name} holds a text that {problem}; correct or remove such rows.")


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def _flag(value: Any) -> int | None:
    """Return 0 or 1, from numbers or from text as in a .csv file; None for anything else."""
    return {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "False": 0, "True": 1}.get(str(value).strip())


def _place(name: str) -> int:
    """Return the number of a column such as negative_2, to order them by."""
    number = name.strip().rpartition("_")[2]
    return int(number) if number.isdigit() else 0


def _column(table: Table, name: str) -> str | None:
    return next((each for each in table.names if each.strip().lower() == name), None)
