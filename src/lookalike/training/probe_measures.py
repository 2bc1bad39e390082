"""Compare an embedded sample with itself: nearest positives and negatives, hard batches, likely false negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from lookalike.batches import compose_batches, lists_width
from lookalike.negatives import Filters, hard_negatives
from lookalike.negatives.hardness import hardest_similarity
from lookalike.samplers.pairing import make_pairing
from lookalike.search.cosine import cosine_topk
from lookalike.utils.lists import lists_among

if TYPE_CHECKING:
    from torch import Tensor

    from lookalike.batches import Batches
    from lookalike.samplers.pairing import Pairs
    from lookalike.training.probe import Probe
    from lookalike.training.settings import Settings

IDENTICAL = 0.9999  # cosine from which two samples count as the same
NEAR = 0.95  # of the positive's cosine, from which a negative may be one as well


class Nearest(NamedTuple):
    """The nearest positive and the nearest negative of each row, by exact cosine."""

    positive: Tensor  # float32 [n], the cosine
    negative: Tensor  # float32 [n], the cosine; minus infinity where there is none
    row: Tensor  # int64 [n], which row is the negative; -1 where there is none


def find_nearest(probe: Probe) -> Nearest:
    """Find the nearest positive and the nearest negative of each row in the sample."""
    labels = probe.classes
    found = cosine_topk(
        probe.query, probe.reference, 1, query_labels=labels, reference_labels=labels, exclude=probe.exclude
    )
    if probe.paired:
        positive = (probe.query * probe.reference).sum(1)
    else:
        positive = torch.empty(len(probe))
        order = labels.argsort(stable=True)
        _, counts = torch.unique_consecutive(labels[order], return_counts=True)
        for members in torch.split(order, counts.tolist()):
            x = probe.query[members]
            positive[members] = (x @ x.T).fill_diagonal_(-torch.inf).amax(1)
    return Nearest(positive, found.scores[:, 0], found.indices[:, 0])


@dataclass(frozen=True)
class BatchHardness:
    """How hard batches are."""

    cosine: float
    """Mean cosine of the hardest negative in the batch."""
    finds_hardest: float
    """Fraction of anchors whose hardest negative of all is in their batch."""


def measure_batches(
    probe: Probe, nearest: Nearest, settings: Settings, codes: tuple[Tensor, Tensor] | None
) -> BatchHardness:
    """Compose the batches of one epoch of the sample, from codes or at random, and measure how hard they are."""
    n, labels = len(probe), probe.labels
    pairing = make_pairing(labels, n if probe.paired else None)
    pairs = pairing.draw(None if codes is None or probe.paired else codes[0], np.random.default_rng(settings.seed))
    lists = torch.full((len(pairs.query), 0), -1)
    if codes is not None:
        near = hard_negatives(
            codes[0],
            probe.classes,
            lists_width(settings.method),
            reference=codes[1] if probe.paired else None,
            filters=Filters(exclude=probe.exclude),
        )
        lists = pairing.neighbours(near.indices, pairs)
    batches = compose_batches(
        lists,
        settings.pairs_per_batch,
        labels=None if labels is None else labels[torch.from_numpy(pairs.query).long()],
        hardness=settings.hardness,
        neighbourhood=settings.neighbourhood,
        method=settings.method,
        seed=settings.seed,
        smallest=2,
    )
    return _measured(probe, nearest, pairs, batches)


def _measured(probe: Probe, nearest: Nearest, pairs: Pairs, batches: Batches) -> BatchHardness:
    queries, references = (torch.from_numpy(side).long() for side in pairs)
    total, found, anchors = 0.0, 0, 0
    for batch in batches:
        query, reference = queries[batch], references[batch]
        exclude = None if probe.exclude is None else lists_among(probe.exclude, query, reference)
        total += len(batch) * float(hardest_similarity(probe.query[query], probe.reference[reference], exclude))
        found += int(torch.isin(nearest.row[query], torch.cat([query, reference])).sum())
        anchors += len(batch)
    return BatchHardness(total / anchors, found / anchors)


@dataclass(frozen=True)
class FalseNegatives:
    """How many rows have a negative that may be a positive."""

    near: float
    """Fraction whose nearest negative has more than 0.95 of the cosine of the positive."""
    nearer: float
    """Fraction whose nearest negative is nearer than the positive."""
    identical: float
    """Fraction with a duplicate under another label: a cosine above 0.9999."""


def count_false_negatives(probe: Probe, nearest: Nearest) -> FalseNegatives:
    """Count rows whose nearest negative is likely a positive."""
    identical = nearest.negative > IDENTICAL
    if probe.paired:  # the same query twice, or the same reference
        own = {"query_labels": probe.classes, "reference_labels": probe.classes, "exclude": probe.exclude}
        for x in (probe.query, probe.reference):
            identical |= cosine_topk(x, x, 1, **own).scores[:, 0] > IDENTICAL
    return FalseNegatives(
        near=_share(nearest.negative > NEAR * nearest.positive),
        nearer=_share(nearest.negative > nearest.positive),
        identical=_share(identical),
    )


def _share(mask: Tensor) -> float:
    return float(mask.double().mean())
