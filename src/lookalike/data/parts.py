"""Training and test parts of anything that can be read by number: images, texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.utils.arrays import Array

CPU = torch.device("cpu")


class Items(Protocol):
    """What can be read by number."""

    def __len__(self) -> int:
        """How many."""

    def read(self, ids: Array) -> Any:
        """A tensor with a row for each, or a list of texts."""


class Augment(Protocol):
    """Changes images at random: what happens to one depends on the seed, its id and its tower alone."""

    def __call__(self, images: Tensor, ids: Tensor, seed: int, tower: str) -> Tensor:
        """uint8 [n, 3, height, width] -> the same."""


@dataclass(frozen=True)
class Texts:
    """Texts in memory, as `Items`."""

    texts: Sequence[str]

    def __len__(self) -> int:
        """How many."""
        return len(self.texts)

    def read(self, ids: Array) -> list[str]:
        """The texts themselves: the encoder tokenises them."""
        return [self.texts[i] for i in ids.tolist()]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """A `TrainingPart`: labelled where `pairs` is None, and then queries and references are the same items."""

    query_items: Items
    reference_items: Items
    query_ids: Array  # which item is the query of a sample or pair
    reference_ids: Array
    labels: Tensor | None
    pairs: int | None = None
    augment: Augment | None = None
    device: torch.device = CPU

    @property
    def prefetch(self) -> bool:
        """Images are decoded, texts tokenised."""
        return True

    def __len__(self) -> int:
        """Samples or pairs."""
        return len(self.query_ids)

    def queries(self, ids: Tensor, seed: int) -> Any:
        """Augmented, if they are images."""
        return self._augmented("query", ids, seed)

    def references(self, ids: Tensor, seed: int) -> Any:
        """Augmented, if they are images."""
        return self._augmented("reference", ids, seed)

    def plain(self, tower: str, ids: Tensor) -> Any:
        """As they are."""
        items, places = (
            (self.query_items, self.query_ids) if tower == "query" else (self.reference_items, self.reference_ids)
        )
        return _on(self.device, items.read(places[ids.cpu().numpy()]))

    def to(self, device: torch.device) -> Samples:
        """The same; images go there before they are augmented."""
        return replace(self, device=device)

    def _augmented(self, tower: str, ids: Tensor, seed: int) -> Any:
        plain = self.plain(tower, ids)
        return plain if self.augment is None else self.augment(plain, ids, seed, tower)


@dataclass(frozen=True, kw_only=True)
class Test:
    """A `TestPart`."""

    query_items: Items
    reference_items: Items
    query_ids: Array
    reference_ids: Array
    query_labels: Tensor
    reference_labels: Tensor
    device: torch.device = CPU

    __test__ = False  # pytest takes what is called Test for one

    @property
    def in_itself(self) -> bool:
        """Whether queries and references are the same."""
        return self.query_items is self.reference_items and np.array_equal(self.query_ids, self.reference_ids)

    def queries(self, ids: Tensor) -> Any:
        """As they are."""
        return _on(self.device, self.query_items.read(self.query_ids[ids.cpu().numpy()]))

    def references(self, ids: Tensor) -> Any:
        """As they are."""
        return _on(self.device, self.reference_items.read(self.reference_ids[ids.cpu().numpy()]))

    def to(self, device: torch.device) -> Test:
        """The same."""
        return replace(self, device=device)


def labelled(items: Items, ids: Array, labels: Tensor, augment: Augment | None = None) -> Samples:
    """A training part of some items of one kind."""
    return Samples(
        query_items=items, reference_items=items, query_ids=ids, reference_ids=ids, labels=labels, augment=augment
    )


def searched_in_itself(items: Items, ids: Array, labels: Tensor) -> tuple[Test, Tensor]:
    """A test in which every item is searched among all others, and what each does not see: itself."""
    test = Test(
        query_items=items,
        reference_items=items,
        query_ids=ids,
        reference_ids=ids,
        query_labels=labels,
        reference_labels=labels,
    )
    return test, torch.arange(len(ids))[:, None]


def judged(
    query_items: Items, reference_items: Items, asked: Array, answers: Array, references: Array
) -> tuple[Test, Tensor | None]:
    """A test by judgements: query item `asked[i]` is answered by the reference `answers[i]`, a place in `references`.

    Returns:
        The test, and the answers of each query where some query has several: int64 [q, p], padded with -1.
    """
    queries, rows = np.unique(asked, return_inverse=True)
    order = np.argsort(rows, kind="stable")
    firsts = np.searchsorted(rows[order], np.arange(len(queries)))
    column = np.arange(len(rows)) - firsts[rows[order]]
    lists = np.full((len(queries), int(column.max(initial=0)) + 1), -1)
    lists[rows[order], column] = answers[order]
    test = Test(
        query_items=query_items,
        reference_items=reference_items,
        query_ids=queries,
        reference_ids=references,
        query_labels=torch.from_numpy(lists[:, 0]),
        reference_labels=torch.arange(len(references)),
    )
    return test, torch.from_numpy(lists) if lists.shape[1] > 1 else None


def _on(device: torch.device, x: Any) -> Any:
    return x.to(device, non_blocking=True) if isinstance(x, Tensor) else x
