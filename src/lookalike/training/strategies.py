"""Turn settings into a sampler, a loss and an optimizer."""

from __future__ import annotations

import logging
import math
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
from lookalike.training.settings import WITHOUT_MINING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from lookalike.data.retrieval import TrainingPart
    from lookalike.training.settings import Settings
    from lookalike.utils.lists import Lists

WARM_STARTS: dict[str, Any] = {"auto": "auto", "on": True, "off": False}
HARD_FRACTION = 0.5  # of the negatives, for BatchHard


class Sampled(Protocol):
    """The part of a `TrainingPart` that a sampler needs."""

    @property
    def labels(self) -> Tensor | None:
        """One label per sample or pair."""

    @property
    def pairs(self) -> int | None:
        """Number of pairs; None for labelled data."""


def make_sampler(part: Sampled, settings: Settings, exclude: Lists | None = None) -> EpochBatchSampler:
    """Make the sampler that the settings ask for; `exclude` lists ids to exclude as negatives, per sample."""
    batch_size = settings.pairs_per_batch * (2 if part.pairs is None else 1)
    common: dict[str, Any] = {"batch_size": batch_size, "pairs": part.pairs, "seed": settings.seed, "shard": "whole"}
    if settings.sampler in WITHOUT_MINING:
        return RandomBatchSampler(part.labels, **common)
    common |= {
        "filters": None if exclude is None else Filters(exclude=exclude),
        "hardness": settings.hardness,
        "neighbourhood": settings.neighbourhood,
        "method": settings.method,
    }
    if settings.sampler != "lsh":
        return PreEpochBatchSampler(part.labels, mode=settings.sampler, **common)
    return LSHBatchSampler(
        part.labels,
        bits=settings.bits,
        code=settings.code,
        center=settings.center,
        target_overlap=settings.target_overlap,
        guard=settings.guard,
        warm_start=WARM_STARTS[settings.warm_start],
        warm_hardness=settings.warm_hardness,
        **common,
    )


def make_loss(settings: Settings) -> InfoNCE:
    """Make the loss: InfoNCE, over the hardest half of the negatives for BatchHard."""
    return InfoNCE(
        settings.temperature,
        label_smoothing=settings.label_smoothing,
        hard_fraction=HARD_FRACTION if settings.sampler == "batchhard" else None,
        mask_above=settings.mask_above,
    )


def make_optimizer(modules: list[nn.Module], settings: Settings, device: torch.device) -> torch.optim.Optimizer:
    """Make AdamW; norms, biases and the temperature, which have fewer than two dimensions, do not decay."""
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=device.type == "cuda")


def schedule(step: int, num_steps: int, warmup: float) -> float:
    """Return the factor of the learning rate: a linear rise, then half a cosine down to zero."""
    rising = max(1, round(warmup * num_steps))
    if step < rising:
        return (step + 1) / rising
    return (1 + math.cos(math.pi * (step - rising) / max(1, num_steps - rising))) / 2


def step_precision(settings: Settings, device: torch.device) -> torch.dtype:
    """Return bfloat16 for a GPU that supports it, float16 for other GPUs, and float32 otherwise."""
    if device.type != "cuda" or not settings.mixed_precision:
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def compile_ahead(part: TrainingPart, settings: Settings, exclude: Lists | None, device: torch.device) -> None:
    """Compile every kernel that `make_sampler` of the same arguments will use, so that no timed epoch has to.

    A sampler of the same kind mines a miniature of the data for a few epochs.
    """
    n = 64
    if settings.sampler == "lsh":  # a miniature is searched without kernels, so they are named here
        compile_kernels()
        for bits in [settings.bits] if isinstance(settings.bits, int) else _lengths_of_programs():
            if search_device(device, bits, GRAPH_NEIGHBOURS).type == "cuda":
                codes = torch.zeros(n, bits // 8, dtype=torch.uint8, device=device)
                hamming_topk(codes, codes, GRAPH_NEIGHBOURS, query_labels=torch.arange(n), backend="cuda")
    if part.pairs is None:
        small = _Miniature(labels=torch.arange(n) // 2, pairs=None)
    else:
        small = _Miniature(labels=None if part.labels is None else torch.arange(n), pairs=n)
    nothing = torch.zeros(n + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    sampler = make_sampler(small, replace(settings, pairs_per_batch=8), None if exclude is None else nothing)
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(0)).to(device)
    with _silent():  # its warnings concern the miniature
        for _ in range(3):
            if isinstance(sampler, PreEpochBatchSampler) and sampler.mode == "full":
                sampler.refresh(**_towers(small, x))
            for ids in sampler:
                sampler.observe(ids, **_towers(small, x[ids]))


def _lengths_of_programs() -> list[int]:
    """Return one code length for each CUDA program that bits="auto" may need."""
    return [32 * words for words in SHAPES if 32 * words <= MAX_BITS]


@dataclass(frozen=True)
class _Miniature:
    labels: Tensor | None
    pairs: int | None


def _towers(part: Sampled, x: Tensor) -> dict[str, Tensor]:
    return {"embeddings": x} if part.pairs is None else {"query": x, "reference": x}


@contextmanager
def _silent() -> Iterator[None]:
    logger = logging.getLogger("lookalike")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
