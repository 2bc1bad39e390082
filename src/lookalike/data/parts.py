"""Training and test parts made of items that can be read by number, such as images and texts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from lookalike.utils.lists import Lists, each_itself

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.utils.arrays import Array

CPU = torch.device("cpu")
SEED = 20250531  # draws the references that a smaller test adds


class Items(Protocol):
    """Anything that can be read by number."""

    def __len__(self) -> int:
        """Return the number of items."""

    def read(self, ids: Array) -> Any:
        """Return a tensor with a row per item, or a list of texts."""


class Augment(Protocol):
    """A random change of images that depends on the seed, the id and the tower alone."""

    def __call__(self, images: Tensor, ids: Tensor, seed: int, tower: str) -> Tensor:
        """Change images, uint8 `[n, 3, height, width]`."""


@dataclass(frozen=True)
class Texts:
    """Texts in memory, as `Items`. The encoder tokenises them."""

    texts: Sequence[str]

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.texts)

    def read(self, ids: Array) -> list[str]:
        """Return texts by number."""
        return [self.texts[i] for i in ids.tolist()]


@dataclass(frozen=True)
class Selection:
    """Some of the items, in a given order."""

    items: Items
    ids: Array

    def __len__(self) -> int:
        """Return the number of selected items."""
        return len(self.ids)

    def read(self, ids: Tensor, device: torch.device) -> Any:
        """Return items by their position in the selection; tensors go to the device."""
        x = self.items.read(self.ids[ids.cpu().numpy()])
        return x.to(device, non_blocking=True) if isinstance(x, Tensor) else x


@dataclass(frozen=True, kw_only=True)
class TrainingItems:
    """A `TrainingPart` of items; in labelled data, queries and references are the same selection."""

    query: Selection
    reference: Selection
    labels: Tensor | None
    pairs: int | None = None
    negative_items: Array | None = None  # [n, m] explicit negatives, as numbers among the items of references; or -1
    augment: Augment | None = None
    device: torch.device = CPU
    prefetch: ClassVar[bool] = True  # decoding and tokenising take time
    draws_by_batch: ClassVar[bool] = False

    def __len__(self) -> int:
        """Return the number of samples or pairs."""
        return len(self.query)

    def queries(self, ids: Tensor, seed: int) -> Any:
        """Return queries; images are augmented."""
        return self._augmented("query", ids, seed)

    def references(self, ids: Tensor, seed: int) -> Any:
        """Return references; images are augmented."""
        return self._augmented("reference", ids, seed)

    def plain(self, tower: str, ids: Tensor) -> Any:
        """Return queries or references without augmentation."""
        return (self.query if tower == "query" else self.reference).read(ids, self.device)

    @property
    def num_negatives(self) -> int:
        """Number of explicit negatives of every query."""
        return 0 if self.negative_items is None else int(self.negative_items.shape[1])

    def negatives(self, ids: Tensor, seed: int) -> Any:
        """Return explicit negatives; images are augmented. A query's reference fills the place of one that it lacks."""
        references, negatives = (numbers.numpy() for numbers in self.item_numbers(ids))
        chosen = np.where(negatives < 0, references[:, None], negatives).ravel()
        plain = Selection(self.reference.items, chosen).read(torch.arange(len(chosen)), self.device)
        return plain if self.augment is None else self.augment(plain, torch.from_numpy(chosen), seed, "reference")

    def item_numbers(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers of references and explicit negatives among the items of references."""
        rows = ids.cpu().numpy()
        negatives = np.empty((len(rows), 0), np.int64) if self.negative_items is None else self.negative_items[rows]
        return torch.from_numpy(self.reference.ids[rows]), torch.from_numpy(negatives)

    def to(self, device: torch.device) -> TrainingItems:
        """Return the same part; images move to the device before they are augmented."""
        return replace(self, device=device)

    def _augmented(self, tower: str, ids: Tensor, seed: int) -> Any:
        plain = self.plain(tower, ids)
        return plain if self.augment is None else self.augment(plain, ids, seed, tower)


@dataclass(frozen=True, kw_only=True)
class TestItems:
    """A `TestPart` of items."""

    query: Selection
    reference: Selection
    query_labels: Tensor
    reference_labels: Tensor
    device: torch.device = CPU

    __test__ = False  # or pytest would collect a class of this name

    @property
    def in_itself(self) -> bool:
        """Whether queries and references are the same items in the same order."""
        return self.query.items is self.reference.items and np.array_equal(self.query.ids, self.reference.ids)

    def queries(self, ids: Tensor) -> Any:
        """Return queries."""
        return self.query.read(ids, self.device)

    def references(self, ids: Tensor) -> Any:
        """Return references."""
        return self.reference.read(ids, self.device)

    def to(self, device: torch.device) -> TestItems:
        """Return the same part; its items move to the device as they are read."""
        return replace(self, device=device)


def labelled(items: Items, ids: Array, labels: Tensor, augment: Augment | None = None) -> TrainingItems:
    """Make a training part of labelled items."""
    samples = Selection(items, ids)
    return TrainingItems(query=samples, reference=samples, labels=labels, augment=augment)


def searched_in_itself(items: Items, ids: Array, labels: Tensor) -> tuple[TestItems, Lists]:
    """Make a test that searches every item among all others; return it with what each query excludes, itself."""
    samples = Selection(items, ids)
    test = TestItems(query=samples, reference=samples, query_labels=labels, reference_labels=labels)
    return test, each_itself(len(ids))


def searched_among(number: int, answers: Array, distractors: int | None) -> Array:
    """Return which of a number of references to search, ascending: the answers and some others, always the same ones.

    Args:
        number: The number of references.
        answers: Those that answer a query.
        distractors: How many others, of which some may be answers; None for all references.
    """
    if distractors is None or distractors >= number:
        return np.arange(number)
    drawn = np.random.default_rng(SEED).choice(number, distractors, replace=False)
    return np.union1d(answers, drawn)


def judged(query_items: Items, reference: Selection, asked: Array, answers: Array) -> tuple[TestItems, Lists | None]:
    """Make a test from judgements.

    Args:
        query_items: The items that `asked` numbers.
        reference: The references to search.
        asked: The query item of each judgement, int64.
        answers: The position in `reference` that answers it, int64.

    Returns:
        The test, and the answers of each query if some query has several.
    """
    queries, rows = np.unique(asked, return_inverse=True)
    order = np.argsort(rows, kind="stable")
    offsets, ids = np.searchsorted(rows[order], np.arange(len(queries) + 1)), answers[order].astype(np.int64)
    test = TestItems(
        query=Selection(query_items, queries),
        reference=reference,
        query_labels=torch.from_numpy(ids[offsets[:-1]]),
        reference_labels=torch.arange(len(reference)),
    )
    has_several = len(ids) > len(queries)
    return test, (torch.from_numpy(offsets), torch.from_numpy(ids)) if has_several else None
