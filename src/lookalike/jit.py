"""How numba is used here, in one place, with types that mypy understands."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from numba import njit
from numba.extending import intrinsic as numba_intrinsic

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that releases the GIL, is cached on disk and counts no references.

    Numba's reference counting would stay in the innermost loops and make a hit twenty times as expensive. Without it
    (`_nrt=False`) a function cannot allocate: the caller hands over working memory.
    """
    compiled: Callable[P, R] = njit(cache=True, nogil=True, _nrt=False)(function)
    return compiled


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function that kernels may call, given as LLVM instructions."""
    return numba_intrinsic(function)
