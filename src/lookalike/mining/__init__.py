"""Mine hard negatives with an existing model: from pairs of texts, or from embeddings.

Pairs or files -> encode or read -> codes -> candidates -> filters -> negatives -> rows. This module does not import
torch, so that `lookalike mine --help` is fast.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from lookalike.utils.checks import check_choice, check_code_length, checked_bits, checked_integer, checked_positive

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
SAMPLED_TEXTS = 4096  # encoded before all others, to fit codes of several bits to
OVERSAMPLING = {"floats": 4, "codes": 2}  # by what scores candidates; decoding is exact enough with fewer
SHORTEST = {"floats": 64, "codes": 16}  # candidates on a shortlist, unless `oversampling` is set
LENGTH = {"floats": 512, "codes": 1024}  # of codes in bits, by what scores candidates

Code = Literal["signs", "scalar"]
Rescore = Literal["floats", "codes"]
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
    """How to find candidates, and how to score them."""

    bits: int | None = None
    """Length of the codes, a multiple of 8; by default 512, or 1024 if codes score."""
    code: Code | None = None
    """What the bits hold: signs, one bit per rotated dimension, or scalar, several bits for each principal component;
    by default signs, or scalar if codes score."""
    rescore: Rescore = "floats"
    """Score candidates by floats, which are read for a shortlist, or by codes: then no floats are kept."""
    oversampling: int | None = None
    """Length of the shortlist, in multiples of the candidates considered; by default 4, and at least 64 candidates, or
    2 and 16 where codes score."""

    def __post_init__(self) -> None:
        if self.code is not None:
            check_choice("code", self.code, get_args(Code))
        check_choice("rescore", self.rescore, get_args(Rescore))
        checked_bits(self.length)
        check_code_length("scalar" if self.is_scalar else "signs", self.length)
        if self.oversampling is not None:
            checked_positive("oversampling", self.oversampling)
            if self.rescore == "codes" and not self.is_scalar:
                raise ValueError(
                    'oversampling sets the length of the shortlist, but signs with rescore="codes" need none.'
                )

    @property
    def length(self) -> int:
        """Length of the codes in bits."""
        return LENGTH[self.rescore] if self.bits is None else self.bits

    @property
    def is_scalar(self) -> bool:
        """Whether codes hold several bits per dimension."""
        return self.code == "scalar" or (self.code is None and self.rescore == "codes")

    @property
    def keeps_floats(self) -> bool:
        """Whether the embeddings of texts are kept, to score a shortlist with."""
        return self.rescore == "floats"

    @property
    def center(self) -> float:
        """Fraction of the mean to subtract before hashing to signs.

        Centred codes find more of the true neighbours, but the cosine they imply is that of centred embeddings. Without
        floats it has to be the plain cosine, which thresholds and margins refer to.
        """
        return CENTER if self.rescore == "floats" else 0.0

    def settings(self) -> dict[str, Any]:
        """Return all fields by name, with what defaults stand for."""
        return {**asdict(self), "bits": self.length, "code": "scalar" if self.is_scalar else "signs"}

    def shortlist(self, wanted: int) -> int:
        """Return how many candidates to find in bits in order to score them better and consider `wanted` of them."""
        if self.oversampling is not None:
            return self.oversampling * wanted
        return max(SHORTEST[self.rescore], OVERSAMPLING[self.rescore] * wanted)
