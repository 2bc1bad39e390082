"""How weights change: the optimizer, the learning rate over time, the precision of the steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import nn

    from lookalike.training.settings import Settings


def make_optimizer(modules: list[nn.Module], settings: Settings, device: torch.device) -> torch.optim.Optimizer:
    """AdamW; norms, biases and the temperature, which have less than two dimensions, do not decay."""
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=device.type == "cuda")


def schedule(step: int, num_steps: int, warmup: float) -> float:
    """The learning rate's share: a rise over the first steps, then half a cosine down to zero."""
    rising = max(1, round(warmup * num_steps))
    if step < rising:
        return (step + 1) / rising
    return (1 + math.cos(math.pi * (step - rising) / max(1, num_steps - rising))) / 2


def step_precision(settings: Settings, device: torch.device) -> torch.dtype:
    """bfloat16 on a GPU that has it, or else float16; float32 on a CPU."""
    if device.type != "cuda" or not settings.mixed_precision:
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
