"""What training asks of a data set: two views of every sample, labels, and a test of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from lookalike.data import DataSource


class TrainingPart(Protocol):
    """The samples, or pairs, that batches are made of; ids are 0 to n - 1.

    Labelled data: `pairs` is None and a batch holds an anchor and a positive of its label in turn; the anchor is the
    query, the positive the reference. Paired data: an id stands for query i and reference i.
    """

    @property
    def labels(self) -> Tensor | None:
        """int64, one per sample, or per pair; None: every pair is its own label."""

    @property
    def pairs(self) -> int | None:
        """How many, for paired data."""

    @property
    def prefetch(self) -> bool:
        """Whether reading takes long enough to be done ahead of the step, where a GPU computes the step."""

    def queries(self, ids: Tensor, seed: int) -> Any:
        """What the model is given for these samples as queries, augmented; the seed decides how."""

    def references(self, ids: Tensor, seed: int) -> Any:
        """Likewise, as references."""

    def plain(self, tower: str, ids: Tensor) -> Any:
        """What the model is given for these samples without augmentation: tower "query" or "reference"."""

    def to(self, device: torch.device) -> TrainingPart:
        """The same, with what is small enough kept on the device."""


class TestPart(Protocol):
    """Queries, references and which belong together."""

    @property
    def query_labels(self) -> Tensor:
        """int64 [q]"""

    @property
    def reference_labels(self) -> Tensor:
        """int64 [r]"""

    @property
    def in_itself(self) -> bool:
        """Whether queries and references are the same samples in the same order, and need to be embedded only once."""

    def queries(self, ids: Tensor) -> Any:
        """What the model is given."""

    def references(self, ids: Tensor) -> Any:
        """What the model is given."""

    def to(self, device: torch.device) -> TestPart:
        """The same, with what is small enough kept on the device."""


@dataclass(frozen=True, kw_only=True)
class RetrievalData:
    """A data set to train and to test on, their classes disjoint."""

    name: str
    description: str
    checksum: str  # of the data: runs can only be compared where it agrees
    train: TrainingPart
    test: TestPart
    counts: dict[str, int] = field(default_factory=dict)  # under the names of the official ones
    train_exclude: tuple[Tensor, Tensor] | None = None
    """Samples or pairs that are no negatives of each, beyond its label: offsets [n + 1] and ids, as CSR."""
    test_exclude: Tensor | None = None
    """int64 [q, e]: references that a query of the test does not see, -1 for none."""
    test_positives: Tensor | None = None
    """int64 [q, p]: references that answer a query of the test, beyond those of its label, -1 for none."""
    source: DataSource | None = None
    """Name, folder and options that `DataSource.load` read the data with; None for data made in Python."""
