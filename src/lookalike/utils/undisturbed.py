"""Embed in between: without gradients, in evaluation mode, and with every random state as it was before."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import nn


@contextmanager
def undisturbed(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Run a block without gradients and with modules in evaluation mode; restore their modes and all random states."""
    roots = list(modules)
    each = [module for root in roots for module in root.modules()]
    modes = [module.training for module in each]
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - data sets may draw from it
    devices = {weight.device.index for root in roots for weight in root.parameters() if weight.is_cuda}
    try:
        with torch.no_grad(), torch.random.fork_rng(sorted(devices)):
            for module in each:
                module.training = False
            yield
    finally:
        for module, mode in zip(each, modes, strict=True):
            module.training = mode
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002 - as above
