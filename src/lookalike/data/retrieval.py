"""What training needs from a data set: two views of every sample, labels, and a test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from lookalike.data import DataSource
    from lookalike.utils.lists import Lists


class TrainingPart(Protocol):
    """The samples, or pairs, that batches are made of, with ids 0 to n - 1.

    In labelled data, `pairs` is None and a batch alternates anchors with positives of the same label; the anchor is the
    query and the positive the reference. In paired data, id i stands for query i and reference i.
    """

    @property
    def labels(self) -> Tensor | None:
        """One label per sample or pair, int64; None if every pair has a label of its own."""

    @property
    def pairs(self) -> int | None:
        """Number of pairs in paired data."""

    @property
    def prefetch(self) -> bool:
        """Whether reading is slow enough to read batches ahead while a GPU computes."""

    @property
    def draws_by_batch(self) -> bool:
        """Whether augmentation depends on the place in a batch, not on the id alone, so that batches are read whole."""

    def queries(self, ids: Tensor, seed: int) -> Any:
        """Return the model's input for these samples as queries, augmented as the seed decides."""

    def references(self, ids: Tensor, seed: int) -> Any:
        """Return the model's input for these samples as references, augmented as the seed decides."""

    def plain(self, tower: str, ids: Tensor) -> Any:
        """Return the model's input for these samples without augmentation; `tower` is "query" or "reference"."""

    @property
    def num_negatives(self) -> int:
        """Number of explicit negatives of every query, m; 0 if the data bring none."""

    def negatives(self, ids: Tensor, seed: int) -> Any:
        """Return the model's input for the explicit negatives of these queries, m for each, one query after another."""

    def item_numbers(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return numbers of the references and explicit negatives, int64 `[n]` and `[n, m]`, equal for equal items.

        -1 marks a place without a negative; whatever `negatives` returns there, no query is compared with it.
        """

    def to(self, device: torch.device) -> TrainingPart:
        """Return the same part, with whatever is small enough on the device."""


class TestPart(Protocol):
    """Queries, references, and which of them belong together."""

    @property
    def query_labels(self) -> Tensor:
        """int64 `[q]`."""

    @property
    def reference_labels(self) -> Tensor:
        """int64 `[r]`."""

    @property
    def in_itself(self) -> bool:
        """Whether queries and references are the same samples in the same order, and are embedded only once."""

    def queries(self, ids: Tensor) -> Any:
        """Return the model's input for these queries."""

    def references(self, ids: Tensor) -> Any:
        """Return the model's input for these references."""

    def to(self, device: torch.device) -> TestPart:
        """Return the same part, with whatever is small enough on the device."""


@dataclass(frozen=True, kw_only=True)
class RetrievalData:
    """A data set to train and to test on, with disjoint classes."""

    name: str
    description: str
    checksum: str
    """Checksum of the data; only runs with the same checksum are comparable."""
    train: TrainingPart
    test: TestPart
    counts: dict[str, int] = field(default_factory=dict)
    """What was found, named like the official counts."""
    train_exclude: Lists | None = None
    """Ids that are not negatives of each sample or pair, besides those with its label: a CSR pair `(offsets, ids)`."""
    test_exclude: Lists | None = None
    """References to hide from each query of the test: a CSR pair `(offsets, ids)`."""
    test_positives: Lists | None = None
    """References that answer each query of the test, besides those with its label: a CSR pair `(offsets, ids)`."""
    test_gains: Tensor | None = None
    """How relevant each id of `test_positives` is, floats above 0; None if all are equally relevant."""
    validation: TestPart | None = None
    """What to choose the best epoch on, disjoint from both other parts; None to choose nothing."""
    validation_exclude: Lists | None = None
    """As `test_exclude`, for the validation part."""
    validation_positives: Lists | None = None
    """As `test_positives`, for the validation part."""
    validation_gains: Tensor | None = None
    """As `test_gains`, for the validation part."""
    source: DataSource | None = None
    """Name, root and options that `DataSource.load` read the data with; None for data made in Python."""
