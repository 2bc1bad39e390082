"""Which candidates become negatives: the arguments of sentence-transformers' function, checked before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from lookalike.utils.checks import checked_bits, checked_positive

BITS = 512
CENTER = 0.5  # of the mean; see docs/mining.md
OVERSAMPLING = 4
SHORTEST = 64  # candidates that are rescored unless the user asks for another number
FORMATS = ("triplet", "n-tuple", "labeled-pair", "labeled-list")
STRATEGIES = ("top", "random")
FROM_TEXTS = ("mining from texts", "'lookalike[text]'")  # what needs a library, and what pip installs for it


@dataclass(frozen=True, kw_only=True)
class Options:
    """How negatives are chosen, as in sentence-transformers, and how they are searched.

    Raises:
        TypeError: A number is of the wrong kind.
        ValueError: A number is out of range, or nothing can pass.
    """

    num_negatives: int = 3
    range_min: int = 0
    range_max: int | None = None
    max_score: float | None = None
    min_score: float | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    sampling_strategy: str = "top"
    include_positives: bool = False
    bits: int = BITS
    rescore: bool | int = True
    queries_at_a_time: int = 16384

    def __post_init__(self) -> None:
        checked_positive("num_negatives", self.num_negatives)
        checked_positive("faiss_batch_size", self.queries_at_a_time)
        checked_bits(self.bits)
        if self.range_min < 0:
            raise ValueError(f"range_min must be at least 0, got {self.range_min}.")
        if self.range_max is not None and self.range_max - self.range_min < self.num_negatives:
            raise ValueError(
                f"range_max - range_min must leave room for num_negatives={self.num_negatives}, got "
                f"range_min={self.range_min} and range_max={self.range_max}; lower one of them or raise range_max."
            )
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            raise ValueError(f"min_score={self.min_score} is above max_score={self.max_score}: nothing can pass.")
        if self.sampling_strategy not in STRATEGIES:
            raise ValueError(f"sampling_strategy must be 'top' or 'random', got {self.sampling_strategy!r}.")
        if not isinstance(self.rescore, int) or self.rescore < 0:
            raise ValueError(
                f"rescore must be True, False or how many times the candidates are rescored, got {self.rescore!r}."
            )

    @property
    def center(self) -> float:
        """Share of the mean that codes are centred by.

        Centred codes find more of the true neighbours, but the cosine they imply is that of centred embeddings. Where
        nothing else gives scores it has to be the cosine itself, as thresholds and margins speak of that.
        """
        return CENTER if self.rescore else 0.0

    @property
    def filters_on_scores(self) -> bool:
        """Whether a candidate may be dropped for its score."""
        limits = (self.absolute_margin, self.relative_margin, self.max_score, self.min_score)
        return any(limit is not None for limit in limits)

    def farthest(self, most_positives: int, *, cross_encoded: bool = False) -> int:
        """The rank up to which candidates are looked at: `range_max`, or as much as the filters are likely to need."""
        if self.range_max is not None:
            return self.range_max
        drops_the_nearest = any(x is not None for x in (self.absolute_margin, self.relative_margin, self.max_score))
        generous = drops_the_nearest or (cross_encoded and self.min_score is not None)
        return self.range_min + self.num_negatives * (10 if generous else 1) + most_positives

    def shortlist(self, wanted: int) -> int:
        """How many candidates the bits find where `wanted` are looked at."""
        if self.rescore is True:
            return max(SHORTEST, OVERSAMPLING * wanted)
        return wanted * max(1, self.rescore)


OutputFormat = Literal["triplet", "n-tuple", "labeled-pair", "labeled-list"]
MISSING = -math.inf  # the score of a negative that was not found
