"""Filters for hard negatives: rank window, scores, margins, exclusions; imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which neighbours count as hard negatives, under the names that sentence-transformers gives its filters.

    A score is the cosine of query and candidate: exact, or cos(pi * h / b), which a Hamming distance h of b bits
    implies. Margins are measured from the query's least similar positive; a query without one has no margin. The order
    is that of sentence-transformers: `range_max` limits the search, scores and margins drop candidates, and
    `range_min` skips the nearest of those that are left.

    Raises:
        ValueError: The filters contradict each other.

    Examples:
        >>> Filters(range_min=2, max_score=0.9, relative_margin=0.05).on_scores
        True
    """

    range_min: int = 0
    """Skip this many of the nearest candidates that passed the other filters."""
    range_max: int | None = None
    """Highest rank to consider, before any other filter; None: as many as the filters are likely to need."""
    max_score: float | None = None
    """Drop candidates more similar than this."""
    min_score: float | None = None
    """Drop candidates less similar than this."""
    absolute_margin: float | None = None
    """Drop candidates more similar than the positive's score minus this."""
    relative_margin: float | None = None
    """Drop candidates more similar than the positive's score minus this fraction of its magnitude."""
    exclude: tuple[Any, Any] | None = None
    """Ids to exclude as negatives, per query: a CSR pair (offsets, ids), as in `hamming_topk`."""

    def __post_init__(self) -> None:
        for name in ("range_min", "range_max"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(f"{name} must be an integer, got {type(value).__name__}.")
        for name in ("max_score", "min_score", "absolute_margin", "relative_margin"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise TypeError(f"{name} must be a number, got {type(value).__name__}.")
            if value is not None and math.isnan(value):
                raise ValueError(f"{name} must be a number, got NaN.")
        if self.range_min < 0:
            raise ValueError(f"range_min must be at least 0, got {self.range_min}.")
        if self.range_max is not None and self.range_max <= self.range_min:
            raise ValueError(
                f"range_max must be above range_min, got range_min={self.range_min} and range_max={self.range_max}."
            )
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            raise ValueError(f"min_score={self.min_score} is above max_score={self.max_score}: nothing can pass.")

    def check_room(self, k: int, name: str = "k") -> None:
        """Check that the rank window is wide enough for k negatives; `name` is what the caller calls k.

        Raises:
            ValueError: It is not.
        """
        if self.range_max is not None and self.range_max - self.range_min < k:
            raise ValueError(
                f"range_max - range_min must leave room for {name}={k} negatives, got range_min={self.range_min} and "
                f"range_max={self.range_max}; lower {name} or range_min, or raise range_max."
            )

    @property
    def uses_positives(self) -> bool:
        """Whether a margin is set."""
        return self.absolute_margin is not None or self.relative_margin is not None

    @property
    def drops_nearest(self) -> bool:
        """Whether a candidate may be dropped for being too similar."""
        return self.max_score is not None or self.uses_positives

    @property
    def on_scores(self) -> bool:
        """Whether a candidate may be dropped for its score."""
        return self.min_score is not None or self.drops_nearest

    def dropped(self, scores: Tensor, positives: Tensor | None = None) -> dict[str, Tensor]:
        """Return which candidates each filter drops, in the order in which the filters apply.

        Args:
            scores: Cosines, floats [q, w].
            positives: The score of each query's least similar positive, [q]; infinite where there is none. Needed for
                margins only.

        Returns:
            bool [q, w] by the name of the filter.
        """
        masks: dict[str, Tensor] = {}
        if self.uses_positives:
            assert positives is not None  # noqa: S101 - our own invariant
            bounded = positives.isfinite()[:, None]
            hardest = positives[:, None]
            if self.absolute_margin is not None:
                masks["absolute_margin"] = bounded & (scores + self.absolute_margin > hardest)
            if self.relative_margin is not None:
                masks["relative_margin"] = bounded & (scores > hardest - hardest.abs() * self.relative_margin)
        if self.max_score is not None:
            masks["max_score"] = scores > self.max_score
        if self.min_score is not None:
            masks["min_score"] = scores < self.min_score
        return masks
