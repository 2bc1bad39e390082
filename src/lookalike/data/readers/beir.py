"""A data set in BEIR's layout: queries, documents that are never loaded into memory, and judgements of how relevant."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lookalike.data.paper import PASSAGES
from lookalike.data.registry import DataSet
from lookalike.data.roots import FolderRoot

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.data.json_lines import JsonLines
    from lookalike.data.parts import TestItems
    from lookalike.data.retrieval import RetrievalData
    from lookalike.utils.arrays import Array
    from lookalike.utils.lists import Lists

logger = logging.getLogger("lookalike")

ROOT = FolderRoot(
    "a data set of BEIR",
    """
    corpus.jsonl (_id, title, text) and queries.jsonl (_id, text)
    qrels/train.tsv, qrels/dev.tsv, qrels/test.tsv (query-id, corpus-id, score under a heading, tabs between)
    """,
)
FILES = ("corpus.jsonl", "queries.jsonl")
SHOWN = 60  # characters of a line, in errors
MISSING = 0.01  # of the judgements: those of documents or queries that there are not
CONNECTED = 0.5  # of the training pairs: with one label, they fill no batch


def read(
    root: Path,
    *,
    split: str = "test",
    train: str = "train",
    validation: str | None = None,
    test: str | Path | None = None,
    positives: int | None = None,
    distractors: int | None = None,
    progress: bool = False,
) -> RetrievalData:
    """Read a data set of BEIR, or anything in its layout.

    A document is its title and its text with a space between them. Judgements with a score above 0 are pairs to train
    on; in tests the scores are the gains of nDCG. As in BEIR's own evaluation, a document with the id of the query is
    hidden from it, unless it is judged to be relevant. Pairs that share a query or a document, directly or through
    others, have one label.

    Args:
        root: The folder that holds `corpus.jsonl`.
        split: The judgements to test on: qrels/SPLIT.tsv.
        train: The judgements to train on.
        validation: The judgements to choose the best epoch on, such as dev.
        test: Another folder in this layout, to test on instead of this one.
        positives: Documents per query to train on, those with the highest scores; by default all.
        distractors: Search the documents that the test's judgements name and this many others, always the same ones,
            and likewise for the validation. By default, search the whole corpus, as BEIR does.
        progress: Show a progress bar while files are indexed.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file holds something else, or one split has two uses.
    """
    import numpy as np

    from lookalike.data.build import pair_labels
    from lookalike.data.fingerprints import checksum
    from lookalike.data.json_lines import JsonLines
    from lookalike.data.parts import Selection, TrainingItems
    from lookalike.data.retrieval import RetrievalData
    from lookalike.utils.checks import checked_positive

    tested = root if test is None else ROOT.open(Path(test).expanduser())
    uses = {"train": train, "validation": validation, "split": split if tested.samefile(root) else None}
    _check_splits(root, tested, uses)
    ROOT.find(tested, f"qrels/{split}.tsv")
    if positives is not None:
        checked_positive("positives", positives)
    if distractors is not None:
        checked_positive("distractors", distractors)
    documents, queries = (JsonLines(root / name, progress=progress) for name in FILES)
    pairs = _read_judgements(root, train, queries, documents).best(positives)
    _warn_of_one_label(root, labels := pair_labels(pairs.asked, pairs.answers))
    found, asking = documents, queries
    if not tested.samefile(root):
        found, asking = (JsonLines(tested / name, progress=progress) for name in FILES)
    at_end = _read_split(tested, split, found, asking, distractors)
    chosen_on = None if validation is None else _read_split(root, validation, documents, queries, distractors)
    counts = {"documents": len(documents), "training pairs": len(pairs.asked), "test queries": len(at_end.part.query)}
    searched = len(at_end.part.reference)
    elsewhere = "" if tested.samefile(root) else f" of {tested.name}"
    return RetrievalData(
        name="beir",
        description=f"the BEIR folder {root.name}: {counts['training pairs']:,} pairs of query and document to train, "
        f"{counts['test queries']:,} queries among {searched:,} documents{elsewhere} to test",
        checksum=checksum(
            "beir",
            [(len(lines), lines.path.stat().st_size) for lines in (documents, queries, found, asking)],
            pairs.asked,
            pairs.answers,
            *(part for each in (at_end, chosen_on) if each is not None for part in each.key),
        ),
        train=TrainingItems(
            query=Selection(queries, pairs.asked),
            reference=Selection(documents, pairs.answers),
            labels=labels if len(np.unique(labels)) < len(labels) else None,
            pairs=len(pairs.asked),
        ),
        test=at_end.part,
        counts=counts,
        test_exclude=at_end.exclude,
        test_positives=at_end.positives,
        test_gains=at_end.gains,
        validation=None if chosen_on is None else chosen_on.part,
        validation_exclude=None if chosen_on is None else chosen_on.exclude,
        validation_positives=None if chosen_on is None else chosen_on.positives,
        validation_gains=None if chosen_on is None else chosen_on.gains,
    )


class _Judgements(NamedTuple):
    """Queries and documents that belong together, sorted by query and document, each pair once."""

    asked: Array  # positions of queries, int64
    answers: Array  # positions of documents, int64
    scores: Array  # float64, above 0
    names: Array  # ids of the queries

    def best(self, number: int | None) -> _Judgements:
        """Return those of each query with the highest scores."""
        import numpy as np

        if number is None:
            return self
        order = np.lexsort([self.answers, -self.scores, self.asked])
        asked = self.asked[order]
        rank = np.arange(len(asked)) - np.searchsorted(asked, asked)
        kept = np.sort(order[rank < number])
        return _Judgements(*(part[kept] for part in self))


class _Split(NamedTuple):
    part: TestItems
    positives: Lists | None
    gains: Tensor | None
    exclude: Lists | None
    key: list[Array]  # what the checksum depends on


def _read_split(root: Path, split: str, documents: JsonLines, queries: JsonLines, distractors: int | None) -> _Split:
    """Read the judgements of a split as a test."""
    import numpy as np
    import torch

    from lookalike.data.parts import Selection, judged, searched_among
    from lookalike.utils.lists import make_lists

    found = _read_judgements(root, split, queries, documents)
    searched = searched_among(len(documents), found.answers, distractors)
    answers = np.searchsorted(searched, found.answers)
    part, positives = judged(queries, Selection(documents, searched), found.asked, answers)
    gains = None
    if positives is not None and len(np.unique(found.scores)) > 1:
        gains = torch.from_numpy(found.scores.astype(np.float32))  # judgements are in the order of positives
    _, first = np.unique(found.asked, return_index=True)
    own, known = documents.find(found.names[first])
    places = np.searchsorted(searched, own).clip(max=len(searched) - 1)
    relevant = set(zip(found.asked.tolist(), found.answers.tolist(), strict=True))
    hidden = known & (searched[places] == own)
    hidden &= [pair not in relevant for pair in zip(found.asked[first].tolist(), own.tolist(), strict=True)]
    exclude = make_lists([[place] if hide else [] for place, hide in zip(places.tolist(), hidden, strict=True)])
    key = [found.asked, found.answers, found.scores, searched]
    return _Split(part, positives, gains, exclude if hidden.any() else None, key)


def _read_judgements(root: Path, split: str, queries: JsonLines, documents: JsonLines) -> _Judgements:
    """Read the judgements of a split that have a score above 0.

    Raises:
        ValueError: The file holds something else, or too many judgements of queries or documents that there are not.
    """
    import numpy as np

    path = root / "qrels" / f"{split}.tsv"
    rows = _read_rows(path)
    asked, is_query = queries.find([row[0] for row in rows])
    answers, is_document = documents.find([row[1] for row in rows])
    known = is_query & is_document
    if not known.all():
        row = rows[int(np.flatnonzero(~known)[0])]
        what = f"{(~known).sum():,} of {len(rows):,} judgements in {path} name a query or document that there is not"
        if (~known).mean() > MISSING:
            raise ValueError(f"{what}, such as {row[0]!r} with {row[1]!r}: the files do not belong together.")
        logger.warning("%s, such as %r with %r; they are left out", what, row[0], row[1])
    scores, names = np.array([row[2] for row in rows]), np.array([row[0] for row in rows], dtype=object)
    order = np.lexsort([-scores, answers, asked])
    order = order[known[order]]
    repeated = (np.diff(asked[order], prepend=-1) == 0) & (np.diff(answers[order], prepend=-1) == 0)
    order = order[~repeated]
    return _Judgements(asked[order], answers[order], scores[order], names[order])


def _read_rows(path: Path) -> list[tuple[str, str, float]]:
    """Read the judgements in a file that have a score above 0.

    Raises:
        ValueError: The file holds something else.
    """
    from lookalike.data.table_files import read_lines

    rows = []
    for number, line in read_lines(path):
        fields = line.split("\t")
        try:
            query, document, score = fields[0], fields[1], float(fields[2])
        except (ValueError, IndexError):
            if number == 1 and len(fields) == 3:  # the heading
                continue
            score = float("nan")
        if len(fields) != 3 or score != score:  # NaN
            raise ValueError(
                f"{path}, line {number}: expected query-id, corpus-id and score with tabs between them, got "
                f"{line[:SHOWN]!r}."
            )
        if score > 0:
            rows.append((query, document, score))
    if not rows:
        raise ValueError(f"{path} has no judgement with a score above 0.")
    return rows


def _check_splits(root: Path, tested: Path, uses: dict[str, str | None]) -> None:
    """Check that all files are there and every split has one use.

    Raises:
        FileNotFoundError: A file is missing; the message says what to do if there is nothing to train on.
        ValueError: A split has two uses.
    """
    for folder in (root, tested):
        for name in FILES:
            ROOT.find(folder, name)
    there = sorted(path.stem for path in (root / "qrels").glob("*.tsv"))
    if there and uses["train"] not in there:
        raise FileNotFoundError(
            f"{root / 'qrels'} has no {uses['train']}.tsv, only {', '.join(there)}: like most sets of BEIR, "
            f"{root.name} brings nothing to train on. Train on the folder of another set and test on this one, with "
            f"the option test={root}; or train on another split, with the option train=SPLIT."
        )
    named = [(use, split) for use, split in uses.items() if split is not None]
    for place, (use, split) in enumerate(named):
        ROOT.find(root, f"qrels/{split}.tsv")
        for other, same in named[:place]:
            if split == same:
                raise ValueError(f"{other}={same} and {use}={split} name the same judgements: choose another split.")


def _warn_of_one_label(root: Path, labels: Tensor) -> None:
    """Warn if most pairs are connected through queries and documents that they share."""
    largest = int(labels.bincount().max())
    if largest > CONNECTED * len(labels) and len(labels) > 2:
        logger.warning(
            "%s of the %s training pairs of %s are connected through queries and documents that they share, so they "
            "count as one label, and a batch holds one of them: the option positives=1 trains on the best document of "
            "each query alone",
            f"{largest:,}",
            f"{len(labels):,}",
            root.name,
        )


DATA_SETS = (
    DataSet("beir", "a folder in BEIR's layout: corpus.jsonl, queries.jsonl and qrels", read, PASSAGES, root=ROOT),
)
