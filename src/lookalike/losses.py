"""InfoNCE over in-batch negatives, with a learned temperature and optionally only the hardest negatives."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from lookalike.utils import ranks
from lookalike.utils.checks import TEMPERATURES, Range
from lookalike.utils.lists import checked_lists, lists_mask


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

    Raises:
        ValueError: An argument is out of range.

    Examples:
        >>> import torch
        >>> query, reference = torch.randn(8, 32), torch.randn(8, 32)
        >>> criterion = InfoNCE()
        >>> bool(criterion(query, query) < criterion(query, reference))
        True
    """

    def __init__(
        self,
        temperature: float = 0.07,
        *,
        learnable: bool = True,
        label_smoothing: float = 0.1,
        symmetric: bool = True,
        hard_fraction: float | None = None,
    ) -> None:
        super().__init__()
        TEMPERATURES.check("temperature", temperature)
        Range(0, 1).check("label_smoothing", label_smoothing)
        if hard_fraction is not None:
            Range(0, 1, with_low=False, with_high=True).check("hard_fraction", hard_fraction)
        self.label_smoothing, self.symmetric, self.hard_fraction = label_smoothing, symmetric, hard_fraction
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)), requires_grad=learnable)

    @property
    def temperature(self) -> float:
        """The current temperature."""
        return math.exp(float(self.log_temperature.detach()))

    def forward(self, query: Tensor, reference: Tensor, exclude: tuple[Any, Any] | None = None) -> Tensor:
        """Return the mean loss of a batch.

        Args:
            query: Embeddings, floats `[n, dim]`.
            reference: Embeddings of their positives, floats `[n, dim]`.
            exclude: References that are not negatives of a query, as a CSR pair `(offsets, positions)`: query i
                excludes the references at `positions[offsets[i]:offsets[i + 1]]` of the batch, under
                `torch.distributed` of all ranks' batches one after another. A query's own reference stays its positive.
                Lists on the CPU are checked without waiting for the GPU.

        Raises:
            TypeError: `exclude` is not a pair of integer arrays.
            ValueError: The shapes of `query` and `reference` differ, or `exclude` does not fit them.
        """
        if query.ndim != 2 or query.shape != reference.shape:
            raise ValueError(
                f"query and reference must have the same shape [n, dim], got {list(query.shape)} and "
                f"{list(reference.shape)}."
            )
        lengths = _lengths(query)
        excluded = None
        if exclude is not None:
            lists = checked_lists("exclude", exclude, len(query), sum(lengths), torch.device("cpu"))
            excluded = lists_mask(lists, sum(lengths), query.device)
        with torch.no_grad():  # not in the graph: a clamped parameter would get no gradient and never come back
            self.log_temperature.clamp_(math.log(TEMPERATURES.low), math.log(TEMPERATURES.high))
        query, reference = (F.normalize(x.float(), dim=1) for x in (query, reference))
        with torch.autocast(query.device.type, enabled=False):
            loss = self._towards(query, reference, lengths, excluded)
            if not self.symmetric:
                return loss
            back = None if excluded is None else _transposed(excluded, lengths)
            return (loss + self._towards(reference, query, lengths, back)) / 2

    def _towards(self, anchors: Tensor, candidates: Tensor, lengths: list[int], excluded: Tensor | None) -> Tensor:
        """Return the loss of these anchors among the candidates of all ranks."""
        rank, world_size = ranks.world()
        everyone = _GatherRows.apply(candidates, lengths, rank) if world_size > 1 else candidates  # type: ignore[no-untyped-call]
        own = torch.arange(len(anchors), device=anchors.device) + sum(lengths[:rank])
        logits = (anchors @ everyone.T) / self.log_temperature.exp()  # [n, all]
        if excluded is not None:
            logits = logits.masked_fill(excluded.scatter(1, own[:, None], False), -torch.inf)
        if self.hard_fraction is not None:
            positive = logits.gather(1, own[:, None])
            negatives = logits.scatter(1, own[:, None], -torch.inf)
            kept = math.ceil(self.hard_fraction * (logits.shape[1] - 1))
            logits, own = torch.cat([positive, negatives.topk(kept).values], dim=1), torch.zeros_like(own)
        if excluded is None:
            loss = F.cross_entropy(logits, own, label_smoothing=self.label_smoothing, reduction="sum")
        else:
            loss = self._cross_entropy(logits, own)
        return loss * (world_size / len(everyone))

    def _cross_entropy(self, logits: Tensor, own: Tensor) -> Tensor:
        """Sum the cross-entropy where some logits are minus infinity, smoothing the target over the others only."""
        log_probabilities = F.log_softmax(logits, dim=1)
        absent = logits == -torch.inf
        spread = log_probabilities.masked_fill(absent, 0.0).sum(1) / (~absent).sum(1)
        target = log_probabilities.gather(1, own[:, None])[:, 0]
        return -((1 - self.label_smoothing) * target + self.label_smoothing * spread).sum()


def _lengths(x: Tensor) -> list[int]:
    """Return the number of rows on each rank; in the last batch they may differ by one."""
    if not ranks.is_distributed():
        return [len(x)]
    lengths = torch.zeros(ranks.world()[1], dtype=torch.int64, device=x.device)
    lengths[ranks.world()[0]] = len(x)
    dist.all_reduce(lengths)
    return lengths.tolist()


def _transposed(mask: Tensor, lengths: list[int]) -> Tensor:
    """Turn a mask with a row per query of this rank into one with a row per reference of this rank, both [n, all]."""
    rank, world_size = ranks.world()
    if world_size > 1:
        mask = _GatherRows.apply(mask.to(torch.uint8), lengths, rank).bool()  # type: ignore[no-untyped-call]
    first = sum(lengths[:rank])
    return mask[:, first : first + lengths[rank]].T


class _GatherRows(torch.autograd.Function):
    """Concatenate the rows of all ranks; gradients flow back to the rank that a row came from."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: list[int], rank: int) -> Tensor:
        ctx.first, ctx.last = sum(lengths[:rank]), sum(lengths[: rank + 1])
        padded = F.pad(x, (0, 0, 0, max(lengths) - len(x))).contiguous()
        parts = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(parts, padded)
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[ctx.first : ctx.last], None, None
