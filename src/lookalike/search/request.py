"""The request and the answer of a search; requests are checked once, for all backends."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lookalike.hashing import Scheme
from lookalike.hashing.scheme import FARTHEST, ONE
from lookalike.utils.checks import checked_positive
from lookalike.utils.lists import Lists, checked_lists, row_numbers, take_lists
from lookalike.utils.tensors import checked_codes, checked_integers, checked_labels


class Neighbours(NamedTuple):
    """The nearest codes of each query, nearest first, ties by the smaller id, padded with -1."""

    distances: Tensor  # int32 [q, k]
    indices: Tensor  # int64 [q, k]; int32 if a request says so


@dataclass(frozen=True, kw_only=True)
class Request:
    """A checked search. Tensors are contiguous and on one device; labels are both given or both absent."""

    query: Tensor  # uint8 [q, bytes]
    reference: Tensor  # uint8 [n, bytes]
    k: int
    query_labels: Tensor | None = None  # int64 [q]
    reference_labels: Tensor | None = None  # int64 [n]
    exclude: Lists | None = None  # ascending within a query
    progress: bool = False
    memory: int | None = None  # bytes of working memory, for backends that can choose
    narrow: bool = False  # whether indices are int32 rather than int64
    limits: Tensor | None = None  # int32 [q], from -1 to the farthest: the largest distance that counts
    scheme: Scheme | None = None  # how codes of several bits per dimension compare; sign codes have none

    @property
    def num_queries(self) -> int:
        """Number of queries, q."""
        return len(self.query)

    @property
    def num_references(self) -> int:
        """Number of reference rows, n."""
        return len(self.reference)

    @property
    def bits(self) -> int:
        """Length of the codes."""
        return self.query.shape[1] * 8

    @property
    def farthest(self) -> int:
        """The largest distance that two codes can have."""
        return self.bits if self.scheme is None else FARTHEST

    @property
    def middle(self) -> int:
        """The distance within which half of all codes lie, if they are random."""
        return self.bits // 2 if self.scheme is None else ONE

    def to(self, device: str) -> "Request":
        """Move the tensors to another device."""
        return replace(
            self,
            query=self.query.to(device),
            reference=self.reference.to(device),
            query_labels=None if self.query_labels is None else self.query_labels.to(device),
            reference_labels=None if self.reference_labels is None else self.reference_labels.to(device),
            exclude=None if self.exclude is None else (self.exclude[0].to(device), self.exclude[1].to(device)),
            limits=None if self.limits is None else self.limits.to(device),
        )

    def take(self, rows: Tensor) -> "Request":
        """Return the request for some of the queries."""
        return replace(
            self,
            query=self.query[rows],
            query_labels=None if self.query_labels is None else self.query_labels[rows],
            exclude=None if self.exclude is None else take_lists(self.exclude, rows),
            limits=None if self.limits is None else self.limits[rows],
        )

    def excluded_pairs(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Return the (query - first, reference id) pairs that the exclude lists of queries first to last - 1 name."""
        if self.exclude is None:
            none = torch.empty(0, dtype=torch.int64, device=self.query.device)
            return none, none
        lists = take_lists(self.exclude, torch.arange(first, last, device=self.query.device))
        return row_numbers(lists), lists[1]


def checked_request(
    query: Any,
    reference: Any,
    k: int,
    labels: tuple[Any, Any] = (None, None),
    exclude: tuple[Any, Any] | None = None,
    *,
    progress: bool = False,
    memory: int | None = None,
    narrow: bool = False,
    limits: Any = None,
    scheme: Scheme | None = None,
) -> Request:
    """Check the arguments of `hamming_topk` or `scalar_topk`; `labels` are those of the queries and of the reference.

    With `narrow` the answer's indices will be int32, half the memory where lists are long.
    """
    is_self_join = reference is query
    query = checked_codes("query", query)
    reference = query if is_self_join else checked_codes("reference", reference).to(query.device)
    if query.shape[1] != reference.shape[1]:
        raise ValueError(
            f"query and reference must have codes of the same width, got {query.shape[1] * 8} bits and "
            f"{reference.shape[1] * 8} bits; shorten the longer ones to a prefix with codes[:, :width]."
        )
    query_labels, reference_labels = labels
    if reference_labels is None and query_labels is not None and is_self_join:
        reference_labels = query_labels
    if (query_labels is None) != (reference_labels is None):
        raise ValueError("query_labels and reference_labels must be given together: one alone excludes nothing.")
    if query_labels is not None:
        query_labels = checked_labels("query_labels", query_labels, len(query)).to(query.device)
        reference_labels = checked_labels("reference_labels", reference_labels, len(reference)).to(query.device)
    if exclude is not None:
        exclude = checked_lists("exclude", exclude, len(query), len(reference), query.device)
    request = Request(
        query=query,
        reference=reference,
        k=checked_positive("k", k),
        query_labels=query_labels,
        reference_labels=reference_labels,
        exclude=exclude,
        progress=progress,
        memory=None if memory is None else checked_positive("memory", memory),
        narrow=narrow,
        scheme=scheme,
    )
    return request if limits is None else replace(request, limits=_checked_limits(limits, query, request.farthest))


def _checked_limits(limits: Any, query: Tensor, farthest: int) -> Tensor:
    checked = checked_integers("limits", limits)
    if len(checked) != len(query):
        raise ValueError(f"limits must have one distance per query, {len(query)}, got {len(checked)}.")
    return checked.to(query.device).clamp(-1, farthest).to(torch.int32)
