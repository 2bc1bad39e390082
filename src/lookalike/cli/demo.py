"""`lookalike demo`: what hashing costs and what it keeps, on embeddings made on the spot."""

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from lookalike.analysis import overlap
from lookalike.data.synthetic import clustered_embeddings
from lookalike.hashing import SignHasher
from lookalike.negatives import hard_negatives
from lookalike.samplers.warmup import compile_kernels
from lookalike.search.cosine import cosine_topk


def run_demo(n: int, dim: int, k: int, bits: list[int], seed: int) -> None:
    """Make embeddings, hash them at several lengths, search, and print how the result compares with exact cosine."""
    hashers = [SignHasher(dim, b, seed=seed) for b in sorted(bits)]
    console = Console()
    console.print(f"{n:,} clustered embeddings of dimension {dim}; the {k} hardest negatives of each.")
    x, labels = clustered_embeddings(n, dim, seed=seed)
    with console.status("compiling kernels (once, some seconds)"):
        compile_kernels()
    with console.status("exact cosine search"):
        exact, exact_seconds = _timed(cosine_topk, x, x, k, query_labels=labels, reference_labels=labels)
    table = Table("code", "bytes per sample", "memory", f"overlap@{k} with exact", "search", "speed")
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("float32, exact", f"{4 * dim:,}", "1x", "100.0%", f"{exact_seconds:.2f} s", "1x")
    for hasher in hashers:
        with console.status(f"{hasher.bits} bits"):
            hasher.update_mean(x)
            codes = hasher.encode(x)
            found, seconds = _timed(hard_negatives, codes, labels, k)
        share = float(overlap(found.indices, exact.indices).mean())
        table.add_row(
            f"{hasher.bits} bits",
            f"{hasher.bits // 8:,}",
            f"1/{32 * dim / hasher.bits:g}",
            f"{share:.1%}",
            f"{seconds:.2f} s",
            f"{exact_seconds / seconds:.0f}x",
        )
    console.print(table)
    console.print("Each negative has another label than its anchor; more bits come closer to exact mining.")


def _timed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function(*args, **kwargs)
    return result, time.perf_counter() - start
