"""InfoNCE, with the temperature learned and, for BatchHard, only the hardest negatives of a batch."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor, nn

from lookalike.utils import ranks

TEMPERATURES = (0.01, 1.0)  # outside, gradients vanish or logits overflow


class InfoNCE(nn.Module):
    """Every query shall be nearer to its own reference than to the others of the batch, by cosine.

    Under `torch.distributed` the references of all ranks are negatives, with gradient. The loss is then scaled so that
    the mean over ranks, which DistributedDataParallel takes of the gradients, is the loss of the global batch.

    Args:
        temperature: Similarities are divided by it.
        learnable: Learn the temperature, in log space, between 0.01 and 1.
        label_smoothing: Share of the target spread over the whole batch.
        symmetric: Average with the loss from references to queries.
        hard_fraction: Count only this share of each anchor's negatives, the hardest: 0.5 is the paper's BatchHard.

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
        lowest, highest = TEMPERATURES
        if not lowest <= temperature <= highest:
            raise ValueError(f"temperature must be between {lowest} and {highest}, got {temperature}.")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, got {label_smoothing}.")
        if hard_fraction is not None and not 0 < hard_fraction <= 1:
            raise ValueError(f"hard_fraction must be above 0 and at most 1, got {hard_fraction}.")
        self.label_smoothing, self.symmetric, self.hard_fraction = label_smoothing, symmetric, hard_fraction
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)), requires_grad=learnable)

    @property
    def temperature(self) -> float:
        """What similarities are divided by now."""
        return math.exp(float(self.log_temperature.detach()))

    def forward(self, query: Tensor, reference: Tensor, ignore: Tensor | None = None) -> Tensor:
        """The mean loss of a batch: `query[i]` and `reference[i]`, floats `[n, dim]`, belong together.

        Args:
            query: Embeddings.
            reference: Their positives.
            ignore: bool `[n, n]`, or `[n, all]` over ranks: which references are neither positive nor negative to
                which queries.
        """
        if query.ndim != 2 or query.shape != reference.shape:
            raise ValueError(
                f"query and reference must have the same shape [n, dim], got {list(query.shape)} and "
                f"{list(reference.shape)}."
            )
        lengths = _lengths(query)
        if ignore is not None and list(ignore.shape) != [len(query), sum(lengths)]:
            raise ValueError(f"ignore must have the shape {[len(query), sum(lengths)]}, got {list(ignore.shape)}.")
        with torch.no_grad():  # not in the graph: a clamped parameter would get no gradient and never come back
            self.log_temperature.clamp_(*(math.log(limit) for limit in TEMPERATURES))
        query, reference = (F.normalize(x.float(), dim=1) for x in (query, reference))
        with torch.autocast(query.device.type, enabled=False):
            loss = self._towards(query, reference, lengths, ignore)
            if not self.symmetric:
                return loss
            back = None if ignore is None else _transposed(ignore, lengths)
            return (loss + self._towards(reference, query, lengths, back)) / 2

    def _towards(self, anchors: Tensor, candidates: Tensor, lengths: list[int], ignore: Tensor | None) -> Tensor:
        """The loss of these anchors among the candidates of all ranks."""
        rank, world_size = ranks.world()
        everyone = _GatherRows.apply(candidates, lengths, rank) if world_size > 1 else candidates  # type: ignore[no-untyped-call]
        own = torch.arange(len(anchors), device=anchors.device) + sum(lengths[:rank])
        logits = (anchors @ everyone.T) / self.log_temperature.exp()  # [n, all]
        if ignore is not None:
            logits = logits.masked_fill(ignore.scatter(1, own[:, None], False), -torch.inf)
        if self.hard_fraction is not None:
            positive = logits.gather(1, own[:, None])
            negatives = logits.scatter(1, own[:, None], -torch.inf)
            kept = math.ceil(self.hard_fraction * (logits.shape[1] - 1))
            logits, own = torch.cat([positive, negatives.topk(kept).values], dim=1), torch.zeros_like(own)
        if ignore is None:
            loss = F.cross_entropy(logits, own, label_smoothing=self.label_smoothing, reduction="sum")
        else:
            loss = self._cross_entropy(logits, own)
        return loss * (world_size / len(everyone))

    def _cross_entropy(self, logits: Tensor, own: Tensor) -> Tensor:
        """The same where some logits are minus infinity: what is smoothed is spread over the others."""
        shares = F.log_softmax(logits, dim=1)
        absent = logits == -torch.inf
        spread = shares.masked_fill(absent, 0.0).sum(1) / (~absent).sum(1)
        target = shares.gather(1, own[:, None])[:, 0]
        return -((1 - self.label_smoothing) * target + self.label_smoothing * spread).sum()


def _lengths(x: Tensor) -> list[int]:
    """How many rows each rank has; the last batch may differ by one between them."""
    if not ranks.is_distributed():
        return [len(x)]
    lengths = torch.zeros(ranks.world()[1], dtype=torch.int64, device=x.device)
    lengths[ranks.world()[0]] = len(x)
    dist.all_reduce(lengths)
    return lengths.tolist()


def _transposed(mask: Tensor, lengths: list[int]) -> Tensor:
    """bool [n, all], a row per query here -> bool [n, all], a row per reference here."""
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
