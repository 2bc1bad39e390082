"""Negatives -> rows of texts, in the formats of sentence-transformers, FlagEmbedding and Tevatron, or row numbers."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np
import torch

from lookalike.mining import Format
from lookalike.mining.cells import RESUME
from lookalike.mining.outputs import scores_path
from lookalike.utils.arrays import save_array
from lookalike.utils.checks import check_choice
from lookalike.utils.files import replacing, room_for, writable
from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from lookalike.mining.pipeline import Part
    from lookalike.mining.text_files import TextFile
    from lookalike.utils.arrays import Array

Row = dict[str, Any]
QUERIES_AT_A_TIME = 4096  # whose texts are in memory
ROWS_AT_A_TIME = 4096  # of texts, in a table
IDS_AT_A_TIME = 1 << 20  # queries, in a table of row numbers
EXCHANGED = ("flagembedding", "tevatron")  # formats of other libraries, which name the columns themselves


class PairTexts(Protocol):
    """The texts that rows are made of."""

    @property
    def queries(self) -> TextFile:
        """The queries."""

    @property
    def corpus(self) -> TextFile:
        """The texts that are searched."""


@dataclass(frozen=True)
class Layout:
    """The format of a row.

    Raises:
        ValueError: There is no such format, or two columns would have the same name.
    """

    output_format: str
    num_negatives: int
    scores: bool = False  # add scores, or write them instead of labels
    anchor: str = "anchor"  # name of the column of queries
    positive: str = "positive"

    def __post_init__(self) -> None:
        check_choice("output_format", self.output_format, get_args(Format))
        names = self.columns
        if twice := next((name for name in names[:2] if names.count(name) > 1), None):
            raise ValueError(f"the output would have two columns called {twice!r}; rename the one in the input.")

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        numbered = _numbered(self.num_negatives)
        plain, scored = {
            "triplet": (["negative"], ["negative", "scores"]),
            "n-tuple": (numbered, [*numbered, "scores"]),
            "labeled-pair": (["label"], ["score"]),
            "labeled-list": (["labels"], ["scores"]),
            "flagembedding": (["query", "pos", "neg"], ["query", "pos", "pos_scores", "neg", "neg_scores"]),
            "tevatron": (["query_id", "query", "positive_passages", "negative_passages"],) * 2,
        }[self.output_format]
        own = [] if self.output_format in EXCHANGED else [self.anchor, self.positive]
        return [*own, *(scored if self.scores else plain)]


@dataclass(frozen=True)
class Group:
    """A query with its positives and the negatives that were found, each as the number of a text and its score."""

    query: int
    text: str
    positives: list[tuple[int, float]]
    negatives: list[tuple[int, float]]


def output_suffixes(output_format: str) -> tuple[str, ...]:
    """Return the suffixes of the files that a format can be written to."""
    return (".jsonl",) if output_format in EXCHANGED else (".jsonl", ".parquet")


def has_folders(output_format: str) -> bool:
    """Return whether a format can be written as a data set folder: those of sentence-transformers can."""
    return output_format not in EXCHANGED


def make_rows(pairs: PairTexts, parts: Iterable[Part], layout: Layout) -> Iterator[Row]:
    """Yield the rows of all queries, in order of appearance; one without a negative has rows only as labeled-pair."""
    write = WRITERS[layout.output_format]
    for part in parts:
        offsets = part.positives[0].tolist()
        for start in range(0, len(part.indices), QUERIES_AT_A_TIME):
            stop = min(start + QUERIES_AT_A_TIME, len(part.indices))
            answers = slice(offsets[start], offsets[stop])
            texts = _texts_of(pairs, part, slice(start, stop), answers)
            queries = pairs.queries[part.first + start : part.first + stop]
            positives = list(
                zip(part.positives[1][answers].tolist(), part.positive_scores[answers].tolist(), strict=True)
            )
            found = zip(part.indices[start:stop].tolist(), part.scores[start:stop].tolist(), strict=True)
            for i, (indices, scores) in enumerate(found, start):
                theirs = positives[offsets[i] - offsets[start] : offsets[i + 1] - offsets[start]]
                negatives = [(j, score) for j, score in zip(indices, scores, strict=True) if j >= 0]
                group = Group(part.first + i, queries[i - start], theirs, negatives)
                yield from write(layout, texts, group)


def _texts_of(pairs: PairTexts, part: Part, rows: slice, answers: slice) -> dict[int, str]:
    """Read the texts that rows of some queries need, each once."""
    ids = torch.unique(torch.cat([part.indices[rows].flatten(), part.positives[1][answers]]))
    ids = ids[ids >= 0]
    return dict(zip(ids.tolist(), pairs.corpus.take(ids.numpy()), strict=True))


def _numbered(num_negatives: int) -> list[str]:
    return [f"negative_{i}" for i in range(1, num_negatives + 1)]


def _triplets(layout: Layout, corpus: Mapping[int, str], group: Group) -> Iterator[Row]:
    for i, score in group.positives:
        for j, other in group.negatives:
            more = {"scores": [score, other]} if layout.scores else {}
            yield {layout.anchor: group.text, layout.positive: corpus[i], "negative": corpus[j], **more}


def _tuples(layout: Layout, corpus: Mapping[int, str], group: Group) -> Iterator[Row]:
    if len(group.negatives) < layout.num_negatives:
        return
    texts = [corpus[i] for i, _ in group.negatives]
    negatives = dict(zip(_numbered(layout.num_negatives), texts, strict=True))
    for i, score in group.positives:
        more = {"scores": [score, *(other for _, other in group.negatives)]} if layout.scores else {}
        yield {layout.anchor: group.text, layout.positive: corpus[i], **negatives, **more}


def _labeled_pairs(layout: Layout, corpus: Mapping[int, str], group: Group) -> Iterator[Row]:
    for label, members in ((1, group.positives), (0, group.negatives)):
        for i, score in members:
            last = {"score": score} if layout.scores else {"label": label}
            yield {layout.anchor: group.text, layout.positive: corpus[i], **last}


def _labeled_lists(layout: Layout, corpus: Mapping[int, str], group: Group) -> Iterator[Row]:
    if not group.negatives:
        return
    for positive in group.positives:
        members = [positive, *group.negatives]
        labels = [1] + [0] * len(group.negatives)
        last = {"scores": [score for _, score in members]} if layout.scores else {"labels": labels}
        yield {layout.anchor: group.text, layout.positive: [corpus[i] for i, _ in members], **last}


def _flagembedding(layout: Layout, corpus: Mapping[int, str], group: Group) -> Iterator[Row]:
    if not group.negatives:
        return
    row: Row = {"query": group.text}
    for name, members in (("pos", group.positives), ("neg", group.negatives)):
        row[name] = [corpus[i] for i, _ in members]
        if layout.scores:
            row[f"{name}_scores"] = [score for _, score in members]
    yield row


def _tevatron(layout: Layout, corpus: Mapping[int, str], group: Group) -> Iterator[Row]:
    if not group.negatives:
        return
    row: Row = {"query_id": str(group.query), "query": group.text}
    for name, members in (("positive_passages", group.positives), ("negative_passages", group.negatives)):
        row[name] = [
            {"docid": str(i), "title": "", "text": corpus[i], **({"score": score} if layout.scores else {})}
            for i, score in members
        ]
    yield row


WRITERS: dict[str, Callable[[Layout, Mapping[int, str], Group], Iterator[Row]]] = {
    "triplet": _triplets,
    "n-tuple": _tuples,
    "labeled-pair": _labeled_pairs,
    "labeled-list": _labeled_lists,
    "flagembedding": _flagembedding,
    "tevatron": _tevatron,
}


def make_dataset(rows: Iterable[Row], layout: Layout) -> Any:
    """Collect rows in a `datasets.Dataset`, without a copy of all texts as Python objects."""
    datasets, pa = (optional_import(name, "a data set", "'lookalike[text]'") for name in ("datasets", "pyarrow"))
    batches = list(_batches(rows))
    if not batches:
        return datasets.Dataset.from_dict({name: [] for name in layout.columns})
    digest = hashlib.sha256()
    for batch in batches:
        digest.update(batch.serialize())
    # Without a fingerprint, the data set would make its own and copy the whole table several times for it.
    return datasets.Dataset(pa.Table.from_batches(batches), fingerprint=digest.hexdigest()[:16])


@contextmanager
def writing_rows(path: Path, rows: Iterable[Row], then: str, *, shown: Path | None = None) -> Iterator[int]:
    """Write rows to a .jsonl or .parquet file, yield their number, and move the file to its place at the end.

    Errors name `shown`, if it is given, instead of the file.

    Raises:
        DiskFullError: There is no room; says what to do `then`, and leaves nothing behind.
        ValueError: There are no rows.
    """
    number = 0
    shown = path if shown is None else shown
    with writable(shown.parent), room_for(str(shown), then), replacing(path) as temporary:
        if path.suffix == ".jsonl":
            with temporary.open("w", encoding="utf-8") as file:
                for row in rows:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                    number += 1
        else:
            parquet = optional_import("pyarrow.parquet", "writing parquet")
            with ExitStack() as stack:
                writer = None
                for batch in _batches(rows):
                    writer = writer or stack.enter_context(parquet.ParquetWriter(temporary, batch.schema))
                    writer.write_batch(batch)
                    number += len(batch)
        check_rows(number, shown)
        yield number


def check_rows(number: int, output: Path) -> None:
    """Check that an output gets rows.

    Raises:
        ValueError: There are none.
    """
    if number == 0:
        raise ValueError(
            f"there is nothing to write to {output}: no query has as many negatives as a row needs; lower "
            "num_negatives or loosen the filters."
        )


@dataclass(frozen=True)
class ShardWriter:
    """Writes the rows of a part of the queries to a Parquet file of its own."""

    layout: Layout
    texts: PairTexts

    def write(self, part: Part, path: Path) -> int:
        """Write the rows, and return their number; without any row the file is empty, but has its columns.

        Raises:
            DiskFullError: There is no room; cells that are done stay.
        """
        parquet = optional_import("pyarrow.parquet", "writing parquet")
        rows, schema = make_rows(self.texts, [part], self.layout), _schema(self.layout)
        with (
            room_for(path.name, RESUME),
            replacing(path) as temporary,
            parquet.ParquetWriter(temporary, schema) as writer,
        ):
            number = 0
            for batch in _batches(rows, schema):
                writer.write_batch(batch)
                number += len(batch)
        return number


def _schema(layout: Layout) -> Any:
    """Return the columns of a format, as pyarrow infers them from rows."""
    pa = optional_import("pyarrow", "tables of rows")
    listed = layout.output_format == "labeled-list"
    text, kinds = pa.string(), {"label": pa.int64(), "score": pa.float64(), "scores": pa.list_(pa.float64())}
    kinds |= {"labels": pa.list_(pa.int64()), layout.positive: pa.list_(text) if listed else text, layout.anchor: text}
    return pa.schema([(name, kinds.get(name, text)) for name in layout.columns])


def _batches(rows: Iterable[Row], schema: Any = None) -> Iterator[Any]:
    """Yield record batches of pyarrow, which all have the schema of the first."""
    pa = optional_import("pyarrow", "tables of rows")
    remaining = iter(rows)
    while group := list(islice(remaining, ROWS_AT_A_TIME)):
        batch = pa.RecordBatch.from_pylist(group, schema=schema)
        schema = batch.schema
        yield batch


@contextmanager
def writing_ids(path: Path, indices: Array, scores: Array) -> Iterator[None]:
    """Write row numbers and scores, [n, k], to .npy files or a .parquet file, and move them to their places at the end.

    Raises:
        DiskFullError: There is no room; nothing is left behind.
    """
    again = "make room and run it again"
    with writable(path.parent), room_for(str(path), again), ExitStack() as stack:
        temporary = stack.enter_context(replacing(path))  # the first to be made takes its place last
        if path.suffix == ".parquet":
            _write_parquet(temporary, indices, scores)
        else:
            for target, values in ((temporary, indices), (stack.enter_context(replacing(scores_path(path))), scores)):
                with target.open("wb") as file:
                    save_array(file, values)
        yield


def _write_parquet(path: Path, indices: Array, scores: Array) -> None:
    """Write a row per query: its number, its negatives and their scores, without padding."""
    pa, parquet = (optional_import(name, "writing parquet") for name in ("pyarrow", "pyarrow.parquet"))
    schema = pa.schema({"query": pa.int64(), "negatives": pa.list_(pa.int64()), "scores": pa.list_(pa.float32())})
    with parquet.ParquetWriter(path, schema) as writer:
        for first in range(0, len(indices), IDS_AT_A_TIME):
            ids, theirs = indices[first : first + IDS_AT_A_TIME], scores[first : first + IDS_AT_A_TIME]
            there = ids >= 0
            offsets = np.concatenate([[0], there.sum(1).cumsum()]).astype(np.int32)
            lists = [pa.ListArray.from_arrays(offsets, values[there]) for values in (ids, theirs)]
            numbers = pa.array(np.arange(first, first + len(ids)))
            writer.write_table(pa.Table.from_arrays([numbers, *lists], schema=schema))
