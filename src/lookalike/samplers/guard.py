"""Find likely false negatives in bits alone: classes whose samples are as near to each other as to their positives."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lookalike.negatives.spaces import space_of

if TYPE_CHECKING:
    from lookalike.negatives.spaces import Space
    from lookalike.samplers.composition import Mined
    from lookalike.samplers.memory import Remembered
    from lookalike.samplers.pairing import Pairing
    from lookalike.utils.arrays import Array

logger = logging.getLogger("lookalike")

AGREEMENT = 0.5  # fraction of both classes' samples that must suspect the other class: more than half, so both agree
ENOUGH = 1024  # samples of a very large class that are compared with each other


class Guard:
    """Keeps classes that are likely one apart for an epoch.

    Args:
        limit: A neighbour is suspected of being a positive if its cosine exceeds this fraction of the cosine of the
            nearest positive.
    """

    def __init__(self, limit: float) -> None:
        if not 0 < limit <= 2:
            raise ValueError(f"guard is a fraction of the positive's cosine, above 0 and at most 2, got {limit}.")
        self.limit = limit
        self._warned = False

    def merge(
        self, mined: Mined, known: Remembered | None, pairing: Pairing, num_batches: int, pairs_per_batch: int
    ) -> Array:
        """Return labels in which classes that are likely the same are one, as far as batches can still be filled.

        Args:
            mined: Neighbours and their distances, of all samples.
            known: Their codes.
            pairing: The data set.
            num_batches: Batches per epoch.
            pairs_per_batch: Their size.
        """
        own = pairing.classes().numpy().astype(np.int32)
        if known is None:
            return own
        ids, query, space = known.ids, known.query.cpu(), space_of(known.scheme)
        if known.reference is None:
            positives = positive_distances(space, query, query, pairing.classes()[ids])
        else:
            positives = positive_distances(space, query, known.reference.cpu(), None)
        assert mined.values is not None  # noqa: S101 - mined for this
        suspicious = np.zeros(tuple(mined.indices.shape), bool)
        distances, width = mined.values[ids], query.shape[1]
        suspicious[ids.numpy()] = suspected(space, distances, positives, width, self.limit).numpy()
        pairs = pairing.counts()
        merged = merged_labels(
            own, mined.indices.numpy(), suspicious, most=num_batches, fewest=pairs_per_batch, pairs=pairs
        )
        logger.info("the guard merged %d of %d labels as likely the same.", merged.num_merged, int((pairs > 0).sum()))
        if merged.num_refused and not self._warned:
            self._warned = True
            logger.warning(
                "guard: %d pairs of labels are likely the same but may still meet in a batch: %d batches of %d pairs "
                "leave no room to keep all of them apart. Smaller batches do, and a higher guard suspects fewer.",
                merged.num_refused,
                num_batches,
                pairs_per_batch,
            )
        return merged.labels


def positive_distances(space: Space, query_codes: Tensor, positive_codes: Tensor, labels: Tensor | None) -> Tensor:
    """Return the distance of every sample to its nearest positive, int64 [n]; -1 where it has none.

    Args:
        space: The kind of code.
        query_codes: uint8 [n, bytes].
        positive_codes: The references of paired data, or the same codes again.
        labels: int64 [n] for labelled data; None where the positive of query i is reference i.
    """
    if labels is None:
        return space.compare(query_codes, positive_codes).long()
    nearest = torch.full((len(labels),), -1)
    order = labels.argsort(stable=True)
    _, counts = torch.unique_consecutive(labels[order], return_counts=True)
    for members in torch.split(order, counts.tolist()):
        if len(members) < 2:
            continue
        part = query_codes[members[:ENOUGH]]
        distances = space.compare(part[:, None], part[None]).long()
        distances.fill_diagonal_(torch.iinfo(torch.int64).max)
        nearest[members[:ENOUGH]] = distances.amin(1)
        nearest[members[ENOUGH:]] = distances.amin(1).median()
    return nearest


def suspected(space: Space, distances: Tensor, positives: Tensor, width: int, guard: float) -> Tensor:
    """Return which neighbours are likely positives, bool [n, k]: cosines above `guard` times that of the positive.

    Args:
        space: The kind of code.
        distances: Distances of the neighbours, [n, k], -1 for none.
        positives: Distance of the nearest positive, [n], -1 for none.
        width: Length of the codes in bytes.
        guard: Fraction of the positive's cosine.
    """
    cosines, limits = space.scores(distances, width), guard * space.scores(positives, width)
    return (cosines > limits[:, None]) & (distances >= 0) & (positives >= 0)[:, None]


class Merged(NamedTuple):
    """Labels in which classes that are likely the same are one."""

    labels: Array  # int32 [n]
    num_merged: int  # labels that became part of another
    num_refused: int  # pairs of labels that had to stay apart, though they suspect each other


def merged_labels(
    labels: Array, neighbours: Array, suspicious: Array, *, most: int, fewest: int = 0, pairs: Array | None = None
) -> Merged:
    """Merge classes that suspect each other, those that agree most first, as far as batches can still be filled.

    A batch holds a label once, so merged classes never meet. Cutting only the edge between them would not be enough:
    common neighbours would bring them together again.

    Args:
        labels: int32 [n].
        neighbours: Each sample's neighbours, [n, k].
        suspicious: Which of them are likely positives, bool [n, k].
        most: The most pairs that a merged class may have: each needs a batch of its own.
        fewest: How many labels with pairs must be left, because a batch holds as many.
        pairs: Pairs of each label, int64 [labels]; by default one for each of its samples.
    """
    anchors, places = np.nonzero(suspicious)
    first, second = labels[anchors], labels[neighbours[anchors, places]]
    suspicions, times = np.unique(
        np.stack([first, second], axis=1)[_first_of_each(anchors, second)], axis=0, return_counts=True
    )
    sizes = np.bincount(labels)
    votes: dict[tuple[int, int], int] = {}
    for (a, b), count in zip(suspicions.tolist(), times.tolist(), strict=True):
        key = (min(a, b), max(a, b))
        votes[key] = votes.get(key, 0) + count
    agreement = {(a, b): count / (sizes[a] + sizes[b]) for (a, b), count in votes.items()}
    group, total = np.arange(len(sizes)), (sizes if pairs is None else pairs).copy()  # of each group
    spare, refused = int((total > 0).sum()) - fewest, 0

    def root(label: int) -> int:
        while group[label] != label:
            label = int(group[label])
        return label

    for (a, b), share in sorted(agreement.items(), key=lambda item: (-item[1], item[0])):
        low, high = sorted((root(a), root(b)))
        if low == high or share <= AGREEMENT:
            continue
        costs = bool(total[low] and total[high])
        if total[low] + total[high] > most or (costs and spare <= 0):
            refused += 1
            continue
        group[high] = low
        total[low] += total[high]
        spare -= costs
    roots = np.array([root(label) for label in range(len(sizes))])
    return Merged(roots[labels].astype(np.int32), int((roots != np.arange(len(sizes))).sum()), refused)


def _first_of_each(anchors: Array, labels: Array) -> Array:
    """Return the positions of the first suspicion of each anchor against each class."""
    _, positions = np.unique(np.stack([anchors, labels], axis=1), axis=0, return_index=True)
    return positions
