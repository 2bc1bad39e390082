"""Marks that two rows are the same -> references that are never negatives of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lookalike.negatives.same import merge_labels, read_same
from lookalike.utils.lists import Lists, row_numbers

if TYPE_CHECKING:
    from lookalike.mining.pair_files import PairFiles
    from lookalike.utils.arrays import Array


def same_rows(same: Array, n: int, positives: Lists) -> Lists:
    """Exclude rows that are the same as a row or as one of its positives, where rows are searched in themselves.

    Args:
        same: Pairs of rows, int64 [pairs, 2].
        n: Number of rows.
        positives: The positives of each row.
    """
    groups = merge_labels(None, same, n)
    return _excluded(groups, groups, positives)


def same_references(same: Array, n: int, m: int, positives: Lists) -> Lists:
    """Exclude references that are the same as a query or as one of its positives.

    Args:
        same: Pairs of a query and a reference, int64 [pairs, 2].
        n: Number of queries.
        m: Number of references.
        positives: The references that are positives of each query.
    """
    groups = merge_labels(None, same + np.array([0, n]), n + m)
    return _excluded(groups[:n], groups[n:], positives)


def excluded_texts(same: Any, pairs: PairFiles) -> Lists:
    """Read marks and return the texts that they exclude for each query.

    Args:
        same: What `read_same` reads: pairs of rows or, with a corpus, of a row and a text of the corpus.
        pairs: The queries without duplicates, and the texts to search.
    """
    query_of_row, text_of_row = pairs.numbers_of_rows()
    if not len(text_of_row):
        return _same_answers(query_of_row[read_same(same, len(query_of_row))], pairs)
    marked = read_same(same, len(query_of_row), references=len(text_of_row))
    found = np.stack([query_of_row[marked[:, 0]], text_of_row[marked[:, 1]]], axis=1)
    n = len(pairs.queries)
    return same_references(found, n, len(pairs.corpus), pairs.positives.read(0, n))


def _same_answers(same: Array, pairs: PairFiles) -> Lists:
    """Exclude the positives of queries that are the same, int64 [pairs, 2]."""
    n = len(pairs.queries)
    positives, groups = pairs.positives.read(0, n), merge_labels(None, same, n)
    queries, places = _members(groups, groups[row_numbers(positives).numpy()])
    return _distinct(queries, positives[1].numpy()[places], n, len(pairs.corpus))


def _excluded(queries: Array, references: Array, positives: Lists) -> Lists:
    """Exclude references of the group of a query, or of one of its positives; groups are numbers, int64 [n] and [m]."""
    rows, ids = _members(queries, references)
    through, more = _members(references[positives[1].numpy()], references)
    owners = row_numbers(positives).numpy()[through]
    return _distinct(np.concatenate([rows, owners]), np.concatenate([ids, more]), len(queries), len(references))


def _members(wanted: Array, groups: Array) -> tuple[Array, Array]:
    """Return for each wanted group the places of its members: row numbers and places, both [total]."""
    order = groups.argsort(kind="stable")
    ordered = groups[order]
    starts = np.searchsorted(ordered, wanted)
    lengths = np.searchsorted(ordered, wanted, side="right") - starts
    rows = np.repeat(np.arange(len(wanted)), lengths)
    before = np.cumsum(lengths) - lengths
    return rows, order[np.arange(len(rows)) + (starts - before)[rows]]


def _distinct(rows: Array, ids: Array, n: int, m: int) -> Lists:
    """Make lists from ids and the row of each, in any order and with repetitions."""
    pairs = np.unique(rows * np.int64(m) + ids)
    lengths = np.bincount(pairs // m, minlength=n)
    return torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])), torch.from_numpy(pairs % m)
