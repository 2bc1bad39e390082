"""Run the parts of a composition, and slices of one part, side by side in threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from lookalike.utils.arrays import Array

RunParts = Callable[[int, Callable[[int], Array], int], list[Array]]
"""Called as `run_parts(num_parts, job, checksum)`; returns `[job(0), ..., job(num_parts - 1)]`.

`job(p)` composes part p and returns the int32 ids of its batches, one after another. Jobs may run in any order, at the
same time, and each in another process, as long as every process has called `compose_batches` with the same arguments:
`checksum`, of the partition, tells processes that have not.
"""


def in_threads(num_parts: int, job: Callable[[int], Array], checksum: int) -> list[Array]:  # noqa: ARG001
    """Run all jobs in this process, as many at a time as torch has threads: the default `RunParts`."""
    with _pool() as pool:
        return list(pool.map(job, range(num_parts)))


def in_slices(n: int, task: Callable[[int, int], Any]) -> None:
    """Call `task(first, last)` for as many slices of 0..n as there are threads."""
    edges = np.linspace(0, n, max(1, torch.get_num_threads()) + 1).astype(int).tolist()
    with _pool() as pool:
        list(pool.map(task, edges[:-1], edges[1:]))


def in_one_slice(n: int, task: Callable[[int, int], Any]) -> None:
    """Call `task(0, n)`: for a part whose neighbours already keep the other threads busy."""
    task(0, n)


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, torch.get_num_threads()), "lookalike-batches")
