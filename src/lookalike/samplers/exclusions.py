"""Samples that are neither positives nor negatives of each other, beyond what labels say."""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor

from lookalike.search.request import checked_lists, take_lists


class Exclusions:
    """Lists of ids, one per sample or pair, as a CSR pair (offsets, ids).

    Examples:
        >>> import torch
        >>> exclusions = Exclusions(([0, 1, 2, 2], [1, 0]), 3)  # samples 0 and 1 exclude each other
        >>> exclusions.mask(torch.tensor([0, 2]), torch.tensor([1, 2])).tolist()
        [[True, False], [False, False]]
    """

    def __init__(self, lists: tuple[Any, Any], n: int) -> None:
        self.offsets, self.ids = checked_lists(lists, n, n, torch.device("cpu"))
        self.n = n
        self.checksum = zlib.crc32(self.ids.numpy().tobytes(), zlib.crc32(self.offsets.numpy().tobytes()))

    def among(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """The lists of some samples as positions among them; what is not among them is left out."""
        place = torch.full((self.n,), -1)
        place[samples] = torch.arange(len(samples))
        offsets, ids = take_lists(self.offsets, self.ids, samples)
        places = place[ids]
        kept = torch.cat([places.new_zeros(1), (places >= 0).long().cumsum(0)])
        return kept[offsets], places[places >= 0]

    def mask(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Which of the columns' samples each of the rows' excludes, bool [rows, columns]."""
        offsets, ids = take_lists(self.offsets, self.ids, rows)
        row = torch.repeat_interleave(torch.arange(len(rows)), offsets.diff())
        ordered, places = columns.sort()
        found = torch.searchsorted(ordered, ids).clamp(max=max(0, len(columns) - 1))
        mask = torch.zeros((len(rows), len(columns)), dtype=torch.bool)
        hits = ordered[found] == ids
        mask[row[hits], places[found[hits]]] = True
        return mask
