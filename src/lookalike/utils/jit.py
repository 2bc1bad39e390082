"""Compile kernels with numba if it is installed; no other module checks for it."""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, ParamSpec, TypeVar

import numpy as np

from lookalike.utils.messages import first_line, warn_once

P = ParamSpec("P")
R = TypeVar("R")


@cache
def numba_obstacle() -> str | None:
    """Import numba; return why it cannot be used, or None where it can."""
    try:
        importlib.import_module("numba")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "numba"
        return "numba is not installed" if missing else f"numba cannot be imported ({first_line(error)})"
    return None


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that releases the GIL, is cached on disk where possible and counts no references.

    Numba's reference counting would stay in the innermost loops and make a hit several times as expensive. Without it
    (`_nrt=False`) a function cannot allocate: the caller hands over working memory.
    """
    if obstacle := numba_obstacle():
        warn_once(f"{obstacle}: batches are composed by plain Python, which is slow (pip install numba).")
        return np.errstate(over="ignore")(function)  # integers wrap around, as they do when compiled
    compiled: Any = importlib.import_module("numba").njit(nogil=True, _nrt=False)(function)
    try:
        compiled.enable_caching()
    except RuntimeError as error:
        if "no locator" not in str(error):
            raise
        warn_once(
            "compiled kernels cannot be kept because numba finds no folder that it may write to: every process "
            "compiles them again, which takes about ten seconds; set NUMBA_CACHE_DIR to a writable folder."
        )
    dispatcher: Callable[P, R] = compiled
    return dispatcher


def intrinsic(function: Callable[..., Any]) -> Any:
    """Return a function, given as LLVM instructions, that kernels may call."""
    return importlib.import_module("numba.extending").intrinsic(function)
