"""Embed whole parts of the data during a run, without gradients: to evaluate, to warm the sampler up, to refresh it."""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from lookalike.training.loading import embed, embedded

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from lookalike.data.retrieval import TrainingPart
    from lookalike.samplers import EpochBatchSampler, PreEpochBatchSampler
    from lookalike.training.settings import Settings
    from lookalike.training.team import Team

EMBEDDING_BATCH = 256  # samples embedded at a time, at least


class PartEmbedder:
    """Embeds parts with the weights that the model has then, and leaves it in training mode.

    Args:
        model: The model.
        settings: How it trains.
        precision: Precision of the computation.
        check: Called between batches; may raise to stop.
        team: The ranks that share the work.
        progress: Draw progress bars if stderr is a terminal.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: Settings,
        precision: torch.dtype,
        check: Callable[[], None],
        *,
        team: Team,
        progress: bool,
    ) -> None:
        self._model, self._seed = model, settings.seed
        self._options: dict[str, Any] = {
            # Fits, for a step does with gradients.
            "batch_size": max(EMBEDDING_BATCH, 2 * (settings.chunk or settings.pairs_per_batch)),
            "precision": precision,
            "check": check,
            "team": team,
            "progress": progress,
        }

    def embed(self, view: Callable[[Tensor], Any], n: int, tower: str) -> Tensor:
        """Embed samples 0 to n - 1 of a tower, "query" or "reference": float32 `[n, dim]`."""
        embeddings = embed(self._model, view, n, tower=tower, **self._options)
        self._model.train()
        return embeddings

    def warm_up(self, sampler: EpochBatchSampler, part: TrainingPart) -> None:
        """Let the sampler observe the whole training part, augmented as in training."""
        seed = warm_start_seed(self._seed)
        # In random order, because the first codes are centred by the mean of the first thousand samples.
        order = torch.randperm(sampler.num_samples, generator=torch.Generator().manual_seed(seed))
        named = {"query": "query", "reference": "reference"} if sampler.paired else {"query": "embeddings"}
        read = {"query": part.queries, "reference": part.references}
        views: dict[str | None, Any] = {tower: partial(read[tower], seed=seed) for tower in named}
        for ids, towers in embedded(self._model, views, order, **self._options):
            observed = {name: F.normalize(x, dim=1) for name, x in zip(named.values(), towers, strict=True)}
            sampler.observe(ids, **observed)
        self._model.train()

    def refresh(self, sampler: PreEpochBatchSampler, part: TrainingPart) -> None:
        """Give the sampler embeddings of the whole training part, without augmentation."""
        n = sampler.num_samples
        reference = self.embed(partial(part.plain, "reference"), n, "reference")
        if sampler.paired:
            sampler.refresh(query=self.embed(partial(part.plain, "query"), n, "query"), reference=reference)
        else:
            sampler.refresh(reference)


def warm_start_seed(seed: int) -> int:
    """Return what decides how a warm start augments samples, from the seed of the run."""
    return zlib.crc32(f"{seed} warm start".encode())
