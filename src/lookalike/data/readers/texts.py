"""Your own pairs of texts in a JSON lines, JSON, Parquet, TSV or CSV file: question and answer, title and body."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lookalike.data.paper import PASSAGES
from lookalike.data.registry import DataSet
from lookalike.data.roots import FileRoot
from lookalike.data.table_files import SUFFIXES, read_table
from lookalike.data.text_tuples import read_text_tuples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.data.retrieval import RetrievalData

ROOT = FileRoot(SUFFIXES)


def read(
    root: Path,
    *,
    test: str | Path | None = None,
    columns: str | Sequence[str] | None = None,
    header: bool = True,
    test_share: float = 0.1,
    negatives: int | None = None,
    progress: bool = False,  # noqa: ARG001 - every reader takes it
) -> RetrievalData:
    """Read pairs of texts from two columns of a table.

    Columns with known names are found: `query`, `anchor`, `question`, `sentence1` or `text1`, and `reference`,
    `positive`, `passage`, `answer`, `document`, `response`, `sentence2`, `text2` or `pos`, which may hold lists. Name
    others with `columns`.

    Explicit negatives are found in columns called `negative`, `negative_1`, `negative_2` and so on, or `neg`, which may
    hold lists. Pairs with a column `label` of 1 and 0, lists with a column `labels`, and Tevatron's layout are
    understood as well: whatever `lookalike mine` writes, except scores in place of labels. Rows with the same pair are
    one pair with the negatives of all of them. Only training uses negatives.

    The test is the file `test`, or the rows whose column `split` does not say train, or else `test_share` of the
    references, held out by their texts alone.

    Args:
        root: A .jsonl, .json, .parquet, .tsv or .csv file.
        test: Another such file, to test on.
        columns: The columns of queries and references, as a pair or as "query,reference".
        header: Whether the first line of a .tsv or .csv file names its columns; without a header they are called 1, 2,
            and so on.
        test_share: Fraction of references to hold out.
        negatives: Number of negatives of each pair to use, the first; 0 for none. By default all.
        progress: Ignored: reading takes seconds.

    Raises:
        ValueError: There are no such columns, a row holds something other than texts, or there are no `negatives`.
    """
    from lookalike.data.build import paired_texts, split_texts

    if not isinstance(header, bool):
        raise TypeError(f"header must be true or false, got {header!r}.")
    found = read_text_tuples(read_table(root, header=header), columns, negatives)
    title = f"columns {found.columns[0]} and {found.columns[1]} of {root.name}"
    if test is None:
        return split_texts("texts", title, found.pairs, test_share, found.splits, negatives=found.negatives)
    test_path = ROOT.open(Path(test).expanduser())
    tested = read_text_tuples(read_table(test_path, header=header), columns, 0)
    return paired_texts("texts", title, found.pairs, tested.pairs, negatives=found.negatives)


DATA_SETS = (
    DataSet(
        "texts", "your pairs of texts in a jsonl, parquet, tsv or csv file", read, PASSAGES, root=ROOT, is_table=True
    ),
)
