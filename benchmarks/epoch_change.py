"""Time what a paired LSH sampler does between two epochs, stage by stage: search, copy, partition, parts, the rest.

    python -m benchmarks.epoch_change [--pairs 532736 8800000] [--threads N] [--out FILE | --record]

Codes are synthetic, 512 bits in two towers, searched on the GPU. Without a GPU only composition is timed, from
neighbour lists that are drawn rather than found, and the result says so.
"""

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from benchmarks import record
from benchmarks.search_gpu_codes import drawn, flips
from lookalike import compose_batches, hard_negatives
from lookalike.batches.threads import in_threads
from lookalike.utils.arrays import Array
from lookalike.utils.machine import machine

PAIRS, BITS, K, BATCH = (532_736, 8_800_000), 512, 32, 128
TOPIC, WITHIN = 100, 24  # pairs of a cluster, and how many of the lists drawn without a search stay within it
STAGES = ("search", "copy", "partition", "parts", "rest", "total")


def main(
    pairs: Annotated[tuple[int, ...], arg(help="Pairs of the data sets.")] = PAIRS,
    threads: Annotated[int | None, arg(help="Threads that compose; by default torch's number.")] = None,
    repeats: Annotated[int, arg(help="Compositions; the fastest counts.")] = 2,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, print a table and write the results."""
    path = record.destination("epoch_change", out, committed, whole=pairs == PAIRS)
    if threads is not None:
        torch.set_num_threads(threads)
    gpu, step = torch.cuda.is_available(), record.Steps()
    compose_batches(np.arange(100_000)[:, None] // 2 * 2, BATCH)  # compiles, or loads, before anything is timed
    rows: list[dict[str, Any]] = []
    settings = {"bits": BITS, "k": K, "pairs_per_batch": BATCH, "threads": torch.get_num_threads(), "searched": gpu}
    result = {"machine": machine("cuda" if gpu else "cpu"), "settings": settings, "epoch_change": rows}
    for n in pairs:
        step(f"{n:,} pairs: {'search' if gpu else 'neighbour lists without a search'}")
        lists, seconds = _searched(n) if gpu else (_drawn_lists(n), {})
        step(f"{n:,} pairs: composition")
        composed, memory = _composed(lists, repeats)
        seconds |= composed
        seconds["total"] = sum(seconds.values())
        rounded = {stage: round(value, 3) for stage, value in seconds.items()}
        rows.append({"pairs": n, "seconds": rounded, "memory_over_lists": memory})
        record.write(path, result)
    _show(rows)
    record.finish(path, result)


def _searched(n: int) -> tuple[torch.Tensor, dict[str, float]]:
    """Return the neighbour lists of clustered codes, int32 on the host, and the seconds of search and copy."""
    torch.manual_seed(0)
    device = torch.device("cuda")
    members = torch.randint(max(1, n // TOPIC), (n,), device=device)
    query = drawn(max(1, n // TOPIC), BITS, device)[members] ^ flips(n, BITS, device, 3)
    reference = query ^ flips(n, BITS, device, 5)
    small = slice(0, 4096)
    hard_negatives(query[small], None, K, reference=reference[small])  # compiles
    search, found = _timed(lambda: hard_negatives(query, None, K, reference=reference).indices)
    copy, lists = _timed(lambda: found.int().cpu())
    return lists, {"search": search, "copy": copy}


def _timed(task: Callable[[], torch.Tensor]) -> tuple[float, torch.Tensor]:
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = task()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def _drawn_lists(n: int, rows: int = 1 << 18) -> torch.Tensor:
    """Draw lists: most neighbours from a pair's own cluster, the others from everywhere."""
    rng, order = np.random.default_rng(0), np.random.default_rng(1).permutation(n).astype(np.int32)
    lists = np.empty((n, K), np.int32)
    for first in range(0, n, rows):  # position i of the shuffled order belongs to cluster i // TOPIC
        at = np.arange(first, min(n, first + rows))
        near = np.minimum(at[:, None] // TOPIC * TOPIC + rng.integers(0, TOPIC, (len(at), WITHIN)), n - 1)
        lists[order[at], :WITHIN] = order[near]
        lists[order[at], WITHIN:] = rng.integers(0, n, (len(at), K - WITHIN))
    return torch.from_numpy(lists)


def _composed(lists: torch.Tensor, repeats: int) -> tuple[dict[str, float], float | None]:
    """Return the seconds of each stage, and the most memory that was in use, the lists included, relative to them."""
    best: dict[str, float] = {}
    before = _forget_peak()
    for _ in range(repeats):
        times = [time.perf_counter()]

        def run_parts(num_parts: int, job: Callable[[int], Array], checksum: int, times: list[float] = times) -> Any:
            times.append(time.perf_counter())
            parts = in_threads(num_parts, job, checksum)
            times.append(time.perf_counter())
            return parts

        compose_batches(lists, BATCH, run_parts=run_parts)
        times.append(time.perf_counter())
        if not best or times[-1] - times[0] < sum(best.values()):
            best = dict(zip(("partition", "parts", "rest"), np.diff(times).tolist(), strict=True))
    size = lists.numel() * lists.element_size()
    return best, None if before is None else round(1 + (record.peak_bytes() - before) / size, 2)


def _forget_peak() -> int | None:
    """Forget how much memory this process has used at most, and return what it uses now; None where that cannot be."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # else composition would reuse memory that counts as used already
        Path("/proc/self/clear_refs").write_text("5")
    except (AttributeError, OSError):
        return None
    return record.peak_bytes()


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table("pairs", *STAGES, "memory, of the lists")
    for row in rows:
        seconds = (f"{row['seconds'][stage]:.3f}" if stage in row["seconds"] else "" for stage in STAGES)
        table.add_row(f"{row['pairs']:,}", *seconds, str(row["memory_over_lists"]))
    Console(width=120).print(table)


if __name__ == "__main__":
    record.run(main)
