"""Evaluate the model of a run: on the test part and, if there is one, on the validation part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lookalike.evaluation import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

    from lookalike.data.retrieval import RetrievalData, TestPart
    from lookalike.training.settings import Settings
    from lookalike.utils.lists import Lists


class Evaluator:
    """The parts to evaluate on.

    Args:
        data: The data of the run.
        settings: How it trains.
        device: Where to embed them.
        embed: Embeds the first n samples of a view with the weights that the model has then: floats `[n, dim]`.

    Raises:
        ValueError: `settings.patience` has no validation part to watch.
    """

    def __init__(
        self,
        data: RetrievalData,
        settings: Settings,
        device: torch.device,
        embed: Callable[[Callable[[Tensor], Any], int], Tensor],
    ) -> None:
        if settings.patience is not None and data.validation is None:
            raise ValueError(
                f"patience= watches a validation part, and {data.name} has none: hold one out with validation_share=."
            )
        self._data, self._embed = data, embed
        self._test = data.test.to(device)
        self._validation = None if data.validation is None else data.validation.to(device)

    @property
    def validates(self) -> bool:
        """Whether there is a validation part."""
        return self._validation is not None

    def test(self) -> dict[str, float]:
        """Compute recall and MRR on the test part."""
        return self._evaluate(self._test, self._data.test_exclude, self._data.test_positives)

    def validation(self) -> dict[str, float]:
        """Compute recall and MRR on the validation part; empty if there is none."""
        if self._validation is None:
            return {}
        return self._evaluate(self._validation, self._data.validation_exclude, self._data.validation_positives)

    def _evaluate(self, part: TestPart, exclude: Lists | None, positives: Lists | None) -> dict[str, float]:
        reference = self._embed(part.references, len(part.reference_labels))
        query = reference if part.in_itself else self._embed(part.queries, len(part.query_labels))
        return evaluate(
            query, reference, part.query_labels, part.reference_labels, exclude=exclude, positives=positives
        )
