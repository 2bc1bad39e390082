"""Pairs of texts -> unique queries, a corpus without duplicates, and which of it answers which query."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lookalike.data.text_pairs import text_problem

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Pairs:
    """Queries and what answers them; texts that stand several times are kept once, in order of appearance."""

    queries: list[str]
    corpus: list[str]
    offsets: Tensor  # int64 [q + 1]
    positives: Tensor  # int64 [p], into the corpus: those of query i are positives[offsets[i]:offsets[i + 1]]
    num_rows: int  # pairs that were given, repeated ones included
    most_rows: int  # of one query, repeated ones included

    def positives_of(self, query: int) -> list[int]:
        """Ids of the texts that answer a query."""
        ids: list[int] = self.positives[int(self.offsets[query]) : int(self.offsets[query + 1])].tolist()
        return ids

    @property
    def owners(self) -> Tensor:
        """The query of each positive: int64 [p]."""
        return torch.repeat_interleave(torch.arange(len(self.queries)), self.offsets.diff())


def paired(anchors: Sequence[str], positives: Sequence[str], corpus: Sequence[str] | None = None) -> Pairs:
    """Pairs from columns; a query that stands several times has several positives.

    Args:
        anchors: One query per pair.
        positives: The text that answers it.
        corpus: Further texts that may be negatives; they come first.

    Examples:
        >>> pairs = paired(["q", "r", "q"], ["a", "b", "c"], ["z", "b"])
        >>> pairs.corpus, [pairs.positives_of(query) for query in range(2)]
        (['z', 'b', 'a', 'c'], [[2, 3], [1]])
    """
    texts = list(dict.fromkeys([*(corpus or ()), *positives]))
    number = {text: i for i, text in enumerate(texts)}
    lists: dict[str, dict[int, None]] = {}
    for anchor, positive in zip(anchors, positives, strict=True):
        lists.setdefault(anchor, {})[number[positive]] = None
    lengths = torch.tensor([0, *map(len, lists.values())])
    answers = torch.tensor([i for ids in lists.values() for i in ids])
    return Pairs(list(lists), texts, lengths.cumsum(0), answers, len(anchors), max(Counter(anchors).values()))


def checked_texts(name: str, texts: Sequence[Any]) -> list[str]:
    """Return texts that can be encoded.

    Raises:
        TypeError: One is not a text.
        ValueError: One is empty, or holds what is not a character.
    """
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name} must hold texts, but row {row} is {type(text).__name__}; convert or remove it.")
        if not text.strip():
            raise ValueError(f"{name} must not hold empty texts, but row {row} is empty; remove such rows.")
        if (problem := text_problem(text)) is not None:
            raise ValueError(f"{name} must hold texts, but row {row} {problem}; correct or remove it.")
    return list(texts)
