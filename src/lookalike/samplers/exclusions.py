"""Samples that are neither positives nor negatives of each other, beyond what labels say."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lookalike.utils.lists import checked_lists, lists_among, lists_checksum, take_lists


class Exclusions:
    """Lists of ids, one per sample or pair, as a CSR pair (offsets, ids).

    Examples:
        >>> import torch
        >>> exclusions = Exclusions(([0, 1, 2, 2], [1, 0]), 3)  # samples 0 and 1 exclude each other
        >>> exclusions.mask(torch.tensor([0, 2]), torch.tensor([1, 2])).tolist()
        [[True, False], [False, False]]
    """

    def __init__(self, lists: tuple[Any, Any], n: int) -> None:
        self.offsets, self.ids = checked_lists("exclude", lists, n, n, torch.device("cpu"))
        self.n = n
        self.checksum = lists_checksum((self.offsets, self.ids))

    def among(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """The lists of some samples as positions among them; what is not among them is left out."""
        return lists_among((self.offsets, self.ids), samples, samples, self.n)

    def mask(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Which of the columns' samples each of the rows' excludes, bool [rows, columns]."""
        offsets, ids = take_lists((self.offsets, self.ids), rows)
        row = torch.repeat_interleave(torch.arange(len(rows)), offsets.diff())
        ordered, places = columns.sort()
        found = torch.searchsorted(ordered, ids).clamp(max=max(0, len(columns) - 1))
        mask = torch.zeros((len(rows), len(columns)), dtype=torch.bool)
        hits = ordered[found] == ids
        mask[row[hits], places[found[hits]]] = True
        return mask
