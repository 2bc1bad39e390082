"""Hold samples of the training part out for validation, so that nothing has to be chosen on the test part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.data.fingerprints import checksum
from lookalike.utils.lists import Lists, each_itself, lists_among, row_numbers
from lookalike.utils.splitmix import STEP, splitmix64

if TYPE_CHECKING:
    from lookalike.data.retrieval import RetrievalData, TestPart, TrainingPart


@dataclass(frozen=True)
class TrainingSubset:
    """Some samples or pairs of a training part, numbered from 0, as a `TrainingPart`."""

    part: TrainingPart
    ids: Tensor
    hidden: Tensor | None = None
    """Pairs of the whole part whose references are no explicit negatives here."""
    relabelled: Tensor | None = None
    """Labels of these samples that replace those of the whole part, int64."""

    @property
    def labels(self) -> Tensor | None:
        """The labels that the samples have in the whole part, unless others replace them."""
        if self.relabelled is not None:
            return self.relabelled
        return None if self.part.labels is None else self.part.labels[self.ids]

    @property
    def pairs(self) -> int | None:
        """Number of pairs in paired data."""
        return None if self.part.pairs is None else len(self.ids)

    @property
    def prefetch(self) -> bool:
        """As for the whole part."""
        return self.part.prefetch

    @property
    def draws_by_batch(self) -> bool:
        """As for the whole part."""
        return getattr(self.part, "draws_by_batch", False)  # a user's own part may not define it

    def queries(self, ids: Tensor, seed: int) -> Any:
        """Return queries, augmented as in the whole part."""
        return self.part.queries(self.ids[ids], seed)

    def references(self, ids: Tensor, seed: int) -> Any:
        """Return references, augmented as in the whole part."""
        return self.part.references(self.ids[ids], seed)

    @property
    def num_negatives(self) -> int:
        """As for the whole part."""
        return getattr(self.part, "num_negatives", 0)  # a user's own part may not define it

    def negatives(self, ids: Tensor, seed: int) -> Any:
        """Return explicit negatives, as in the whole part."""
        return self.part.negatives(self.ids[ids], seed)

    def item_numbers(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the items of references and explicit negatives, as in the whole part; those hidden are missing."""
        references, negatives = self.part.item_numbers(self.ids[ids])
        if self.hidden is not None:
            theirs, _ = self.part.item_numbers(self.hidden)
            negatives = negatives.masked_fill(torch.isin(negatives, theirs), -1)
        return references, negatives

    def plain(self, tower: str, ids: Tensor) -> Any:
        """Return queries or references without augmentation."""
        return self.part.plain(tower, self.ids[ids])

    def to(self, device: torch.device) -> TrainingSubset:
        """Return the same subset of the part on the device."""
        return replace(self, part=self.part.to(device))


@dataclass(frozen=True, kw_only=True)
class HeldOutPart:
    """Samples or pairs of a training part, without augmentation, as a `TestPart`.

    Labelled samples are searched in themselves; queries of pairs are searched among the references of these pairs.
    """

    samples: TrainingPart
    labels: Tensor

    @property
    def query_labels(self) -> Tensor:
        """One label per query, int64."""
        return self.labels

    @property
    def reference_labels(self) -> Tensor:
        """One label per reference, int64: pairs that share a label answer each other's queries."""
        return self.labels

    @property
    def in_itself(self) -> bool:
        """Whether the data are labelled."""
        return self.samples.pairs is None

    def queries(self, ids: Tensor) -> Any:
        """Return queries."""
        return self.samples.plain("query", ids)

    def references(self, ids: Tensor) -> Any:
        """Return references."""
        return self.samples.plain("reference", ids)

    def to(self, device: torch.device) -> TestPart:
        """Return the same samples on the device."""
        return replace(self, samples=self.samples.to(device))


def hold_out(data: RetrievalData, share: float, *, pairs_per_batch: int = 2) -> RetrievalData:
    """Move a share of the training classes, or of the pairs, into a validation part.

    Which ones depends on the labels alone, so all runs on the same data hold out the same samples. Pairs that share a
    label stay together. References that are held out are no explicit negatives of the pairs that are left, either.

    Args:
        data: Data without a validation part.
        share: Fraction of the classes or, in paired data, of the labels to hold out; 0 changes nothing.
        pairs_per_batch: Pairs that what is left must be able to fill a batch with.

    Raises:
        ValueError: The data have a validation part already, or too little would be held out or left.
    """
    if share == 0:
        return data
    if data.validation is not None:
        raise ValueError(f"{data.name} has a validation part of its own: validation_share= must be 0.")
    part = data.train
    labels = torch.arange(part.pairs or 0) if part.labels is None else part.labels
    is_held = _is_held_out(labels, share)
    kept, held = (mask.nonzero().flatten() for mask in (~is_held, is_held))
    _check_enough(part, labels, kept, held, share, pairs_per_batch)
    lists = data.train_exclude
    hidden = None if lists is None else _without_positives(lists_among(lists, held, held), labels[held])
    return replace(
        data,
        train=TrainingSubset(part, kept, hidden=held),
        train_exclude=None if lists is None else lists_among(lists, kept, kept),
        validation=HeldOutPart(samples=TrainingSubset(part, held), labels=labels[held]),
        validation_exclude=_with_itself(hidden, len(held)) if part.pairs is None else hidden,
    )


def validated_on(data: RetrievalData, other: RetrievalData) -> RetrievalData:
    """Return data with the test part of the others as its validation part; their own training part is not used."""
    return replace(
        data,
        checksum=checksum(data.checksum, other.checksum),
        validation=other.test,
        validation_exclude=other.test_exclude,
        validation_positives=other.test_positives,
        validation_gains=other.test_gains,
    )


def _is_held_out(labels: Tensor, share: float) -> Tensor:
    """Return for each sample whether its label is among the share with the smallest hashes, bool [n]."""
    names, places = np.unique(labels.numpy(), return_inverse=True)
    with np.errstate(over="ignore"):  # wrapping around is intended
        hashes = splitmix64(STEP * (names.astype(np.uint64) + np.uint64(1)))
    is_held = np.zeros(len(names), bool)
    is_held[np.argsort(hashes, kind="stable")[: round(share * len(names))]] = True
    return torch.from_numpy(is_held[places])


def _check_enough(
    part: TrainingPart, labels: Tensor, kept: Tensor, held: Tensor, share: float, pairs_per_batch: int
) -> None:
    what, least = ("classes of at least two samples", 2) if part.pairs is None else ("pairs with different labels", 1)
    left, taken = (int((np.unique(labels[ids].numpy(), return_counts=True)[1] >= least).sum()) for ids in (kept, held))
    if taken < 2:
        raise ValueError(
            f"validation_share={share:g} holds out {taken} of {taken + left} {what}, but validation needs two: "
            "raise it."
        )
    if left < pairs_per_batch:
        raise ValueError(
            f"validation_share={share:g} leaves {left} of {taken + left} {what} to train on, which do not fill a batch "
            f"of {pairs_per_batch} pairs: lower it, or pairs_per_batch=."
        )


def _without_positives(lists: Lists, labels: Tensor) -> Lists:
    """Drop ids that have the label of their row: they should be found, not hidden."""
    rows, ids = row_numbers(lists), lists[1]
    differs = labels[rows] != labels[ids]
    return _lists_of(rows[differs], ids[differs], len(labels))


def _with_itself(lists: Lists | None, n: int) -> Lists:
    """Add to each row its own number."""
    own = each_itself(n)
    if lists is None:
        return own
    rows = torch.cat([row_numbers(lists), own[1]])
    order = rows.argsort(stable=True)
    return _lists_of(rows[order], torch.cat([lists[1], own[1]])[order], n)


def _lists_of(rows: Tensor, ids: Tensor, n: int) -> Lists:
    """Make lists from ids and the row of each, ascending."""
    return torch.cat([rows.new_zeros(1), torch.bincount(rows, minlength=n).cumsum(0)]), ids
