"""How numba is used here, in one place, with types that mypy understands."""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, ParamSpec, TypeVar

import numpy as np

try:
    from numba import njit
    from numba.extending import intrinsic as numba_intrinsic
except ImportError:  # an accelerator, not a requirement
    njit = numba_intrinsic = None

logger = logging.getLogger("lookalike")

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that releases the GIL, is cached on disk and counts no references.

    Numba's reference counting would stay in the innermost loops and make a hit several times as expensive. Without it
    (`_nrt=False`) a function cannot allocate: the caller hands over working memory.
    """
    if njit is None:
        _say_once()
        return np.errstate(over="ignore")(function)  # integers wrap around, as they do when compiled
    compiled: Callable[P, R] = njit(cache=True, nogil=True, _nrt=False)(function)
    return compiled


@cache
def _say_once() -> None:
    logger.warning("numba is not installed: batches are composed by plain Python, which is slow (pip install numba).")


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function that kernels may call, given as LLVM instructions."""
    return numba_intrinsic(function)
