"""Pairs of texts on disk, without duplicates: one pass over any source, however large."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.mining.list_files import ListFile, write_lists
from lookalike.mining.numbering import Numbering
from lookalike.mining.text_files import TextFile, TextWriter
from lookalike.utils.arrays import write_array
from lookalike.utils.files import remove_leftovers, replacing_folder, room_for, writable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lookalike.utils.arrays import Array

FORMAT = 1
NOTE, NUMBERS = "pairs.json", ("num_rows", "most_rows", "most_positives")
QUERIES, CORPUS, POSITIVES, ROWS, CORPUS_ROWS = "queries", "corpus", "positives", "rows.bin", "corpus-rows.bin"


@dataclass(frozen=True)
class PairFiles:
    """Queries and the texts that answer them, as `make_pairs` returns them, in files.

    Args:
        folder: The folder that holds them.
        queries: The queries, each once, in order of appearance.
        corpus: The texts to search, each once: those of the corpus first, then positives.
        positives: The texts of the corpus that answer each query.
        num_rows: Number of pairs, repeated ones included.
        most_rows: Number of pairs of one query at most, repeated ones included.
        most_positives: Number of positives of one query at most.
        source: What `source_identity` returned when the pairs were read.
    """

    folder: Path
    queries: TextFile
    corpus: TextFile
    positives: ListFile
    num_rows: int
    most_rows: int
    most_positives: int
    source: dict[str, Any]

    def numbers_of_rows(self) -> tuple[Array, Array]:
        """Return the number of the query of each pair and that of each text of the corpus, as they were read: int64."""
        return np.fromfile(self.folder / ROWS, np.int64)[::2], np.fromfile(self.folder / CORPUS_ROWS, np.int64)


def write_pairs(
    folder: str | Path,
    pairs: Iterable[tuple[Sequence[str], Sequence[str]]],
    corpus: Iterable[Sequence[str]] = (),
    *,
    source: dict[str, Any] | None = None,
) -> PairFiles:
    """Write pairs into a folder, which appears when they are complete; one process at a time may write.

    Args:
        folder: The folder; replaced if it is there.
        pairs: Batches of pairs: queries, and the texts that answer them.
        corpus: Batches of further texts that may be negatives; they come first.
        source: Kept beside the pairs, to recognise what they were read from.

    Raises:
        ValueError: There are no pairs.
        DiskFullError: There is no room.
        UnwritableError: The folder cannot be written to.

    Examples:
        >>> import tempfile
        >>> batches = [(["q", "r"], ["a", "b"]), (["q"], ["c"])]
        >>> pairs = write_pairs(Path(tempfile.mkdtemp(), "pairs"), batches, [["z", "b"]])
        >>> list(pairs.queries), list(pairs.corpus), [part.tolist() for part in pairs.positives.read(0, 2)]
        (['q', 'r'], ['z', 'b', 'a', 'c'], [[0, 2, 3], [2, 3, 1]])
    """
    folder = Path(folder)
    with room_for("texts", f"make room in {folder.parent} and run it again"), ExitStack() as stack:
        with writable(folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(folder)
            place = stack.enter_context(replacing_folder(folder))
        num_rows = _write_texts(place, pairs, corpus)
        if not num_rows:
            raise ValueError("there are no pairs; mining needs pairs of a query and a positive.")
        num_queries = len(TextFile(place / QUERIES))
        most_rows, most_positives = write_lists(place / POSITIVES, place / ROWS, num_queries)
        numbers = dict(zip(NUMBERS, (num_rows, most_rows, most_positives), strict=True))
        note = {"format": FORMAT, **numbers, "source": source or {}}
        (place / NOTE).write_text(json.dumps(note) + "\n", encoding="utf-8")
    return open_pair_files(folder)


def open_pair_files(folder: str | Path) -> PairFiles:
    """Open pairs that `write_pairs` wrote.

    Raises:
        FileNotFoundError: The folder holds no complete pairs.
        ValueError: They are damaged, or of another version.
    """
    folder = Path(folder)
    try:
        note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        num_rows, most_rows, most_positives = (int(note[name]) for name in NUMBERS)
        known, source = note["format"] == FORMAT, dict(note["source"])
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{folder} holds no complete pairs; write them again.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise ValueError(f"{folder} is damaged, or was written by another version; write the pairs again.")
    queries, corpus = TextFile(folder / QUERIES), TextFile(folder / CORPUS)
    positives = ListFile(folder / POSITIVES, len(queries))
    return PairFiles(folder, queries, corpus, positives, num_rows, most_rows, most_positives, source)


def _write_texts(
    place: Path, pairs: Iterable[tuple[Sequence[str], Sequence[str]]], corpus: Iterable[Sequence[str]]
) -> int:
    """Write distinct texts, and the numbers of query and positive of every row; return the number of rows."""
    num_rows = 0
    with (
        TextWriter(place / QUERIES) as queries,
        TextWriter(place / CORPUS) as texts,
        (place / ROWS).open("wb") as rows,
        (place / CORPUS_ROWS).open("wb") as corpus_rows,
    ):
        query_numbers, numbers = Numbering(), Numbering()
        for batch in corpus:
            a, fresh = numbers.number(batch)
            texts.extend([batch[i] for i in fresh.tolist()])
            write_array(corpus_rows, a)
        for asked, answers in pairs:
            if len(asked) != len(answers):
                raise ValueError(f"a batch of pairs has {len(asked)} queries and {len(answers)} positives.")
            q, fresh = query_numbers.number(asked)
            queries.extend([asked[i] for i in fresh.tolist()])
            a, fresh = numbers.number(answers)
            texts.extend([answers[i] for i in fresh.tolist()])
            write_array(rows, np.stack([q, a], axis=1))
            num_rows += len(asked)
    return num_rows
