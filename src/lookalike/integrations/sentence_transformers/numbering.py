"""A `datasets.Dataset` whose rows carry their number through loader, collator and device to the loss."""

from __future__ import annotations

import copy
from typing import Any, Self

from datasets import Dataset


class NumberedRows(Dataset):  # type: ignore[misc]
    """A view of a data set: each row also has its number, in the column where sentence-transformers finds labels.

    A number that travels with its row is right whatever lies in between: workers that fetch ahead, batches skipped when
    a run resumes, ranks that batches are dealt to, sub-batches of gradient accumulation. Losses with in-batch negatives
    take no labels, and one that does gets those of the data set back.
    """

    number_column: str
    first_number: int

    @classmethod
    def of(cls, dataset: Dataset, number_column: str, first_number: int) -> Self:
        """Number the rows from `first_number`; `dataset` stays as it is."""
        view: Self = copy.copy(dataset)
        view.__class__ = cls  # a Dataset cannot be constructed from another
        view.number_column, view.first_number = number_column, first_number
        return view

    def __getitem__(self, key: Any) -> Any:
        rows = super().__getitem__(key)
        if isinstance(key, int):
            rows[self.number_column] = self.first_number + key
        return rows

    def __getitems__(self, keys: list[int]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = super().__getitems__(keys)
        for key, row in zip(keys, rows, strict=True):
            row[self.number_column] = self.first_number + key
        return rows
