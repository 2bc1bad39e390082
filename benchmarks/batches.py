"""Compose an epoch of batches: ours against the loop of Sample4Geo in plain Python, on the same neighbour graph.

    python -m benchmarks.batches [--quick] [--out FILE | --record]

Each contender runs in a process of its own, which reports its time and how far its memory grew at its peak. Quality is
measured on the exact neighbours of a sample of anchors.
"""

import copy
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from benchmarks import record
from lookalike import SignHasher, compose_batches, hard_negatives
from lookalike.data.synthetic import clustered_embeddings
from lookalike.search.cosine import cosine_topk
from lookalike.utils.arrays import Array

N, K, BATCH, DIM, BITS = 532_736, 128, 128, 128, 256
LARGE, SIZES, ROUNDS = 512, (None, 32), 3  # batches of this many pairs, from neighbourhoods of these sizes
SELECT, PATIENCE = 64, 1024
QUICK_N = 10_000
QUICK_CONTENDERS = ("random", "Sample4Geo, published operations", "Sample4Geo, ours", "growth, one neighbourhood")


def main(
    n: Annotated[int, arg(help="Pairs.")] = N,
    quick: Annotated[bool, arg(help=f"{QUICK_N:,} pairs and the main contenders: seconds instead of minutes.")] = False,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, print a table and write the results."""
    n = min(n, QUICK_N) if quick else n
    path = record.destination("batches", out, committed, whole=n == N)
    contenders = QUICK_CONTENDERS if quick else tuple(CONTENDERS)
    step = record.Steps()
    step(f"finding the {K} nearest of {n:,} embeddings")
    torch.set_num_threads(2)
    x, _ = clustered_embeddings(n, DIM, seed=0)
    hasher = SignHasher(DIM, BITS)
    hasher.update_mean(x)
    near = hard_negatives(hasher.encode(x), None, K, progress=True).indices
    anchors = torch.arange(0, n, max(1, n // 2000))
    labels = torch.arange(n)
    true = cosine_topk(x[anchors], x, K, query_labels=labels[anchors], reference_labels=labels).indices
    rows = []
    with tempfile.TemporaryDirectory() as name:
        np.save(Path(name) / "graph.npy", near.numpy().astype(np.int32))
        for contender in contenders:
            step(contender)
            seconds, megabytes = map(float, _child("run_contender", contender, name).split())
            batches = np.load(Path(name) / "batches.npy", allow_pickle=True)
            rows.append(
                {
                    "contender": contender,
                    "seconds": round(seconds, 3),
                    "peak_megabytes": round(megabytes),
                    **_quality(list(batches), x, anchors, true),
                }
            )
        step(f"batches of {LARGE}")
        large = json.loads(_child("run_large", name))
    settings = {"n": n, "k": K, "batch_size": BATCH, "large_batch_size": LARGE, "threads": 2, "bits": BITS}
    result = {"settings": settings, "batches": rows, "large": large}
    _show(result)
    record.finish(path, result)


def _child(function: str, *arguments: str) -> str:
    """Call a function of this module in a process of its own, and return what it prints."""
    call = f"import sys; from benchmarks.batches import {function}; {function}(*sys.argv[1:])"
    command = [sys.executable, "-c", call, *arguments]
    repository = record.RESULTS.parents[1]  # where the child finds this module
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=repository).stdout


def _quality(batches: list[Array], x: torch.Tensor, anchors: torch.Tensor, true: torch.Tensor) -> dict[str, float]:
    home = torch.full((len(x),), -1)
    for number, batch in enumerate(batches):
        home[torch.from_numpy(np.asarray(batch, np.int64))] = number
    placed = home[anchors] >= 0
    together = home[true[placed]] == home[anchors[placed], None]
    generator = torch.Generator().manual_seed(0)
    losses = []
    for batch in batches[:: max(1, len(batches) // 300)]:
        reference = x[torch.from_numpy(np.asarray(batch, np.int64))]
        query = torch.nn.functional.normalize(
            reference + 0.05 * torch.randn(reference.shape, generator=generator), dim=1
        )
        losses.append(torch.nn.functional.cross_entropy(query @ reference.T / 0.05, torch.arange(len(batch))))
    return {
        "hits": round(float(together.sum(1).float().mean()), 2),
        "hardest_in_batch": round(float(together[:, 0].float().mean()), 4),
        "info_nce": round(float(torch.stack(losses).mean()), 4),
        "dropped": int((home < 0).sum()),
    }


def run_contender(contender: str, folder: str) -> None:
    """Compose batches from the graph in a folder; print the time and the memory that took."""
    before = record.peak_bytes()
    graph = np.load(Path(folder) / "graph.npy")
    repeats, prepare, compose = CONTENDERS[contender]
    prepared, best = prepare(graph), float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        batches = compose(prepared)
        best = min(best, time.perf_counter() - start)
    peak = record.peak_bytes()
    saved = np.empty(len(batches), object)
    saved[:] = [np.asarray(batch, np.int32) for batch in batches]
    np.save(Path(folder) / "batches.npy", saved, allow_pickle=True)
    print(best, (peak - before) / 1e6)


def run_large(folder: str) -> None:
    """Compose large batches from the graph in a folder, from one neighbourhood and from several, in turn."""
    graph = torch.from_numpy(np.load(Path(folder) / "graph.npy"))
    seconds: dict[int | None, list[float]] = {size: [] for size in SIZES}
    for size in SIZES:
        compose_batches(graph[:2048] % 2048, LARGE, neighbourhood=size)  # compiles, or loads from disk
    for _ in range(ROUNDS):
        for size in SIZES:
            start = time.perf_counter()
            compose_batches(graph, LARGE, neighbourhood=size)
            seconds[size].append(round(time.perf_counter() - start, 3))
    print(json.dumps([{"neighbourhood": size, "seconds": times} for size, times in seconds.items()]))


def _ours(**options: Any) -> Callable[[torch.Tensor], list[Array]]:
    def compose(graph: torch.Tensor) -> list[Array]:
        compose_batches(graph[:512] % 512, 16, **options)  # compiles, or loads from disk, before anything is timed
        return [batch.numpy() for batch in compose_batches(graph, BATCH, **options)]

    return compose


def _as_lists(graph: Array) -> dict[int, list[int]]:
    return dict(enumerate(graph.tolist()))


def _published(neighbours: dict[int, list[int]]) -> list[list[int]]:
    """Run the loop with its published operations: copies of the pools, a list popped from the front."""
    return _sample4geo(copy.deepcopy(neighbours), list(range(len(neighbours))), lambda pool: pool.pop(0))


def _lean(neighbours: dict[int, list[int]]) -> list[list[int]]:
    """Run the same loop without copies, on a double-ended queue."""
    return _sample4geo(neighbours, deque(range(len(neighbours))), lambda pool: pool.popleft())


def _sample4geo(neighbours: dict[int, list[int]], pool: Any, pop: Callable[[Any], int]) -> list[list[int]]:
    rng = random.Random(0)
    rng.shuffle(pool)
    used: set[int] = set()
    batches: list[list[int]] = []
    batch: list[int] = []
    failures = 0
    while pool and failures < PATIENCE:
        anchor = pop(pool)
        if anchor in used:
            failures += 1
            continue
        failures = 0
        listed = neighbours[anchor]
        chosen = listed[: SELECT // 2] + rng.sample(listed[SELECT // 2 :], SELECT // 2)
        for i in [anchor, *chosen]:
            if i >= 0 and i not in used:
                used.add(i)
                batch.append(i)
                if len(batch) == BATCH:
                    batches.append(batch)
                    batch = []
                    break
    return batches


CONTENDERS: dict[str, tuple[int, Callable[[Array], Any], Callable[[Any], Any]]] = {
    "random": (2, torch.from_numpy, _ours(hardness=0.0)),
    "Sample4Geo, published operations": (1, _as_lists, _published),
    "Sample4Geo, lean Python": (1, _as_lists, _lean),
    "Sample4Geo, ours": (2, torch.from_numpy, _ours(method="sample4geo")),
    "growth, one neighbourhood": (2, torch.from_numpy, _ours(neighbourhood=None)),
    **{
        f"growth, neighbourhoods of {size}": (2, torch.from_numpy, _ours(neighbourhood=size))
        for size in (64, 32, 16, 8, 4)
    },
}


def _show(result: dict[str, Any]) -> None:
    table = Table(*result["batches"][0])
    for row in result["batches"]:
        table.add_row(*map(str, row.values()))
    Console(width=140).print(table)


if __name__ == "__main__":
    record.run(main)
