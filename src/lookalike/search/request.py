"""What a search is asked and what it answers: the input, checked once for all backends."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lookalike.checks import checked_codes, checked_integers, checked_labels, checked_positive


class Neighbours(NamedTuple):
    """The nearest codes of each query: nearest first, ties by the smaller id, padded with -1."""

    distances: Tensor  # int32 [q, k]
    indices: Tensor  # int64 [q, k]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A checked search. Tensors are contiguous and on one device; labels are both given or both absent."""

    queries: Tensor  # uint8 [q, bytes]
    database: Tensor  # uint8 [n, bytes]
    k: int
    query_labels: Tensor | None = None  # int64 [q]
    database_labels: Tensor | None = None  # int64 [n]
    exclude: tuple[Tensor, Tensor] | None = None  # int64 [q + 1] offsets, int64 [m] ids, ascending within a query
    progress: bool = False
    memory: int | None = None  # bytes a backend may work with beside the answer, where it can choose

    @property
    def num_queries(self) -> int:
        """Number of queries, q."""
        return len(self.queries)

    @property
    def num_database(self) -> int:
        """Number of database rows, n."""
        return len(self.database)

    @property
    def bits(self) -> int:
        """Length of the codes."""
        return self.queries.shape[1] * 8

    def to(self, device: str) -> "Request":
        """The same request with its tensors on another device."""
        return replace(
            self,
            queries=self.queries.to(device),
            database=self.database.to(device),
            query_labels=None if self.query_labels is None else self.query_labels.to(device),
            database_labels=None if self.database_labels is None else self.database_labels.to(device),
            exclude=None if self.exclude is None else (self.exclude[0].to(device), self.exclude[1].to(device)),
        )

    def take(self, rows: Tensor) -> "Request":
        """The same request for some of the queries."""
        return replace(
            self,
            queries=self.queries[rows],
            query_labels=None if self.query_labels is None else self.query_labels[rows],
            exclude=None if self.exclude is None else take_lists(*self.exclude, rows),
        )

    def excluded_pairs(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """The excluded (query - first, database id) pairs of queries first..last-1, from lists only."""
        if self.exclude is None:
            none = torch.empty(0, dtype=torch.int64, device=self.queries.device)
            return none, none
        offsets, ids = self.exclude
        lengths = offsets[first + 1 : last + 1] - offsets[first:last]
        rows = torch.repeat_interleave(torch.arange(last - first, device=ids.device), lengths)
        return rows, ids[int(offsets[first]) : int(offsets[last])]


def checked_request(
    queries: Any,
    database: Any,
    k: int,
    *,
    query_labels: Any = None,
    database_labels: Any = None,
    exclude: tuple[Any, Any] | None = None,
    progress: bool = False,
    memory: int | None = None,
) -> Request:
    """Check everything a caller can get wrong, before any work is done."""
    is_self_join = database is queries
    queries = checked_codes("queries", queries)
    database = queries if is_self_join else checked_codes("database", database).to(queries.device)
    if queries.shape[1] != database.shape[1]:
        raise ValueError(
            f"queries and database must have codes of the same width, got {queries.shape[1] * 8} bits and "
            f"{database.shape[1] * 8} bits; shorten the longer ones to a prefix with codes[:, :width]."
        )
    if database_labels is None and query_labels is not None and is_self_join:
        database_labels = query_labels
    if (query_labels is None) != (database_labels is None):
        raise ValueError("query_labels and database_labels must be given together: one alone excludes nothing.")
    if query_labels is not None:
        query_labels = checked_labels("query_labels", query_labels, len(queries)).to(queries.device)
        database_labels = checked_labels("database_labels", database_labels, len(database)).to(queries.device)
    return Request(
        queries=queries,
        database=database,
        k=checked_positive("k", k),
        query_labels=query_labels,
        database_labels=database_labels,
        exclude=None if exclude is None else checked_lists(exclude, len(queries), len(database), queries.device),
        progress=progress,
        memory=None if memory is None else checked_positive("memory", memory),
    )


def checked_lists(exclude: tuple[Any, Any], q: int, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Lists of ids below n, one for each of q queries, as offsets and ids, ascending within a query.

    Raises:
        TypeError: They are no pair.
        ValueError: Offsets or ids cannot be.
    """
    if not isinstance(exclude, (tuple, list)) or len(exclude) != 2:
        raise TypeError("exclude must be a pair (offsets, ids), as in a CSR matrix.")
    offsets = checked_integers("exclude offsets", exclude[0]).to(device)
    ids = checked_integers("exclude ids", exclude[1]).to(device)
    if len(offsets) != q + 1:
        raise ValueError(f"exclude offsets must have length {q + 1} (queries + 1), got {len(offsets)}.")
    lengths = offsets.diff()
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(ids) or bool((lengths < 0).any()):
        raise ValueError(f"exclude offsets must rise from 0 to the number of ids, {len(ids)}, without falling.")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= n):
        raise ValueError(f"exclude ids must be between 0 and {n - 1}, got {int(ids.min())} to {int(ids.max())}.")
    rows = torch.repeat_interleave(torch.arange(q, device=ids.device), lengths)
    by_id = ids.argsort(stable=True)
    return offsets, ids[by_id[rows[by_id].argsort(stable=True)]]


def take_lists(offsets: Tensor, ids: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The lists of some rows of a CSR pair, as a CSR pair."""
    lengths = offsets[rows + 1] - offsets[rows]
    taken = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    positions = torch.arange(int(taken[-1]), device=ids.device)
    positions += torch.repeat_interleave(offsets[rows] - taken[:-1], lengths)
    return taken, ids[positions]
