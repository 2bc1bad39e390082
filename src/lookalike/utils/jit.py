"""How numba is used here, in one place, with types that mypy understands."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from lookalike.utils.notices import say_once

try:
    from numba import njit
    from numba.extending import intrinsic as numba_intrinsic
except ImportError:  # an accelerator, not a requirement
    njit = numba_intrinsic = None

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that releases the GIL, is cached on disk where possible and counts no references.

    Numba's reference counting would stay in the innermost loops and make a hit several times as expensive. Without it
    (`_nrt=False`) a function cannot allocate: the caller hands over working memory.
    """
    if njit is None:
        say_once("numba is not installed: batches are composed by plain Python, which is slow (pip install numba).")
        return np.errstate(over="ignore")(function)  # integers wrap around, as they do when compiled
    compiled: Any = njit(nogil=True, _nrt=False)(function)
    try:
        compiled.enable_caching()
    except RuntimeError as error:
        if "no locator" not in str(error):
            raise
        say_once(
            "compiled kernels cannot be kept, for numba finds no folder that it may write to: every process compiles "
            "them again, which takes some ten seconds; set NUMBA_CACHE_DIR to a writable folder."
        )
    dispatcher: Callable[P, R] = compiled
    return dispatcher


def intrinsic(function: Callable[..., Any]) -> Any:
    """Return a function, given as LLVM instructions, that kernels may call."""
    return numba_intrinsic(function)
