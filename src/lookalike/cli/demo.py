"""`lookalike demo`: what hashing costs and what it keeps, on synthetic embeddings."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lookalike.cli.parsing import parse
from lookalike.utils.checks import checked_integer


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `lookalike demo`."""

    n: int = 20_000
    """Number of embeddings."""
    dim: int = 256
    """Dimension of the embeddings."""
    k: int = 128
    """Hard negatives per embedding."""
    bits: tuple[int, ...] = (128, 256, 512, 1024)
    """Code lengths to compare, multiples of 8."""
    seed: int = 0
    """Seed of the embeddings and of the rotation."""

    def __post_init__(self) -> None:
        for name, low in (("n", 2), ("dim", 1), ("k", 1), ("seed", 0)):
            checked_integer(name, getattr(self, name), low)


def main(args: list[str]) -> None:
    """Make clustered embeddings, find their hard negatives exactly and in bits, and show overlap, time and memory."""
    options = parse(Options, args, "demo", main.__doc__)
    lengths = sorted(options.bits)
    from rich.console import Console
    from rich.table import Table

    from lookalike.analysis import overlap
    from lookalike.data.synthetic import clustered_embeddings
    from lookalike.hashing import SignHasher
    from lookalike.negatives import hard_negatives
    from lookalike.samplers.warmup import compile_kernels
    from lookalike.search.cosine import cosine_topk

    n, dim, k = options.n, options.dim, options.k
    hashers = [SignHasher(dim, bits, seed=options.seed) for bits in lengths]
    console = Console()
    console.print(f"{n:,} clustered embeddings of dimension {dim}; the {k} hardest negatives of each.")
    x, labels = clustered_embeddings(n, dim, seed=options.seed)
    with console.status("compiling kernels (once, a few seconds)"):
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
    console.print("A negative never has the label of its anchor. More bits come closer to exact search.")


def _timed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function(*args, **kwargs)
    return result, time.perf_counter() - start
