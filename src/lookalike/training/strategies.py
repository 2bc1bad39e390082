"""Settings -> sampler and loss: the five ways to choose negatives that the paper compares."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch

from lookalike.analysis.bits import MAX_BITS
from lookalike.batches import GRAPH_NEIGHBOURS
from lookalike.losses import InfoNCE
from lookalike.negatives import Filters
from lookalike.samplers import EpochBatchSampler, LSHBatchSampler, PreEpochBatchSampler, RandomBatchSampler
from lookalike.samplers.warmup import compile_kernels
from lookalike.search import hamming_topk, search_device
from lookalike.search.cuda import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from lookalike.data.retrieval import TrainingPart
    from lookalike.training.settings import Settings

HARD_FRACTION = 0.5  # of BatchHard


class Sampled(Protocol):
    """What a sampler asks of a `TrainingPart`."""

    @property
    def labels(self) -> Tensor | None:
        """One per sample or pair."""

    @property
    def pairs(self) -> int | None:
        """How many, for paired data."""


def make_sampler(part: Sampled, settings: Settings, exclude: tuple[Tensor, Tensor] | None = None) -> EpochBatchSampler:
    """Make the sampler of a strategy; `exclude` holds the ids to exclude as negatives, per sample."""
    common: dict[str, Any] = {"pairs": part.pairs, "seed": settings.seed}
    batch_size = settings.pairs_per_batch * (2 if part.pairs is None else 1)
    if settings.sampler in ("random", "batchhard"):
        return RandomBatchSampler(part.labels, batch_size, **common)
    common |= {
        "filters": Filters(exclude=exclude),
        "hardness": settings.hardness,
        "clusters": settings.clusters,
        "method": settings.method,
    }
    if settings.sampler == "lsh":
        return LSHBatchSampler(
            part.labels,
            batch_size,
            bits=settings.bits,
            target_overlap=settings.target_overlap,
            guard=settings.guard,
            **common,
        )
    return PreEpochBatchSampler(part.labels, batch_size, mode=settings.sampler, **common)


def compile_ahead(
    part: TrainingPart, settings: Settings, exclude: tuple[Tensor, Tensor] | None, device: torch.device
) -> None:
    """Compile every kernel that `make_sampler` of the same arguments will use, so that no epoch is timed doing it.

    A sampler of the same kind mines a miniature of the data for a few epochs.
    """
    n = 64
    if settings.sampler == "lsh":  # a miniature is searched without kernels, so these are named
        lengths = [settings.bits] if isinstance(settings.bits, int) else _any_lengths()
        compile_kernels()
        for bits in lengths:
            if search_device(device, bits, GRAPH_NEIGHBOURS).type == "cuda":
                codes = torch.zeros(n, bits // 8, dtype=torch.uint8, device=device)
                hamming_topk(codes, codes, GRAPH_NEIGHBOURS, query_labels=torch.arange(n), backend="cuda")
    if part.pairs is None:
        small = _Miniature(labels=torch.arange(n) // 2, pairs=None)
    else:
        small = _Miniature(labels=None if part.labels is None else torch.arange(n), pairs=n)
    none_excluded = torch.zeros(n + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    sampler = make_sampler(small, replace(settings, pairs_per_batch=8), None if exclude is None else none_excluded)
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(0)).to(device)
    with _silent():  # what it warns of concerns the miniature
        for _ in range(3):
            if isinstance(sampler, PreEpochBatchSampler) and sampler.mode == "full":
                sampler.refresh(**_towers(small, x))
            for ids in sampler:
                sampler.observe(ids, **_towers(small, x[ids]))


def _any_lengths() -> list[int]:
    """Return a code length for each CUDA program that a sampler may need which chooses its bits by itself."""
    return [32 * words for words in SHAPES if 32 * words <= MAX_BITS]


@dataclass(frozen=True)
class _Miniature:
    labels: Tensor | None
    pairs: int | None


@contextmanager
def _silent() -> Iterator[None]:
    logger = logging.getLogger("lookalike")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _towers(part: Sampled, x: Tensor) -> dict[str, Tensor]:
    return {"embeddings": x} if part.pairs is None else {"query": x, "reference": x}


def make_loss(settings: Settings) -> InfoNCE:
    """Make the loss of a strategy."""
    return InfoNCE(
        settings.temperature,
        label_smoothing=settings.label_smoothing,
        hard_fraction=HARD_FRACTION if settings.sampler == "batchhard" else None,
    )
