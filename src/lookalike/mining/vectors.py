"""Embeddings that are there -> negatives, part by part from a file that is larger than memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from lookalike.hashing import SignHasher
from lookalike.mining.candidates import Searched
from lookalike.mining.rescoring import Floats
from lookalike.mining.rows import rows_of
from lookalike.mining.selection import Tally, selected
from lookalike.negatives import hardest_positives
from lookalike.search import search_device
from lookalike.utils.progress import progress_bar
from lookalike.utils.tensors import checked_labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lookalike.mining.options import Options
    from lookalike.utils.arrays import Array

ROWS = 8192  # read and hashed at a time; also the sample that the mean is taken of


class NormalizedRows:
    """The rows of an array at unit length, so that products are cosines."""

    def __init__(self, array: Array) -> None:
        self._rows = rows_of(array)
        self.shape = self._rows.shape

    def read(self, ids: Array) -> Tensor:
        """Some rows, float32 [len(ids), dim]."""
        return normalize(self._rows.read(ids), dim=1)

    def read_range(self, start: int, stop: int) -> Tensor:
        """Rows that follow each other: float32 [stop - start, dim]."""
        return normalize(self._rows.read_range(start, stop), dim=1)


@dataclass(frozen=True)
class Part:
    """The negatives of some rows."""

    indices: Tensor  # int64 [q, num_negatives], padded with -1
    scores: Tensor  # float32 [q, num_negatives], padded with minus infinity
    positive_scores: Tensor  # float32 [p], of the positives that margins are measured from
    owners: Tensor  # int64 [p], whose they are, counted from the first of these rows


@dataclass
class Vectors:
    """Queries and corpus as embeddings, and what is no negative of what.

    Args:
        queries: Floats `[q, dim]`, mapped or not.
        corpus: Floats `[n, dim]`; by default the queries themselves, each without itself.
        labels: Integers `[n]`: rows of one label are positives of each other. Only without `corpus`.
        positives: Integers `[q]` or `[q, m]`, the rows of the corpus that are positives of a query, -1 for none.
        names: What the arrays are called in errors.

    Raises:
        ValueError: Shapes do not fit together, or a positive is out of range.
    """

    queries: Array
    corpus: Array | None = None
    labels: Any = None
    positives: Any = None
    names: tuple[str, str] = ("embeddings", "corpus embeddings")
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        if self.corpus is not None and self.corpus.shape[1] != self.queries.shape[1]:
            raise ValueError(
                f"{self.names[0]} and {self.names[1]} must have one dimension, got {self.queries.shape[1]} and "
                f"{self.corpus.shape[1]}; encode both with one model."
            )
        if self.labels is not None and (self.corpus is not None or self.positives is not None):
            raise ValueError("labels belong to embeddings that are searched in themselves; give them or positives.")
        if self.labels is not None:
            self.labels = checked_labels("labels", self.labels, len(self.queries))
            if len(self.labels.unique()) == len(self.labels) > 1:
                raise ValueError(
                    f"all {len(self.labels):,} labels are different, so that no row has a positive: give labels that "
                    "repeat, or none, and each row is a class of its own."
                )
        if self.positives is not None:
            self.positives = _checked_positives(self.positives, len(self.queries), self._num_rows)

    @property
    def _num_rows(self) -> int:
        return len(self.queries if self.corpus is None else self.corpus)

    def mined(self, options: Options, *, device: str = "cpu", progress: bool = False) -> Iterator[Part]:
        """The negatives of some rows after others, searched on `device`; `tally` has counted them in the end."""
        queries = NormalizedRows(self.queries)
        corpus = queries if self.corpus is None else NormalizedRows(self.corpus)
        n, dim = corpus.shape
        spread = np.linspace(0, n - 1, min(ROWS, n)).astype(np.int64)
        hasher = SignHasher(dim, options.bits, center=options.center)
        mean = corpus.read(spread).mean(0, dtype=torch.float64)
        hasher.mean.copy_(torch.nan_to_num(mean))  # a row that is not finite is found, and named, when it is hashed
        codes = _hashed(corpus, hasher, self.names[0 if self.corpus is None else 1], progress=progress)
        asked = codes if self.corpus is None else _hashed(queries, hasher, self.names[0], progress=progress)
        offsets, positives = self._positive_lists(codes)
        most = int(offsets.diff().max())
        farthest = options.farthest(most)
        labels = self.labels
        if labels is None and self.corpus is None:
            labels = torch.arange(len(codes))  # of a class of its own, no row finds itself
        wanted = farthest + most
        searched = Searched(
            asked,
            codes.to(search_device(torch.device(device), options.bits, options.shortlist(wanted))),
            offsets,
            positives,
            Floats(queries, corpus) if options.rescore else None,
            labels,
            labels,
        )
        with progress_bar(f"mining {len(asked):,} rows", len(asked), shown=progress) as bar:
            for part in searched.candidates(wanted, options.shortlist(wanted), options.queries_at_a_time):
                scores, indices = selected(part, options, farthest, self.tally)
                yield Part(indices, scores, part.positive_scores, part.owners)
                bar.advance(len(scores))

    def _positive_lists(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Those that margins are measured from; of a label, the one that is farthest in bits."""
        if self.labels is not None:
            lists = hardest_positives(codes, self.labels)[:, None]
        elif self.positives is not None:
            lists = self.positives
        else:
            return torch.zeros(len(self.queries) + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
        there = lists >= 0
        return torch.cat([torch.zeros(1, dtype=torch.int64), there.sum(1).cumsum(0)]), lists[there]


def _hashed(rows: NormalizedRows, hasher: SignHasher, name: str, *, progress: bool) -> Tensor:
    """The codes of all rows, uint8 [n, bits / 8]; the floats are read once and not kept."""
    n = rows.shape[0]
    codes = torch.empty(n, hasher.bits // 8, dtype=torch.uint8)
    with progress_bar(f"hashing {n:,} rows", n, shown=progress) as bar:
        for start in range(0, n, ROWS):
            x = rows.read_range(start, min(start + ROWS, n))
            codes[start : start + len(x)], finite = hasher.encode_flagged(x)
            if not bool(finite.all()):
                row = start + int((~finite).nonzero()[0])
                raise ValueError(
                    f"{name} must hold finite embeddings, but row {row} has NaN or infinity; remove such rows or find "
                    "out where they come from."
                )
            bar.advance(len(x))
    return codes


def _checked_positives(positives: Any, num_queries: int, num_rows: int) -> Tensor:
    """int64 [q, m]."""
    given = np.asarray(positives)
    lists = given[:, None] if given.ndim == 1 else given
    if lists.dtype.kind not in "iu" or lists.ndim != 2 or len(lists) != num_queries:
        raise ValueError(
            f"positives must be integers of the shape [{num_queries}] or [{num_queries}, m], got {given.dtype} "
            f"{list(given.shape)}."
        )
    checked = torch.from_numpy(lists.astype(np.int64))
    if checked.numel() and not -1 <= int(checked.min()) <= int(checked.max()) < num_rows:
        raise ValueError(f"positives must be between 0 and {num_rows - 1}, or -1 for none: rows of the corpus.")
    return checked
