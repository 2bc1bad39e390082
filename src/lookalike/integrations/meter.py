"""Measure what mining costs and how hard batches are, for the logs of a trainer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from lookalike.negatives.hardness import hardest_similarity
from lookalike.samplers import LSHBatchSampler

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

    from lookalike.samplers import EpochBatchSampler


class MiningMeter:
    """Sums up an epoch under the names that `lookalike train` reports to trackers.

    It never waits for a device until it is read.
    """

    def __init__(self) -> None:
        self._hardest: list[Tensor] = []
        self._began, self._mined = time.perf_counter(), 0.0

    def note(self, query: Tensor, reference: Tensor) -> None:
        """Note a batch: embeddings `[n, dim]` of queries and of their references."""
        if len(query) > 1:
            with torch.no_grad():
                query, reference = (F.normalize(each.detach().float(), dim=1) for each in (query, reference))
                self._hardest.append(hardest_similarity(query, reference))

    def read(self, samplers: Collection[EpochBatchSampler]) -> dict[str, float]:
        """Return the metrics since the last call, and begin again.

        Args:
            samplers: All samplers of the trainer.
        """
        now, mined = time.perf_counter(), sum(each.mining_time.seconds for each in samplers)
        seconds = mined - self._mined
        metrics = {
            "mining/seconds": seconds,
            "mining/share": seconds / (now - self._began),
            "mining/kept_bytes": float(sum(each.kept_bytes for each in samplers)),
        }
        bits = [each.bits for each in samplers if isinstance(each, LSHBatchSampler)]
        if bits:
            metrics["mining/bits"] = float(max(bits))
        if self._hardest:
            metrics["mining/hardest_negative"] = float(torch.stack(self._hardest).mean())
        self._began, self._mined, self._hardest = now, mined, []
        return metrics
