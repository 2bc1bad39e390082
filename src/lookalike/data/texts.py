"""Pairs of texts that users bring, in JSON lines, parquet, TSV or CSV: question and answer, title and body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lookalike.data.build import paired_texts
from lookalike.data.folders import is_test
from lookalike.data.tables import TRAINING, opened_file, read_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lookalike.data.retrieval import RetrievalData

QUERIES = ("query", "anchor", "question", "sentence1")
REFERENCES = ("reference", "positive", "passage", "answer", "sentence2")


def texts(
    root: str | Path | None,
    *,
    test: str | Path | None = None,
    columns: tuple[str, str] | None = None,
    test_share: float = 0.1,
    progress: bool = False,  # noqa: ARG001 - as all readers
) -> RetrievalData:
    """Pairs of texts in the columns `query` and `reference`, or `anchor` and `positive`, or in two without a heading.

    The test is the file `test`, or the rows whose column `split` does not say train, or else `test_share` of the
    references, decided by their text alone. Further columns, such as negatives, are ignored: they are found here.

    Args:
        root: A .jsonl, .parquet, .tsv or .csv file.
        test: Another one, to test on.
        columns: What the columns are called, query first.
        test_share: Share of references to test on, where nothing else says it.
        progress: Of no meaning.

    Raises:
        ValueError: There are no such columns.
    """
    path = opened_file("texts", root)
    queries, references, splits = text_columns(path, columns)
    pairs = list(zip(queries, references, strict=True))
    if test is not None:
        others = text_columns(opened_file("texts", test), columns)
        return paired_texts("texts", path.name, pairs, list(zip(*others[:2], strict=True)))
    return split_texts("texts", path.name, pairs, splits, test_share)


def split_texts(
    name: str, title: str, pairs: Sequence[tuple[str, str]], splits: Sequence[Any] | None, test_share: float
) -> RetrievalData:
    """Pairs of texts, some of them to test on."""
    if splits is None:
        if not 0 < test_share < 1:
            raise ValueError(f"test_share must be between 0 and 1, got {test_share}.")
        training = [not is_test(reference, test_share) for _, reference in pairs]
    else:
        training = [str(split).lower() in TRAINING for split in splits]
    parts = ([pair for pair, is_train in zip(pairs, training, strict=True) if is_train == t] for t in (True, False))
    return paired_texts(name, title, *parts)


def text_columns(path: Path, columns: tuple[str, str] | None) -> tuple[list[str], list[str], list[Any] | None]:
    """Queries, references and, where there is such a column, splits."""
    read = read_table(path)
    found = columns or chosen_columns(list(read))
    if found is None and path.suffix in (".tsv", ".csv"):
        read = read_table(path, heading=False)
        found = ("0", "1") if len(read) in (2, 3) else None
    if found is None or any(name not in read for name in found):
        wanted = "query and reference (or anchor and positive)" if columns is None else " and ".join(columns)
        raise ValueError(f"{path} must have the columns {wanted}, got {', '.join(read)}.")
    return [str(text) for text in read[found[0]]], [str(text) for text in read[found[1]]], read.get("split")


def chosen_columns(names: Sequence[str]) -> tuple[str, str] | None:
    """Which columns are queries and references, by their names."""
    query = next((name for name in QUERIES if name in names), None)
    reference = next((name for name in REFERENCES if name in names), None)
    return None if query is None or reference is None else (query, reference)
