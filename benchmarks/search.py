"""Time Hamming search on the CPU against FAISS, interleaved in one process, best of several.

    python -m benchmarks.search [--quick] [--out FILE | --record]

Times are compared as pairs per second: FAISS and exact search compare every query with every row, so a slice of the
queries gives their rate; ours is timed on the whole self-join, where it computes each pair once. FAISS has two modes,
and the faster one is what counts. One thread is timed by its own CPU time, which other work on the machine changes
little. Before that, all rows of our answer are compared with FAISS' distances. The embeddings are drawn with seeds that
nothing was tuned on. "Distances alone" is ours with limits that shut every row out: what arithmetic takes.
"""

import os

os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")  # FAISS' BLAS may otherwise pick kernels four times as slow

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from benchmarks import record
from lookalike import SignHasher, hamming_topk
from lookalike.analysis import overlap
from lookalike.data.synthetic import clustered_embeddings
from lookalike.search import cpu
from lookalike.search.cosine import cosine_topk
from lookalike.utils.imports import optional_import

faiss = optional_import("faiss", "comparing with FAISS", "faiss-cpu")

K = 128
DIM = 512
SEEDS = 30, 31
FAISS = "faiss", "faiss, no heap"
SLICE = 2048  # queries of the competitors


@dataclass(frozen=True)
class Sizes:
    """The sizes of the searches."""

    own: int = 59_551  # searched in themselves: training samples of Stanford Online Products
    reference: int = 532_736  # training pairs of MS MARCO
    queries: int = 8192  # searched in those
    lengths: tuple[int, ...] = (128, 256, 512, 1024)
    threads: tuple[int, ...] = (1,)


QUICK = Sizes(own=4000, reference=20_000, queries=512, lengths=(128, 512))

Task = tuple[int, Callable[[], Any]]  # pairs compared, and the call


def main(
    repeats: Annotated[int, arg(help="Rounds; the best of each competitor counts.")] = 5,
    quick: Annotated[bool, arg(help="Few rows, one round: seconds instead of minutes.")] = False,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, print a table of ratios and write the results."""
    path = record.destination("search", out, committed, whole=not quick)
    sizes, repeats = (QUICK, 1) if quick else (Sizes(), repeats)
    step = record.Steps()
    step(f"hashing {sizes.own + sizes.reference:,} embeddings of dimension {DIM}")
    x, labels = clustered_embeddings(sizes.own, DIM, seed=SEEDS[0])
    hasher = SignHasher(DIM, max(sizes.lengths))
    hasher.update_mean(x)
    codes = hasher.encode(x)
    large = hasher.encode(clustered_embeddings(sizes.reference, DIM, seed=SEEDS[1])[0])
    step("comparing what codes find with exact search")
    quality = _quality(x, labels, codes, sizes.lengths)
    rows = []
    for bits in sizes.lengths:
        own, other = codes[:, : bits // 8].contiguous(), large[:, : bits // 8].contiguous()
        step(f"{bits} bits: comparing all distances with FAISS")
        _check_all_rows(own, bits)
        for threads in sizes.threads:
            step(f"{bits} bits, {threads} thread{'s' * (threads > 1)}: {sizes.own:,} codes in themselves")
            rows.append(_row("self-join", bits, threads, _self_join(own, labels, x, bits), repeats))
            step(f"{bits} bits, {threads} thread{'s' * (threads > 1)}: {sizes.queries:,} in {sizes.reference:,}")
            rows.append(_row("two tables", bits, threads, _two_tables(own[: sizes.queries], other, bits), repeats))
    load = os.getloadavg()
    step("hashing against the matrix product it contains")
    result = {
        "settings": {
            "n": sizes.own,
            "n_two_tables": sizes.reference,
            "queries_two_tables": sizes.queries,
            "k": K,
            "dim": DIM,
            "repeats": repeats,
            "seeds": SEEDS,
            "load": [round(each, 1) for each in load],
        },
        "quality": quality,
        "search": rows,
        "encode": [_encode(x, bits, threads, repeats) for bits in sizes.lengths for threads in sizes.threads],
    }
    _show(result)
    record.finish(path, result)


def _quality(
    x: torch.Tensor, labels: torch.Tensor, codes: torch.Tensor, lengths: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Measure the overlap with exact cosine search on anchors spread over the data, with the standard error."""
    anchors = torch.arange(0, len(x), max(1, len(x) // 2000))
    options: dict[str, Any] = {"query_labels": labels[anchors], "reference_labels": labels}
    exact = cosine_topk(x[anchors], x, K, **options).indices
    found = []
    for bits in lengths:
        short = codes[:, : bits // 8]
        shares = overlap(hamming_topk(short[anchors], short, K, **options).indices, exact)
        error = float(shares.std() / len(shares) ** 0.5)
        found.append({"bits": bits, "overlap": round(float(shares.mean()), 4), "standard_error": round(error, 4)})
    return found


def _check_all_rows(codes: torch.Tensor, bits: int) -> None:
    """Check that our distances equal those of FAISS in every row, and that each belongs to its id."""
    index = _binary_index(codes, bits, use_heap=False)
    expected, _ = index.search(codes.numpy(), K)
    found = hamming_topk(codes, codes, K, backend="cpu")
    if not np.array_equal(np.sort(expected, axis=1), found.distances.numpy()):
        raise SystemExit(f"{bits} bits: distances differ from FAISS'")
    for column in range(K):
        own = np.bitwise_count(codes.numpy() ^ codes.numpy()[found.indices[:, column]]).sum(1)
        if not np.array_equal(own, found.distances[:, column]):
            raise SystemExit(f"{bits} bits: an id is listed with another distance than its own")


def _binary_index(codes: torch.Tensor, bits: int, *, use_heap: bool = True) -> Any:
    index: Any = faiss.IndexBinaryFlat(bits)
    index.use_heap = use_heap
    index.add(codes.numpy())
    return index


def _self_join(codes: torch.Tensor, labels: torch.Tensor, x: torch.Tensor, bits: int) -> dict[str, Task]:
    n, queries = len(codes), codes.numpy()[:SLICE]
    heap, no_heap = _binary_index(codes, bits), _binary_index(codes, bits, use_heap=False)
    exact = faiss.IndexFlatIP(DIM)
    exact.add(x.numpy())
    few, fewer = codes[:256], codes[:16]
    return {
        "ours": (n * n, lambda: hamming_topk(codes, codes, K, backend="cpu")),
        "ours, distances alone": (n * n, lambda: _distances_alone(codes, codes)),
        "ours, labels": (n * n, lambda: hamming_topk(codes, codes, K, query_labels=labels, backend="cpu")),
        "faiss": (len(queries) * n, lambda: heap.search(queries, K)),
        "faiss, no heap": (len(queries) * n, lambda: no_heap.search(queries, K)),
        "faiss, exact cosine": (256 * n, lambda: exact.search(x.numpy()[:256], K)),
        "our matmul": (len(few) * n, lambda: hamming_topk(few, codes, K, backend="matmul")),
        "our plain": (len(fewer) * n, lambda: hamming_topk(fewer, codes, K, backend="plain")),
    }


def _two_tables(queries: torch.Tensor, codes: torch.Tensor, bits: int) -> dict[str, Task]:
    pairs, some = len(queries) * len(codes), queries.numpy()[:512]
    heap, no_heap = _binary_index(codes, bits), _binary_index(codes, bits, use_heap=False)
    return {
        "ours": (pairs, lambda: hamming_topk(queries, codes, K, backend="cpu")),
        "ours, distances alone": (pairs, lambda: _distances_alone(queries, codes)),
        "faiss": (len(some) * len(codes), lambda: heap.search(some, K)),
        "faiss, no heap": (len(some) * len(codes), lambda: no_heap.search(some, K)),
    }


def _distances_alone(queries: torch.Tensor, codes: torch.Tensor) -> None:
    """Scan with limits that no distance is within."""
    shut = cpu.Limits.same(len(queries), -1)
    with patch.object(cpu, "_sampled_limits", lambda *_: shut), patch.object(cpu, "_repair"):
        hamming_topk(queries, codes, K, backend="cpu")


def _row(case: str, bits: int, threads: int, tasks: dict[str, Task], repeats: int) -> dict[str, Any]:
    """Time the tasks in turns, and return the best rate of each."""
    _set_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    rates = dict.fromkeys(tasks, 0.0)
    for _ in range(repeats):
        for name, (pairs, call) in tasks.items():
            start = clock()
            call()
            rates[name] = max(rates[name], pairs / (clock() - start))
    return {
        "case": case,
        "bits": bits,
        "threads": threads,
        "clock": "thread CPU time" if threads == 1 else "wall",
        "gigapairs_per_second": {name: round(rate / 1e9, 4) for name, rate in rates.items()},
        "ours_is_faster_by": {name: round(rates["ours"] / rate, 2) for name, rate in rates.items() if name != "ours"},
        "ours_is_faster_than_the_faster_faiss_by": round(rates["ours"] / max(rates[mode] for mode in FAISS), 2),
    }


def _encode(x: torch.Tensor, bits: int, threads: int, repeats: int) -> dict[str, Any]:
    """Time hashing against the matrix product it contains."""
    _set_threads(threads)
    hasher = SignHasher(DIM, bits)
    hasher.update_mean(x)
    clock = time.thread_time if threads == 1 else time.perf_counter
    weights, best = hasher.rows.T.contiguous(), {"encode": np.inf, "matmul": np.inf}
    calls: dict[str, Callable[[], Any]] = {"encode": lambda: hasher.encode(x), "matmul": lambda: x @ weights}
    for _ in range(repeats):
        for name, call in calls.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
    return {"bits": bits, "threads": threads, "encode_over_matmul": round(best["encode"] / best["matmul"], 3)}


def _set_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)


def _show(result: dict[str, Any]) -> None:
    for case in ("self-join", "two tables"):
        rows = [row for row in result["search"] if row["case"] == case]
        peers = list(rows[0]["ours_is_faster_by"])
        table = Table("bits", "threads", "Gpairs/s", "faster FAISS", *peers, title=f"{case}: ours is faster by")
        for row in rows:
            ratios = (f"{row['ours_is_faster_by'][peer]:.1f}" for peer in peers)
            rate = f"{row['gigapairs_per_second']['ours']:.2f}"
            table.add_row(
                str(row["bits"]),
                str(row["threads"]),
                rate,
                f"{row['ours_is_faster_than_the_faster_faiss_by']:.1f}",
                *ratios,
            )
        Console(width=140).print(table)
    print("overlap:", {row["bits"]: row["overlap"] for row in result["quality"]})
    print("encode / matmul:", {(row["bits"], row["threads"]): row["encode_over_matmul"] for row in result["encode"]})


if __name__ == "__main__":
    record.run(main)
