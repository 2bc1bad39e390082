"""The spaces to search for negatives: codes by Hamming distance or estimated cosine, or floats by cosine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lookalike.hashing import ScalarCodes, implied_cosine
from lookalike.search import answer, checked_scheme
from lookalike.search.cosine import cosine_topk
from lookalike.search.plain import popcount
from lookalike.search.request import checked_request
from lookalike.utils.tensors import checked_codes

if TYPE_CHECKING:
    from collections.abc import Callable

    from lookalike.hashing import Scheme


@dataclass(frozen=True)
class Space:
    """What mining needs from a kind of row. Values are distances or similarities, whichever `topk` returns."""

    topk: Callable[..., tuple[Tensor, Tensor]]
    """The search, nearest first: values and indices, both [q, k]; indices are int32 with `narrow=True`."""
    compare: Callable[[Tensor, Tensor], Tensor]
    """The values of pairs of rows, [..., width] and [..., width] -> [...]."""
    scores: Callable[[Tensor, int], Tensor]
    """Values of rows of some width -> cosines."""
    opposite: Callable[[Tensor], Tensor] | None
    """Rows whose order of neighbours is reversed: the farthest from x is the nearest to its opposite. None where that
    cannot be exact: distances of codes of several bits are cut at 0, and products are rounded down."""
    dtype: torch.dtype
    absent: float
    """The value where there is no neighbour."""

    def nothing(self, q: int, k: int, device: torch.device, *, narrow: bool) -> tuple[Tensor, Tensor]:
        """Make the values and indices of queries without neighbours."""
        values = torch.full((q, k), self.absent, device=device).to(self.dtype)
        return values, torch.full((q, k), -1, dtype=torch.int32 if narrow else torch.int64, device=device)


def space_of(scheme: Scheme | None) -> Space:
    """Return the space of codes that a scheme reads, or of sign codes if it is None."""
    if scheme is None:
        return HAMMING
    topk = partial(_code_topk, scheme=scheme)
    return Space(topk, scheme.compare, partial(_estimated, scheme=scheme), None, torch.int32, -1)


def space_of_codes(codes: Any, reference: Any = None) -> tuple[Space, Tensor, Tensor]:
    """Return the space of codes of either kind, and their bytes; without a reference it is the queries themselves."""
    if isinstance(codes, ScalarCodes) or isinstance(reference, ScalarCodes):
        scheme = checked_scheme(codes, codes if reference is None else reference)
        packed = codes.packed
        return space_of(scheme), packed, packed if reference is None else reference.packed.to(packed.device)
    query = checked_codes("codes", codes)
    return HAMMING, query, query if reference is None else checked_codes("reference", reference).to(query.device)


def _code_topk(
    query: Tensor,
    reference: Tensor,
    k: int,
    *,
    query_labels: Any = None,
    reference_labels: Any = None,
    backend: str = "auto",
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Search as `hamming_topk` and `scalar_topk` do, with int32 indices if `narrow` is among the options."""
    return answer(checked_request(query, reference, k, (query_labels, reference_labels), **options), backend)


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


def _estimated(distances: Tensor, _: int, *, scheme: Scheme) -> Tensor:
    return scheme.cosines(distances)


def _cosine_topk(*arguments: Any, narrow: bool = False, **options: Any) -> tuple[Tensor, Tensor]:
    scores, indices = cosine_topk(*arguments, **options)
    return scores, indices.int() if narrow else indices


HAMMING = Space(_code_topk, _hamming, _implied, _complement, torch.int32, -1)
COSINE = Space(_cosine_topk, _cosines, _same, _negated, torch.float32, -math.inf)
