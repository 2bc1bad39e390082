"""Make samples of a training part that are the same count as one label."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from lookalike.data.validation import TrainingSubset
from lookalike.negatives.same import merge_labels

if TYPE_CHECKING:
    from lookalike.data.retrieval import RetrievalData, TrainingPart
    from lookalike.utils.arrays import Array


def num_samples(part: TrainingPart) -> int:
    """Return the number of samples of a training part or, in paired data, of pairs."""
    return part.pairs if part.pairs is not None else 0 if part.labels is None else len(part.labels)


def with_same(data: RetrievalData, same: Array) -> RetrievalData:
    """Return data whose training part has one label for samples, or pairs, that are the same.

    Hold samples out for validation after this, so that the two go to the same side. The test part stays as it is.

    Args:
        data: The data set.
        same: Ids of the training part, int64 `[m, 2]`, as `read_same` returns them.
    """
    if not len(same):
        return data
    part, n = data.train, num_samples(data.train)
    labels = None if part.labels is None else part.labels.cpu()
    merged = torch.from_numpy(merge_labels(labels, same, n))
    return replace(data, train=TrainingSubset(part, torch.arange(n), relabelled=merged))
