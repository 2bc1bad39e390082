"""InfoNCE over in-batch and explicit negatives, with a learned temperature and a mask for likely false negatives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from lookalike.utils import ranks
from lookalike.utils.checks import MASKS, TEMPERATURES, Range
from lookalike.utils.lists import checked_lists, lists_mask

if TYPE_CHECKING:
    from collections.abc import Sequence


class InfoNCE(nn.Module):
    """InfoNCE over in-batch cosine similarities: `reference[i]` is the positive of `query[i]`, the rest are negatives.

    Under `torch.distributed` the references of all ranks are negatives, and gradients flow back to them. The loss is
    scaled so that averaging gradients over ranks, as DistributedDataParallel does, gives those of the global batch.

    Args:
        temperature: Initial temperature, which similarities are divided by.
        learnable: Learn the temperature, in log space, between 0.01 and 1.
        label_smoothing: Fraction of the target that is spread over the whole batch.
        symmetric: Average with the loss from references to queries.
        hard_fraction: Fraction of each query's negatives to keep, the hardest: 0.5 is the paper's BatchHard.
        mask_above: Leave out likely false negatives: those whose similarity to the anchor is above this fraction of
            the similarity of the anchor's positive, such as 0.95; None keeps all. If the positive's similarity p is not
            above 0, the limit is `p - (1 - mask_above) * |p|`, which is as far below p. The batch's own similarities
            decide, so a model that does not know its task yet also leaves out true negatives that it should learn from.
            `masked` tells how many were left out.

    Raises:
        ValueError: An argument is out of range.

    Examples:
        >>> import torch
        >>> query, reference = torch.randn(8, 32), torch.randn(8, 32)
        >>> criterion = InfoNCE()
        >>> bool(criterion(query, query) < criterion(query, reference))
        True

        The first two pairs of this batch have the same reference, which is a negative of neither.

        >>> criterion = InfoNCE(mask_above=0.95)
        >>> query, reference = torch.eye(4), torch.eye(4)[[0, 0, 2, 3]] + 0.1
        >>> loss = criterion(query[[0, 0, 2, 3]], reference)
        >>> criterion.masked  # two of twelve in either direction
        0.16666666666666666
    """

    counts: Tensor

    def __init__(
        self,
        temperature: float = 0.07,
        *,
        learnable: bool = True,
        label_smoothing: float = 0.1,
        symmetric: bool = True,
        hard_fraction: float | None = None,
        mask_above: float | None = None,
    ) -> None:
        super().__init__()
        TEMPERATURES.check("temperature", temperature)
        Range(0, 1).check("label_smoothing", label_smoothing)
        if hard_fraction is not None:
            Range(0, 1, with_low=False, with_high=True).check("hard_fraction", hard_fraction)
        if mask_above is not None:
            MASKS.check("mask_above", mask_above)
        self.label_smoothing, self.symmetric, self.hard_fraction = label_smoothing, symmetric, hard_fraction
        self.mask_above = mask_above
        # Masked negatives and all negatives, on the device, and in the state so that a resumed run reports the same.
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64), persistent=mask_above is not None)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)), requires_grad=learnable)

    @property
    def temperature(self) -> float:
        """The current temperature."""
        return math.exp(float(self.log_temperature.detach()))

    @property
    def masked(self) -> float | None:
        """Fraction of the negatives that `mask_above` left out since the last `reset_masked`, on this rank.

        None if `mask_above` is None or there were no negatives. Reading it waits for the device; counting does not.
        """
        if self.mask_above is None:
            return None
        masked, negatives = self.counts.tolist()
        return masked / negatives if negatives else None

    def reset_masked(self) -> None:
        """Restart the count of what `mask_above` leaves out."""
        self.counts.zero_()

    def forward(
        self,
        query: Tensor,
        reference: Tensor,
        exclude: tuple[Any, Any] | None = None,
        negatives: Tensor | None = None,
        lengths: Sequence[int] | None = None,
    ) -> Tensor:
        """Return the mean loss of a batch; under `torch.distributed`, the mean over all ranks is that of the batch.

        Args:
            query: Embeddings, floats `[n, dim]`.
            reference: Embeddings of their positives, floats `[n, dim]`.
            exclude: Candidates that are not negatives of a query, as a CSR pair `(offsets, positions)`: query i
                excludes the candidates at `positions[offsets[i]:offsets[i + 1]]`. Candidates are the references of the
                batch, under `torch.distributed` of all ranks' batches one after another, and then the explicit
                negatives in the same order: with N references and m negatives per query, position `N + m * i + k` is
                the k-th negative of the query whose reference is at position i. A query's own reference stays its
                positive. Lists on the CPU are checked without waiting for the GPU.
            negatives: Embeddings of explicit negatives, floats `[n, m, dim]`, with the same m on every rank. Every
                query is compared with those of all queries, as in sentence-transformers'
                MultipleNegativesRankingLoss; the direction from references to queries has none.
            lengths: Number of queries on each rank, if it is known; otherwise the ranks exchange it, which waits for
                the device. A rank may have none, if another one has some.

        Raises:
            TypeError: `exclude` is not a pair of integer arrays.
            ValueError: The shapes of `query`, `reference` and `negatives` do not fit together, `exclude` does not fit
                them, or ranks differ in their number of negatives per query.

        Examples:
            >>> query, reference, negatives = torch.randn(8, 32), torch.randn(8, 32), torch.randn(8, 3, 32)
            >>> criterion = InfoNCE()
            >>> bool(criterion(query, reference, negatives=negatives) > criterion(query, reference))
            True
        """
        _check_shapes(query, reference, negatives)
        per_query = 0 if negatives is None else negatives.shape[1]
        lengths = _exchange_lengths(query, per_query) if lengths is None else _checked_lengths(lengths, query)
        number = sum(lengths)
        excluded = None
        if exclude is not None:
            columns = number * (1 + per_query)
            lists = checked_lists("exclude", exclude, len(query), columns, torch.device("cpu"))
            excluded = lists_mask(lists, columns, query.device)
        with torch.no_grad():  # not in the graph: a clamped parameter would get no gradient and never come back
            self.log_temperature.clamp_(math.log(TEMPERATURES.low), math.log(TEMPERATURES.high))
        query, reference = (F.normalize(x.float(), dim=1) for x in (query, reference))
        with torch.autocast(query.device.type, enabled=False):
            candidates = _of_all_ranks(reference, lengths)
            if negatives is not None and per_query:
                explicit = F.normalize(negatives.float().flatten(0, 1), dim=1)
                everyones = _of_all_ranks(explicit, [per_query * length for length in lengths])
                candidates = torch.cat([candidates, everyones])
            loss = self._towards(query, candidates, lengths, excluded)
            if not self.symmetric:
                return loss
            back = None if excluded is None else _transposed(excluded[:, :number], lengths)
            return (loss + self._towards(reference, _of_all_ranks(query, lengths), lengths, back)) / 2

    def _towards(self, anchors: Tensor, candidates: Tensor, lengths: list[int], excluded: Tensor | None) -> Tensor:
        """Return the loss of these anchors among the candidates of all ranks."""
        rank, world_size = ranks.world()
        own = torch.arange(len(anchors), device=anchors.device) + sum(lengths[:rank])
        similarities = anchors @ candidates.T  # [n, all]
        logits = similarities / self.log_temperature.exp()
        if excluded is not None:
            excluded = excluded.scatter(1, own[:, None], False)
        if self.mask_above is not None:
            masked = self._false_negatives(self.mask_above, similarities.detach(), own[:, None], excluded)
            excluded = masked if excluded is None else excluded | masked
        if excluded is not None:
            logits = logits.masked_fill(excluded, -torch.inf)
        if self.hard_fraction is not None:
            positive = logits.gather(1, own[:, None])
            others = logits.scatter(1, own[:, None], -torch.inf)
            kept = math.ceil(self.hard_fraction * (logits.shape[1] - 1))
            logits, own = torch.cat([positive, others.topk(kept).values], dim=1), torch.zeros_like(own)
        if excluded is None:
            loss = F.cross_entropy(logits, own, label_smoothing=self.label_smoothing, reduction="sum")
        else:
            loss = self._cross_entropy(logits, own)
        return loss * (world_size / sum(lengths))

    def _false_negatives(self, share: float, similarities: Tensor, own: Tensor, excluded: Tensor | None) -> Tensor:
        """Mark and count the negatives that are too similar to their anchor, bool [n, all]."""
        negative = torch.ones_like(similarities, dtype=torch.bool) if excluded is None else ~excluded
        negative = negative.scatter(1, own, False)
        positive = similarities.gather(1, own)
        masked = negative & (similarities > positive - (1 - share) * positive.abs())
        self.counts += torch.stack([masked.sum(), negative.sum()])
        return masked

    def _cross_entropy(self, logits: Tensor, own: Tensor) -> Tensor:
        """Sum the cross-entropy where some logits are minus infinity, smoothing the target over the others only."""
        log_probabilities = F.log_softmax(logits, dim=1)
        absent = logits == -torch.inf
        spread = log_probabilities.masked_fill(absent, 0.0).sum(1) / (~absent).sum(1)
        target = log_probabilities.gather(1, own[:, None])[:, 0]
        return -((1 - self.label_smoothing) * target + self.label_smoothing * spread).sum()


def _check_shapes(query: Tensor, reference: Tensor, negatives: Tensor | None) -> None:
    if query.ndim != 2 or query.shape != reference.shape:
        raise ValueError(
            f"query and reference must have the same shape [n, dim], got {list(query.shape)} and "
            f"{list(reference.shape)}."
        )
    if negatives is not None and (negatives.ndim != 3 or negatives.shape[::2] != query.shape):
        raise ValueError(
            f"negatives must have the shape [n, m, dim] for queries [n, dim], got {list(negatives.shape)} for "
            f"{list(query.shape)}."
        )


def _checked_lengths(lengths: Sequence[int], query: Tensor) -> list[int]:
    rank, world_size = ranks.world()
    if len(lengths) != world_size or lengths[rank] != len(query):
        raise ValueError(
            f"lengths must be the number of queries on each of {world_size} ranks, {len(query)} on rank {rank}, got "
            f"{list(lengths)}."
        )
    return list(lengths)


def _exchange_lengths(x: Tensor, per_query: int) -> list[int]:
    """Return the number of rows on each rank; in the last batch they may differ by one."""
    if not ranks.is_distributed():
        return [len(x)]
    rank, world_size = ranks.world()
    sizes = torch.zeros(2, world_size, dtype=torch.int64, device=x.device)
    sizes[0, rank], sizes[1, rank] = len(x), per_query
    dist.all_reduce(sizes)
    lengths: list[int] = sizes[0].tolist()
    numbers = sizes[1].tolist()
    if len(set(numbers)) > 1:
        raise ValueError(f"every rank must have the same number of negatives per query, got {numbers} by rank.")
    return lengths


def _of_all_ranks(x: Tensor, lengths: list[int]) -> Tensor:
    """Return the rows of all ranks, one rank after another."""
    rank, world_size = ranks.world()
    return _GatherRows.apply(x, lengths, rank) if world_size > 1 else x  # type: ignore[no-untyped-call]


def _transposed(mask: Tensor, lengths: list[int]) -> Tensor:
    """Turn a mask with a row per query of this rank into one with a row per reference of this rank, both [n, all]."""
    rank, world_size = ranks.world()
    if world_size > 1:
        mask = _of_all_ranks(mask.to(torch.uint8), lengths).bool()
    first = sum(lengths[:rank])
    return mask[:, first : first + lengths[rank]].T


class _GatherRows(torch.autograd.Function):
    """Concatenate the rows of all ranks; gradients flow back to the rank that a row came from."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: list[int], rank: int) -> Tensor:
        ctx.first, ctx.last = sum(lengths[:rank]), sum(lengths[: rank + 1])
        return ranks.concatenated(x, lengths)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[ctx.first : ctx.last], None, None
