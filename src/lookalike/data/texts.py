"""Pairs of texts that users bring, in JSON lines, JSON, Parquet, TSV or CSV: question and answer, title and body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.data.build import paired_texts
from lookalike.data.folders import is_test
from lookalike.data.reading import read_table
from lookalike.data.tables import TRAINING, opened_file
from lookalike.data.text_pairs import read_text_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lookalike.data.retrieval import RetrievalData


def texts(
    root: str | Path | None,
    *,
    test: str | Path | None = None,
    columns: str | Sequence[str] | None = None,
    header: bool = True,
    test_share: float = 0.1,
    progress: bool = False,  # noqa: ARG001 - as all readers
) -> RetrievalData:
    """Read pairs of texts from two columns of a table.

    Columns with known names are found: `query`, `anchor`, `question`, `sentence1` or `text1`, and `reference`,
    `positive`, `passage`, `answer`, `document`, `response`, `sentence2`, `text2` or `pos`, which may hold lists. Others
    are named with `columns`. Further columns, such as negatives, are ignored: negatives are found here.

    The test is the file `test`, or the rows whose column `split` does not say train, or else `test_share` of the
    references, decided by their text alone.

    Args:
        root: A .jsonl, .json, .parquet, .tsv or .csv file.
        test: Another one, to test on.
        columns: The columns of queries and references, as a pair or as "query,reference".
        header: Whether the first line of a .tsv or .csv file names its columns; without a header they are called 1, 2,
            and so on.
        test_share: Share of references to test on, where nothing else says it.
        progress: Ignored.

    Raises:
        ValueError: There are no such columns, or a row holds something else than two texts.
    """
    path = opened_file("texts", root)
    if not isinstance(header, bool):
        raise TypeError(f"header must be true or false, got {header!r}.")
    read = read_text_pairs(read_table(path, header=header), columns)
    pairs = list(zip(read.queries, read.references, strict=True))
    title = f"columns {read.columns[0]} and {read.columns[1]} of {path.name}"
    if test is not None:
        others = read_text_pairs(read_table(opened_file("texts", test), header=header), columns)
        return paired_texts("texts", title, pairs, list(zip(others.queries, others.references, strict=True)))
    return split_texts("texts", title, pairs, read.splits, test_share)


def split_texts(
    name: str, title: str, pairs: Sequence[tuple[str, str]], splits: Sequence[str] | None, test_share: float
) -> RetrievalData:
    """Divide pairs of texts into those to train and those to test on."""
    if splits is None:
        if not 0 < test_share < 1:
            raise ValueError(f"test_share must be between 0 and 1, got {test_share}.")
        training = [not is_test(reference, test_share) for _, reference in pairs]
    else:
        training = [split.lower() in TRAINING for split in splits]
    parts = ([pair for pair, is_train in zip(pairs, training, strict=True) if is_train == t] for t in (True, False))
    return paired_texts(name, title, *parts)
