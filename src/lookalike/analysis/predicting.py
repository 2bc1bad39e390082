"""Predict from a few rows what fraction of the true neighbours codes of each length find.

The fraction of the true top k of n samples that codes find (overlap@k) equals, up to a bias of order 1 / k', that of
the true top k' of m rows drawn from them, where k' = k (m - 1) / (n - 1). Halving the rows doubles the bias, which is
how it is removed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lookalike.analysis.measures import overlap
from lookalike.hashing import ScalarCodes
from lookalike.search import hamming_topk, load_kernel, scalar_topk
from lookalike.search.cosine import cosine_topk

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ANCHORS = 2048  # more would hardly narrow the error
ERRORS = 4  # standard errors on either side: anchors share neighbours, so one is too narrow
LOWEST_RANK = 2.0  # k' below which overlap cannot be measured and is extrapolated from larger ranks
RANKS_ABOVE = (2.0, 4.0, 8.0)
MUCH = 1 << 25  # pairs of codes that are worth loading the compiled kernel

Sides = tuple[Tensor, Tensor] | tuple[ScalarCodes, ScalarCodes]  # codes of queries and of references


class Sample(NamedTuple):
    """Rows that a prediction comes from; row i of every field belongs to the same sample or pair."""

    queries: Tensor  # float [m, dim]
    references: Tensor  # float [m, dim]
    labels: Tensor  # int64 [m]
    codes: Sequence[Sides]  # of every length

    def overlaps(self, anchors: Tensor, rows: Tensor, ranks: list[float]) -> Tensor:
        """Measure the overlap of each anchor's nearest among some rows, float64 [ranks, lengths, anchors]."""
        width = math.floor(max(ranks)) + 1
        labels: dict[str, Any] = {"query_labels": self.labels[anchors], "reference_labels": self.labels[rows]}
        true = cosine_topk(self.queries[anchors], self.references[rows], width, **labels).indices
        # On a GPU, the CUDA kernels would be compiled for every length, to save milliseconds.
        how = {**labels, "backend": "matmul" if true.is_cuda else "auto"}
        by_length = []
        for query, reference in self.codes:
            if isinstance(query, ScalarCodes) and isinstance(reference, ScalarCodes):
                found = scalar_topk(query[anchors], reference[rows], width, **how).indices
            else:
                found = hamming_topk(query[anchors], reference[rows], width, **how).indices
            by_length.append(torch.stack([_overlap_at(found, true, rank) for rank in ranks]))
        return torch.stack(by_length, dim=1)


def predict_overlaps(sample: Sample, n: int, k: int) -> tuple[list[float], list[float]]:
    """Predict the overlap at every length among n samples, and its error."""
    m = len(sample.queries)
    device = sample.queries.device
    order = torch.randperm(m, generator=torch.Generator().manual_seed(0)).to(device)
    anchors = order[:MAX_ANCHORS]
    share = (m - 1) / max(1, n - 1)
    rank = k * share
    ranks = [rank] if rank >= LOWEST_RANK else [each for each in RANKS_ABOVE if each < m / 2]
    if (
        device.type == "cpu" and 2 * len(anchors) * m * len(sample.codes) > MUCH
    ):  # each search is small, and together they are worth it
        load_kernel()
    measured = sample.overlaps(anchors, torch.arange(m, device=device), ranks)
    if share < 1:
        half_ranks = [each / 2 for each in ranks]
        halves = [sample.overlaps(anchors, rows, half_ranks) for rows in (order[: m // 2], order[m // 2 :])]
        # The bias is c / k' - c / k, and c / k' is what half the rows add to it.
        measured = measured + (1 - share) * (measured - (halves[0] + halves[1]) / 2)
    overlaps = torch.einsum("r,rla->la", _weights(ranks, rank).to(device), measured)
    mean = overlaps.mean(1)
    error = ERRORS * overlaps.std(1) / math.sqrt(len(anchors))
    if len(ranks) > 1:
        error = error + (mean - measured[0].mean(1)).abs()
    return mean.clamp(0, 1).tolist(), error.tolist()


def _overlap_at(found: Tensor, true: Tensor, rank: float) -> Tensor:
    """Return the overlap of the first `rank` entries, [anchors], interpolated between whole ranks."""
    whole = math.floor(rank)
    below = overlap(found[:, :whole], true[:, :whole])
    if rank == whole:
        return below
    return torch.lerp(below, overlap(found[:, : whole + 1], true[:, : whole + 1]), rank - whole)


def _weights(ranks: list[float], rank: float) -> Tensor:
    """Return weights that extrapolate values at some ranks to another rank, linearly in the logarithm of the rank."""
    if len(ranks) == 1:
        return torch.ones(1, dtype=torch.float64)
    line = np.stack([np.ones(len(ranks)), np.log(np.array(ranks) / rank)], axis=1)
    return torch.from_numpy(np.linalg.pinv(line)[0].copy())
