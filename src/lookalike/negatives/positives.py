"""Find the hardest positive of each sample: the least similar one of its label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lookalike.negatives.same import merge_both
from lookalike.negatives.spaces import space_of_codes
from lookalike.utils.tensors import both_labels

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.negatives.spaces import Space

SMALL_CLASS = 32  # classes up to this size are compared all at once, larger ones searched one by one
GATHER_BYTES = 1 << 21  # larger gathers leave the cache and take longer
PAIRS = 1 << 22  # compared at a time where no search finds the farthest


def hardest_positives(
    codes: Any, labels: Any, *, reference: Any = None, reference_labels: Any = None, same: Any = None
) -> Tensor:
    """Find the farthest sample of the same label, ties by the smaller id; -1 where there is none.

    Args:
        codes: Packed codes of the queries, uint8 `[n, bits / 8]`, or `ScalarCodes`.
        labels: Integers `[n]`.
        reference: Codes to choose from, for two towers; by default the queries themselves, each without itself.
        reference_labels: Integers, one per reference; by default `labels`.
        same: Pairs of samples that a person marked as the same, as in `hard_negatives`: they are positives too.

    Returns:
        Indices into the reference, int64 `[n]`.

    Examples:
        >>> import torch
        >>> codes = torch.tensor([[0b0000], [0b0001], [0b0111], [0b1111]], dtype=torch.uint8)
        >>> hardest_positives(codes, [5, 5, 5, 7]).tolist()
        [2, 2, 0, -1]
    """
    space, query, reference = space_of_codes(codes, reference)
    labels, reference_labels = merge_both(labels, reference_labels, same, len(query), len(reference))
    labels, reference_labels = both_labels(query, labels, reference, reference_labels)
    return least_similar_positives(space, query, labels, reference, reference_labels)


def least_similar_positives(
    space: Space,
    query: Tensor,
    labels: Tensor,
    reference: Tensor,
    reference_labels: Tensor,
    itself: Tensor | None = None,
) -> Tensor:
    """Find hardest positives in any space.

    Args:
        space: The kind of row.
        query: Rows [q, width].
        labels: int64 [q].
        reference: Rows to choose from, [n, width].
        reference_labels: int64 [n].
        itself: The reference that each query is and that cannot be its own positive, int64 [q]; if `reference` is
            `query`, each row is itself.
    """
    if itself is None and reference is query:
        itself = torch.arange(len(query), device=query.device)
    by_label = reference_labels.argsort(stable=True)  # ids ascend within a label
    sorted_labels = reference_labels[by_label]
    starts = torch.searchsorted(sorted_labels, labels)
    sizes = torch.searchsorted(sorted_labels, labels, right=True) - starts
    hardest = torch.full((len(query),), -1, dtype=torch.int64, device=query.device)
    size = 1
    while size <= SMALL_CLASS:
        rows = ((sizes <= size) & (sizes > size // 2)).nonzero().flatten()
        for part in torch.split(rows, max(1, GATHER_BYTES // (size * query.shape[1] * query.element_size()))):
            positions = starts[part, None] + torch.arange(size, device=query.device)  # [m, size]
            candidates = by_label[positions.clamp(max=len(by_label) - 1)]
            absent = positions >= (starts + sizes)[part, None]
            if itself is not None:
                absent |= candidates == itself[part, None]
            scores = space.scores(space.compare(query[part, None], reference[candidates]), query.shape[1])
            scores = scores.masked_fill(absent, torch.inf)
            lowest = scores.argmin(1, keepdim=True)  # the first of equals
            best = candidates.gather(1, lowest).masked_fill(absent.gather(1, lowest), -1)
            hardest[part] = best.flatten()
        size *= 2
    for label in torch.unique(labels[sizes > SMALL_CLASS]):
        rows = (labels == label).nonzero().flatten()
        members = (reference_labels == label).nonzero().flatten()
        if space.opposite is None:
            for part in torch.split(rows, max(1, PAIRS // len(members))):
                distances = space.compare(query[part, None], reference[members])
                if itself is not None:
                    distances.masked_fill_(members == itself[part, None], -1)  # nearer than any other: there are others
                hardest[part] = members[distances.argmax(1)]
            continue
        exclude = None
        if itself is not None:
            exclude = (torch.arange(len(rows) + 1), torch.searchsorted(members, itself[rows]))
        _, nearest = space.topk(query[rows], space.opposite(reference[members]), 1, exclude=exclude)
        hardest[rows] = members[nearest[:, 0]]
    return hardest
