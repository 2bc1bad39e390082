"""Negatives -> rows, in the formats of sentence-transformers, FlagEmbedding and Tevatron."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lookalike.mining.options import FORMATS, MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lookalike.mining.texts import Mined

Row = dict[str, Any]
EXCHANGED = ("flagembedding", "tevatron")  # of other libraries, with names of their own for columns
ALL_FORMATS = (*FORMATS, *EXCHANGED)


@dataclass(frozen=True)
class Layout:
    """How rows look."""

    output_format: str  # one of `ALL_FORMATS`
    scores: bool = False  # add them, or have them in place of labels
    anchor: str = "anchor"  # what the column of queries is called
    positive: str = "positive"

    def names(self, num_negatives: int) -> list[str]:
        """What the columns of a format of sentence-transformers are called."""
        last = {
            "triplet": ["negative", *(["scores"] if self.scores else [])],
            "n-tuple": [*_numbered(num_negatives), *(["scores"] if self.scores else [])],
            "labeled-pair": ["score" if self.scores else "label"],
            "labeled-list": ["scores" if self.scores else "labels"],
        }
        return [self.anchor, self.positive, *last[self.output_format]]


@dataclass(frozen=True)
class Group:
    """A query with its positives and those negatives that were found, each a text's number and score."""

    query: int
    text: str
    positives: list[tuple[int, float]]
    negatives: list[tuple[int, float]]
    asked: int  # how many negatives were asked for


def rows(mined: Mined, layout: Layout) -> Iterator[Row]:
    """One row after another, queries in order of appearance; a query without a negative has none, except as pairs."""
    pairs, written = mined.pairs, WRITERS[layout.output_format]
    for query, text in enumerate(pairs.queries):
        start, stop = pairs.offsets[query : query + 2].tolist()
        positives = zip(pairs.positives[start:stop].tolist(), mined.positive_scores[start:stop].tolist(), strict=True)
        negatives = zip(mined.indices[query].tolist(), mined.scores[query].tolist(), strict=True)
        found = [(i, score) for i, score in negatives if score != MISSING]
        yield from written(layout, pairs.corpus, Group(query, text, list(positives), found, mined.indices.shape[1]))


def _numbered(num_negatives: int) -> list[str]:
    return [f"negative_{i}" for i in range(1, num_negatives + 1)]


def _triplets(layout: Layout, corpus: list[str], group: Group) -> Iterator[Row]:
    for i, score in group.positives:
        for j, other in group.negatives:
            said = {"scores": [score, other]} if layout.scores else {}
            yield {layout.anchor: group.text, layout.positive: corpus[i], "negative": corpus[j], **said}


def _tuples(layout: Layout, corpus: list[str], group: Group) -> Iterator[Row]:
    if len(group.negatives) < group.asked:
        return
    texts = [corpus[i] for i, _ in group.negatives]
    negatives = dict(zip(_numbered(group.asked), texts, strict=True))
    for i, score in group.positives:
        said = {"scores": [score, *(other for _, other in group.negatives)]} if layout.scores else {}
        yield {layout.anchor: group.text, layout.positive: corpus[i], **negatives, **said}


def _labeled_pairs(layout: Layout, corpus: list[str], group: Group) -> Iterator[Row]:
    for label, members in ((1, group.positives), (0, group.negatives)):
        for i, score in members:
            said = {"score": score} if layout.scores else {"label": label}
            yield {layout.anchor: group.text, layout.positive: corpus[i], **said}


def _labeled_lists(layout: Layout, corpus: list[str], group: Group) -> Iterator[Row]:
    if not group.negatives:
        return
    for positive in group.positives:
        members = [positive, *group.negatives]
        labels = [1] + [0] * len(group.negatives)
        said = {"scores": [score for _, score in members]} if layout.scores else {"labels": labels}
        yield {layout.anchor: group.text, layout.positive: [corpus[i] for i, _ in members], **said}


def _flagembedding(layout: Layout, corpus: list[str], group: Group) -> Iterator[Row]:
    if not group.negatives:
        return
    row: Row = {"query": group.text}
    for name, members in (("pos", group.positives), ("neg", group.negatives)):
        row[name] = [corpus[i] for i, _ in members]
        if layout.scores:
            row[f"{name}_scores"] = [score for _, score in members]
    yield row


def _tevatron(layout: Layout, corpus: list[str], group: Group) -> Iterator[Row]:
    if not group.negatives:
        return
    row: Row = {"query_id": str(group.query), "query": group.text}
    for name, members in (("positive_passages", group.positives), ("negative_passages", group.negatives)):
        row[name] = [
            {"docid": str(i), "title": "", "text": corpus[i], **({"score": score} if layout.scores else {})}
            for i, score in members
        ]
    yield row


WRITERS: dict[str, Callable[[Layout, list[str], Group], Iterator[Row]]] = {
    "triplet": _triplets,
    "n-tuple": _tuples,
    "labeled-pair": _labeled_pairs,
    "labeled-list": _labeled_lists,
    "flagembedding": _flagembedding,
    "tevatron": _tevatron,
}
