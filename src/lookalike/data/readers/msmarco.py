"""MS MARCO passages: questions, and 8.8 million passages that are never loaded into memory."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lookalike.data.paper import PASSAGES
from lookalike.data.registry import DataSet
from lookalike.data.roots import FolderRoot

if TYPE_CHECKING:
    from lookalike.data.lines import Lines
    from lookalike.data.parts import TestItems
    from lookalike.data.retrieval import RetrievalData
    from lookalike.utils.arrays import Array
    from lookalike.utils.lists import Lists

ROOT = FolderRoot(
    "MS MARCO",
    """
    collection.tsv (pid, text) and queries.train.tsv, queries.dev.small.tsv (qid, text), tabs between
    qrels.train.tsv and qrels.dev.small.tsv (qid, 0, pid, 1), as collectionandqueries.tar.gz holds them
    """,
)
OFFICIAL = {"passages": 8_841_823, "training pairs": 532_761, "test queries": 6_980}
CHUNK_BYTES = 64 << 20


def read(
    root: Path,
    *,
    split: str = "dev",
    validation: str | None = None,
    pairs: str = "qrels.train.tsv",
    distractors: int | None = None,
    negatives: str | None = None,
    progress: bool = False,
) -> RetrievalData:
    """Read MS MARCO's passage ranking data, or anything in its layout.

    Pairs that share a question or a passage, directly or through others, have one label.

    Args:
        root: The folder that holds `collection.tsv`.
        split: What to test on: queries.SPLIT.small.tsv, or else queries.SPLIT.tsv, and its qrels.
        validation: What to choose the best epoch on: another split, such as dev if the test is on another.
        pairs: The file of training pairs: judgements (qid, 0, pid, 1), triples of ids (qid, pid, another pid) or pairs
            (qid, pid). Read triples of texts as `texts`.
        distractors: Search the passages that the test's judgements name and this many others, always the same ones, and
            likewise for the validation. By default, search all passages, as the official evaluation does, which takes
            long.
        negatives: A .npy file in the folder, or anywhere, with explicit negatives of the training pairs: numbers of
            pairs, integers `[pairs, m]`, whose passages are the negatives, -1 for none. Pairs are numbered in the order
            in which training has them, by qid and pid.
        progress: Show a progress bar while files are indexed.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file holds something else, or `validation` is the test.
    """
    from lookalike.data.build import pair_labels
    from lookalike.data.explicit import load_negative_ids, with_negatives
    from lookalike.data.fingerprints import checksum
    from lookalike.data.lines import Lines
    from lookalike.data.parts import Selection, TrainingItems
    from lookalike.data.retrieval import RetrievalData

    if validation == split:
        raise ValueError(f"validation={split} is the split to test on: choose another split for one of them.")

    passages = Lines(ROOT.find(root, "collection.tsv"), progress=progress)
    questions = Lines(ROOT.find(root, "queries.train.tsv"), progress=progress)
    train = read_pairs(ROOT.find(root, pairs))
    asked, answer = questions.positions(train[:, 0]), passages.positions(train[:, 1])
    test = _read_split(root, split, passages, distractors, progress=progress)
    chosen_on = None if validation is None else _read_split(root, validation, passages, distractors, progress=progress)
    searched = len(test.part.reference)
    counts = {"passages": len(passages), "training pairs": len(train), "test queries": len(test.part.query)}
    is_official = len(passages) == OFFICIAL["passages"]
    title = "MS MARCO passages" if is_official else f"{root.name}, laid out as MS MARCO"
    data = RetrievalData(
        name="msmarco",
        description=f"{title}: {len(train):,} pairs of question and passage to train, "
        f"{counts['test queries']:,} questions among {searched:,} passages to test",
        checksum=checksum(
            "msmarco",
            len(passages),
            passages.path.stat().st_size,
            train,
            test.judgements,
            searched,
            *([] if chosen_on is None else [chosen_on.judgements]),
        ),
        train=TrainingItems(
            query=Selection(questions, asked),
            reference=Selection(passages, answer),
            labels=pair_labels(asked, answer),
            pairs=len(train),
        ),
        test=test.part,
        counts=counts,
        test_positives=test.positives,
        validation=None if chosen_on is None else chosen_on.part,
        validation_positives=None if chosen_on is None else chosen_on.positives,
    )
    if negatives is None:
        return data
    path = ROOT.find(root, negatives, str(Path(negatives).expanduser().absolute()))
    return with_negatives(data, load_negative_ids(path, len(train)))


class _Split(NamedTuple):
    judgements: Array
    part: TestItems
    positives: Lists | None


def _read_split(root: Path, split: str, passages: Lines, distractors: int | None, *, progress: bool) -> _Split:
    """Read the questions and judgements of a split."""
    import numpy as np

    from lookalike.data.lines import Lines
    from lookalike.data.parts import Selection, judged, searched_among

    questions = Lines(ROOT.find(root, f"queries.{split}.small.tsv", f"queries.{split}.tsv"), progress=progress)
    judgements = read_pairs(ROOT.find(root, f"qrels.{split}.small.tsv", f"qrels.{split}.tsv"))
    asked, answer = questions.positions(judgements[:, 0]), passages.positions(judgements[:, 1])
    searched = searched_among(len(passages), answer, distractors)
    answers = np.searchsorted(searched, answer)
    return _Split(judgements, *judged(questions, Selection(passages, searched), asked, answers))


def read_pairs(path: Path) -> Array:
    """Read pairs of question and passage from judgements, triples or pairs of ids: int64 `[pairs, 2]`, unique, sorted.

    Triples repeat a pair many times; only the distinct pairs are kept in memory.

    Raises:
        ValueError: The file holds something else.
    """
    import numpy as np

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
    import numpy as np

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy warns about anything but numbers, and stops reading
        try:
            numbers = np.fromstring(data.decode("ascii"), np.int64, sep=" ")
        except (DeprecationWarning, ValueError):
            numbers = np.empty(0, np.int64)
    if len(numbers) != columns * lines:
        raise ValueError(f"{path}: expected {columns} whole numbers in every line, with tabs or spaces between them.")
    return numbers.reshape(-1, columns)


DATA_SETS = (
    DataSet(
        "msmarco",
        "MS MARCO passages: questions and 8.8 million passages",
        read,
        {  # its passages are embedded once, after the last epoch
            "settings": {**PASSAGES["settings"], "evaluate_every": 0},
            "model": PASSAGES["model"],
        },
        root=ROOT,
        official=OFFICIAL,
    ),
)
