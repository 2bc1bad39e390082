"""The spaces to search for negatives: codes by Hamming distance, or floats by cosine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lookalike.hashing import implied_cosine
from lookalike.search import hamming_topk
from lookalike.search.cosine import cosine_topk
from lookalike.search.plain import popcount

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Space:
    """What mining needs from a kind of row. Values are distances or similarities, whichever `topk` returns."""

    topk: Callable[..., tuple[Tensor, Tensor]]
    """The search, nearest first: values and indices, both [q, k]."""
    compare: Callable[[Tensor, Tensor], Tensor]
    """The values of pairs of rows, [..., width] and [..., width] -> [...]."""
    scores: Callable[[Tensor, int], Tensor]
    """Values of rows of some width -> cosines."""
    opposite: Callable[[Tensor], Tensor]
    """Rows whose order of neighbours is reversed: the farthest from x is the nearest to its opposite."""
    dtype: torch.dtype
    absent: float
    """The value where there is no neighbour."""

    def nothing(self, q: int, k: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Make the values and indices of queries without neighbours."""
        values = torch.full((q, k), self.absent, device=device).to(self.dtype)
        return values, torch.full((q, k), -1, dtype=torch.int64, device=device)


def _hamming(a: Tensor, b: Tensor) -> Tensor:
    return popcount(a ^ b).sum(-1, dtype=torch.int32)


def _cosines(a: Tensor, b: Tensor) -> Tensor:
    return (normalize(a.float(), dim=-1) * normalize(b.float(), dim=-1)).sum(-1)


def _same(values: Tensor, _: int) -> Tensor:
    return values


def _complement(codes: Tensor) -> Tensor:
    return ~codes


def _negated(x: Tensor) -> Tensor:
    return -x


def _implied(distances: Tensor, width: int) -> Tensor:
    return implied_cosine(distances, 8 * width)


def _cosine_topk(*arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
    return cosine_topk(*arguments, **options)


HAMMING = Space(hamming_topk, _hamming, _implied, _complement, torch.int32, -1)
COSINE = Space(_cosine_topk, _cosines, _same, _negated, torch.float32, -math.inf)
