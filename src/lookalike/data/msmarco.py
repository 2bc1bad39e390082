"""MS MARCO passages: questions, and 8.8 million passages that are never loaded into memory."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from lookalike.data.folders import checksum, connected, opened_root, required
from lookalike.data.lines import Lines
from lookalike.data.parts import Samples, judged
from lookalike.data.retrieval import RetrievalData

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.utils.arrays import Array

LAYOUT = """
collection.tsv (pid, text) and queries.train.tsv, queries.dev.small.tsv (qid, text), tabs between
qrels.train.tsv and qrels.dev.small.tsv (qid, 0, pid, 1), as collectionandqueries.tar.gz holds them
"""
OFFICIAL = {"passages": 8_841_823, "training pairs": 532_761, "test queries": 6_980}
CHUNK_BYTES = 64 << 20
SEED = 20250531  # of the passages that a smaller test adds


def msmarco(
    root: str | Path | None,
    *,
    split: str = "dev",
    pairs: str = "qrels.train.tsv",
    distractors: int | None = None,
    progress: bool = False,
) -> RetrievalData:
    """MS MARCO passage ranking, or anything in its layout.

    Pairs that share a question or a passage, directly or through others, have one label.

    Args:
        root: The folder that holds `collection.tsv`.
        split: What to test on: queries.SPLIT.small.tsv, or else queries.SPLIT.tsv, and its qrels.
        pairs: Where the training pairs are: judgements (qid, 0, pid, 1), triples of ids (qid, pid, another pid) or
            pairs (qid, pid). Triples of texts are a file for `texts`.
        distractors: Test among the passages that the test's judgements name and so many others, the same ones every
            time; by default among all passages, as the official evaluation does, which takes long.
        progress: Show a bar while files are indexed.

    Raises:
        FileNotFoundError: A file is not there.
        ValueError: A file holds something else.
    """
    folder = opened_root("MS MARCO", root, LAYOUT)

    def file(*names: str) -> Path:
        return required("MS MARCO", folder, names, LAYOUT)

    passages = Lines(file("collection.tsv"), progress=progress)
    questions = Lines(file("queries.train.tsv"), progress=progress)
    test_questions = Lines(file(f"queries.{split}.small.tsv", f"queries.{split}.tsv"), progress=progress)
    train, test = read_pairs(file(pairs)), read_pairs(file(f"qrels.{split}.small.tsv", f"qrels.{split}.tsv"))
    asked, answer = questions.positions(train[:, 0]), passages.positions(train[:, 1])
    test_asked, test_answer = test_questions.positions(test[:, 0]), passages.positions(test[:, 1])
    references = _references(len(passages), test_answer, distractors)
    part, positives = judged(test_questions, passages, test_asked, np.searchsorted(references, test_answer), references)
    counts = {"passages": len(passages), "training pairs": len(train), "test queries": len(part.query_ids)}
    is_official = len(passages) == OFFICIAL["passages"]
    title = "MS MARCO passages" if is_official else f"{folder.name}, laid out as MS MARCO"
    return RetrievalData(
        name="msmarco",
        description=f"{title}: {len(train):,} pairs of question and passage to train, "
        f"{counts['test queries']:,} questions among {len(references):,} passages to test",
        checksum=checksum("msmarco", len(passages), passages.path.stat().st_size, train, test, len(references)),
        train=Samples(
            query_items=questions,
            reference_items=passages,
            query_ids=asked,
            reference_ids=answer,
            labels=connected(asked, answer),
            pairs=len(train),
        ),
        test=part,
        counts=counts,
        test_positives=positives,
    )


def read_pairs(path: Path) -> Array:
    """Pairs of question and passage from judgements, triples or pairs of ids: int64 [pairs, 2], each once, sorted.

    Triples name a pair many times over: what is kept at any time is the pairs.

    Raises:
        ValueError: The file holds something else.
    """
    with path.open("rb") as file:
        columns = len(file.readline().split())
        if columns not in (2, 3, 4):
            raise ValueError(f"{path}: expected 2 to 4 columns of ids, got {columns}.")
        file.seek(0)
        pairs = np.empty((0, 2), np.int64)
        while lines := file.readlines(CHUNK_BYTES):
            numbers = _numbers(path, b"".join(lines), columns, len(lines))
            if columns == 4:
                numbers = numbers[numbers[:, 3] > 0][:, [0, 2]]
            pairs = np.unique(np.concatenate([pairs, numbers[:, :2]]), axis=0)
    if len(pairs) == 0:
        raise ValueError(f"{path} names no pairs.")
    return pairs


def _numbers(path: Path, data: bytes, columns: int, lines: int) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy warns where it meets something that is no number, and stops
        try:
            numbers = np.fromstring(data.decode("ascii"), np.int64, sep=" ")
        except (DeprecationWarning, ValueError):
            numbers = np.empty(0, np.int64)
    if len(numbers) != columns * lines:
        raise ValueError(f"{path}: expected {columns} whole numbers in every line, with tabs or spaces between them.")
    return numbers.reshape(-1, columns)


def _references(number: int, judged_passages: Array, distractors: int | None) -> Array:
    """Which passages are searched, ascending."""
    if distractors is None or distractors >= number:
        return np.arange(number)
    drawn = np.random.default_rng(SEED).choice(number, distractors, replace=False)
    return np.union1d(judged_passages, drawn)
