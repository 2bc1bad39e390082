"""Read batches: from ids to this rank's inputs for the model, and to what is not a negative of each query."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lookalike.data.explicit import ExplicitNegatives
from lookalike.training.loading import preparation, read
from lookalike.training.shares import Share
from lookalike.utils.lists import Lists, checked_lists, lists_among, take_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from lookalike.data.retrieval import RetrievalData, TrainingPart
    from lookalike.training.team import Team


@dataclass(frozen=True)
class Batch:
    """A batch that is ready to be trained on."""

    ids: Tensor
    """All of its ids, whichever rank embeds them."""
    queries: Tensor
    references: Tensor
    """The ids of the two sides of each pair."""
    share: Share
    chunks: Sequence[Sequence[Any]]
    """This rank's inputs for the model, by chunk and tower: queries, references and any explicit negatives."""
    exclude: Lists | None
    """What is not a negative of each query, as positions among what the loss compares it with."""

    @property
    def own_exclude(self) -> Lists | None:
        """The same of this rank's queries."""
        if self.exclude is None or self.share.is_whole:
            return self.exclude
        return take_lists(self.exclude, torch.arange(*self.share.bounds))


class BatchReader:
    """Reads the batches of a training part.

    Args:
        data: The data of the run.
        part: Their training part, on the device.
        model: Has `prepare` if inputs need work that can be done ahead of the step.
        seed: Decides, with the step, how samples are augmented.
        chunk: Pairs to embed at a time; None for all.
        team: The ranks that share every batch.
    """

    def __init__(
        self, data: RetrievalData, part: TrainingPart, model: nn.Module, seed: int, chunk: int | None, team: Team
    ) -> None:
        self._part, self._seed, self._chunk, self._team = part, seed, chunk, team
        towers = ("query", "reference", "reference")  # the last one for explicit negatives
        self._prepare = [preparation(model, tower) for tower in towers]
        lists, labels, pairs = data.train_exclude, data.train.labels, data.train.pairs
        n = pairs if pairs is not None else 0 if labels is None else len(labels)
        self._exclude = None if lists is None else checked_lists("exclude", lists, n, n, torch.device("cpu"))
        # A user's own part may define neither of the two.
        self.num_negatives: int = getattr(data.train, "num_negatives", 0)
        self._draws_by_batch: bool = getattr(data.train, "draws_by_batch", False)
        self._explicit = ExplicitNegatives(data.train, self._exclude) if self.num_negatives else None

    def read(self, ids: Tensor, step: int) -> Batch:
        """Read this rank's share of a batch.

        Args:
            ids: Of the whole batch: pair ids, or the ids of anchor and positive in turns.
            step: The number of the step, which decides how samples are augmented.

        Raises:
            UnreadableSampleError: A sample cannot be read.
        """
        queries, references = (ids, ids) if self._part.pairs is not None else (ids[::2], ids[1::2])
        seed = zlib.crc32(f"{self._seed} {step}".encode())
        share = Share.of(len(queries), self._team.rank, self._team.world_size)
        chunks = [
            [prepare(x) for prepare, x in zip(self._prepare, chunk, strict=False)]
            for chunk in self._read(queries, references, share, seed)
        ]
        return Batch(ids, queries, references, share, chunks, self._excluded(queries, references))

    def few(self) -> list[Any]:
        """Read two queries and two references, not augmented, ready for the model, which may treat them differently."""
        plain = [read(self._part.plain, tower, torch.arange(2)) for tower in ("query", "reference")]
        return [prepare(x) for prepare, x in zip(self._prepare, plain, strict=False)]

    def _read(self, queries: Tensor, references: Tensor, share: Share, seed: int) -> list[list[Any]]:
        views = [(self._part.queries, queries, 1), (self._part.references, references, 1)]
        if self._explicit is not None:
            views.append((self._part.negatives, queries, self.num_negatives))
        chunks = share.chunks(self._chunk)
        if self._draws_by_batch:
            whole = [(read(view, ids, seed), each) for view, ids, each in views]
            return [[x[rows.start * each : rows.stop * each] for x, each in whole] for rows in chunks]
        return [[read(view, ids[rows], seed) for view, ids, _ in views] for rows in chunks]

    def _excluded(self, queries: Tensor, references: Tensor) -> Lists | None:
        if self._explicit is not None:
            return self._explicit.excluded(queries, references)
        return None if self._exclude is None else lists_among(self._exclude, queries, references)
