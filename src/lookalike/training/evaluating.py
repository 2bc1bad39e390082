"""Evaluate the model of a run: on the test part and, if there is one, on the validation part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lookalike.evaluation import measure_queries, summarize
from lookalike.training.shares import Share
from lookalike.training.team import Team
from lookalike.utils import ranks
from lookalike.utils.lists import Lists, take_lists

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from lookalike.data.retrieval import RetrievalData, TestPart
    from lookalike.training.settings import Settings


class Evaluator:
    """The parts to evaluate on.

    Args:
        data: The data of the run.
        settings: How it trains.
        device: Where to embed them.
        embed: Embeds the first n samples of a view, as those of a tower, with the weights that the model has then:
            floats `[n, dim]`.
        team: The ranks that share the work: each searches its share of the queries among all references; by default
            this process works alone.

    Raises:
        ValueError: `settings.patience` has no validation part to watch.
    """

    def __init__(
        self,
        data: RetrievalData,
        settings: Settings,
        device: torch.device,
        embed: Callable[[Callable[[Tensor], Any], int, str], Tensor],
        team: Team | None = None,
    ) -> None:
        if settings.patience is not None and data.validation is None:
            raise ValueError(
                f"patience= watches a validation part, and {data.name} has none: hold one out with validation_share=."
            )
        self._data, self._embed, self._team = data, embed, team or Team.alone()
        self._test = data.test.to(device)
        self._validation = None if data.validation is None else data.validation.to(device)

    @property
    def validates(self) -> bool:
        """Whether there is a validation part."""
        return self._validation is not None

    def test(self) -> dict[str, float]:
        """Measure retrieval on the test part."""
        data = self._data
        return self._evaluate(self._test, data.test_exclude, data.test_positives, data.test_gains)

    def validation(self) -> dict[str, float]:
        """Measure retrieval on the validation part; empty if there is none."""
        if self._validation is None:
            return {}
        data = self._data
        return self._evaluate(
            self._validation, data.validation_exclude, data.validation_positives, data.validation_gains
        )

    def _evaluate(
        self, part: TestPart, exclude: Lists | None, positives: Lists | None, gains: Tensor | None
    ) -> dict[str, float]:
        reference = self._embed(part.references, len(part.reference_labels), "reference")
        query = reference if part.in_itself else self._embed(part.queries, len(part.query_labels), "query")
        share = Share.of(len(query), self._team.rank, self._team.world_size)
        rows = torch.arange(*share.bounds)
        hidden, answers = (None if lists is None else _taken(lists, rows) for lists in (exclude, positives))
        worth = None if gains is None or positives is None else _taken((positives[0], gains), rows)[1]
        labels = torch.as_tensor(part.query_labels)[rows]
        found = self._team.together(
            lambda: measure_queries(
                query[slice(*share.bounds)], reference, labels, part.reference_labels, hidden, answers, worth
            )
        )
        if not share.is_whole:
            found = ranks.concatenated(found.to(query.device), share.lengths).cpu()
        return summarize(found, len(reference))


def _taken(lists: Lists, rows: Tensor) -> Lists:
    offsets, ids = (torch.as_tensor(part).cpu() for part in lists)
    return take_lists((offsets, ids), rows)
