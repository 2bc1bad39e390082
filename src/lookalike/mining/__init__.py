"""Mine hard negatives with an existing model: from pairs of texts, or from embeddings.

Pairs or files -> encode or read -> codes -> candidates -> filters -> negatives -> rows. This module does not import
torch, so that `lookalike mine --help` is fast.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from lookalike.utils.checks import check_choice, checked_bits, checked_integer, checked_positive

if TYPE_CHECKING:
    from lookalike.mining.embeddings import MinedEmbeddings as MinedEmbeddings
    from lookalike.mining.embeddings import mine_embeddings as mine_embeddings
    from lookalike.mining.engines import InProcess as InProcess
    from lookalike.mining.engines import Merge as Merge
    from lookalike.mining.engines import Shard as Shard
    from lookalike.mining.engines.on_ray import OnRay as OnRay
    from lookalike.mining.estimating import DryRun as DryRun
    from lookalike.mining.estimating import Estimate as Estimate
    from lookalike.mining.outputs import MiningInterrupted as MiningInterrupted
    from lookalike.mining.outputs import Summary as Summary
    from lookalike.mining.texts import mine_hard_negatives as mine_hard_negatives

__all__ = [
    "DryRun",
    "Estimate",
    "InProcess",
    "Merge",
    "MinedEmbeddings",
    "MiningInterrupted",
    "OnRay",
    "Search",
    "Selection",
    "Shard",
    "Summary",
    "UnfinishedError",
    "mine_embeddings",
    "mine_hard_negatives",
]

_HOMES = {  # imported at first use
    "DryRun": "estimating",
    "Estimate": "estimating",
    "InProcess": "engines",
    "Merge": "engines",
    "OnRay": "engines.on_ray",
    "Shard": "engines",
    "MinedEmbeddings": "embeddings",
    "MiningInterrupted": "outputs",
    "Summary": "outputs",
    "mine_embeddings": "embeddings",
    "mine_hard_negatives": "texts",
}

CENTER = 0.5  # fraction of the mean to subtract before hashing; see docs/mining.md
OVERSAMPLING = 4
SHORTEST = 64  # candidates on a shortlist, unless `oversampling` is set

Strategy = Literal["top", "random"]
Format = Literal["triplet", "n-tuple", "labeled-pair", "labeled-list", "flagembedding", "tevatron"]


class UnfinishedError(ValueError):
    """Cells are missing that another process has to do; the message says which and how."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """How many of the candidates that pass the filters to take, and which."""

    num_negatives: int = 3
    """Negatives per query."""
    sampling_strategy: Strategy = "top"
    """Take the top candidates, or random ones."""
    seed: int | None = 0
    """Seed of random sampling; None draws from Python's global generator."""
    include_positives: bool = False
    """Keep positives of texts among the candidates; the output format is then n-tuple."""

    def __post_init__(self) -> None:
        checked_positive("num_negatives", self.num_negatives)
        check_choice("sampling_strategy", self.sampling_strategy, get_args(Strategy))
        if self.seed is not None:
            checked_integer("seed", self.seed)


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to find candidates."""

    bits: int = 512
    """Length of the codes, a multiple of 8."""
    rescore: bool = True
    """Score a shortlist with floats; otherwise a score is the cosine that a Hamming distance implies."""
    oversampling: int | None = None
    """Length of the shortlist, in multiples of the candidates considered; by default 4, and at least 64 candidates."""

    def __post_init__(self) -> None:
        checked_bits(self.bits)
        if not isinstance(self.rescore, bool):
            raise TypeError(f"rescore must be True or False, got {self.rescore!r}; oversampling sets the shortlist.")
        if self.oversampling is not None:
            checked_positive("oversampling", self.oversampling)
            if not self.rescore:
                raise ValueError("oversampling sets the length of the shortlist, but rescore=False needs none.")

    @property
    def center(self) -> float:
        """Fraction of the mean to subtract before hashing.

        Centred codes find more of the true neighbours, but the cosine they imply is that of centred embeddings. Without
        floats it has to be the plain cosine, which thresholds and margins refer to.
        """
        return CENTER if self.rescore else 0.0

    def shortlist(self, wanted: int) -> int:
        """Return how many candidates to find in bits in order to consider the best `wanted` of them."""
        if not self.rescore:
            return wanted
        return max(SHORTEST, OVERSAMPLING * wanted) if self.oversampling is None else self.oversampling * wanted
