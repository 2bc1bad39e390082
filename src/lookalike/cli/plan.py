"""`lookalike plan`: how many bits it takes, as a table and a choice."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from lookalike.cli.parsing import Hint, Positional, parse
from lookalike.utils.checks import checked_integer

if TYPE_CHECKING:
    from rich.console import Console

    from lookalike.analysis.bits import BitsPlan

ROWS = 4096  # rows of the file to predict from, at least
RANK = 6  # true neighbours of a sample among these rows, at least
ANSWERS = {
    "exact": "exact, worst geometry",
    "typical": "exact, unrelated directions",
    "normal": "normal approximation, worst geometry",
    "chernoff": "guarantee (Chernoff), any geometry",
    "paper": "the paper's expression: best case, no bound",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `lookalike plan`."""

    embeddings: Positional[str | None] = None
    """FILE.npy, .npz, .safetensors or .parquet; FILE:NAME where it holds several arrays."""
    k: int = 128
    """Hard negatives per sample."""
    target: float = 0.5
    """Fraction of the true k nearest to find."""
    n: Annotated[int | None, Hint(default="the rows of EMBEDDINGS")] = None
    """Number of samples to search."""
    max_bits: int = 1024
    """Longest code to consider."""
    seed: int = 0
    """Seed of the rotation and of the choice of rows."""
    eps: float | None = None
    """Without EMBEDDINGS: angle of a near sample, as a fraction of pi."""
    a: float | None = None
    """Without EMBEDDINGS: angle of a far sample divided by that of a near one."""
    f: float = 10.0
    """Without EMBEDDINGS: one in this many anchors may get a far sample first."""

    def __post_init__(self) -> None:
        checked_integer("k", self.k, 1)
        if self.n is not None:
            checked_integer("n", self.n, 2)


def main(args: list[str]) -> None:
    """Predict the bits it takes to find a fraction of the true neighbours, or to keep an order (--eps, --a, --n)."""
    options = parse(Options, args, "plan", main.__doc__)
    eps, a, n = options.eps, options.a, options.n
    if options.embeddings is not None and eps is None and a is None:
        _plan_from_embeddings(options.embeddings, options)
    elif options.embeddings is None and eps is not None and a is not None and n is not None:
        _plan_from_theory(eps, a, n, options.f)
    else:
        raise ValueError("give either a file of embeddings or --eps, --a and --n.")


def _plan_from_embeddings(path: str, options: Options) -> None:
    """Print the overlap predicted for each code length, and the choice."""
    import numpy as np
    import torch
    from rich.console import Console

    from lookalike.analysis.bits import plan_bits
    from lookalike.data.embeddings import load_embeddings

    console, k = Console(), options.k
    x = load_embeddings(path, min_rows=k + 1 if options.n is None else 2)
    n = len(x) if options.n is None else options.n
    wanted = max(ROWS, math.ceil(RANK * n / k))
    drawn = np.arange(len(x))
    if len(x) > wanted:
        drawn = np.sort(np.random.default_rng(options.seed).choice(len(x), wanted, replace=False))
    with console.status(f"comparing {len(drawn):,} rows"):
        plan = plan_bits(
            torch.from_numpy(x[drawn]), n, k=k, target=options.target, max_bits=options.max_bits, seed=options.seed
        )
    console.print(
        f"{n:,} samples of dimension {x.shape[1]}, predicted from {plan.rows:,} rows of {path}.",
        highlight=False,
        soft_wrap=True,
    )
    _print_plan(console, plan, x.shape[1])
    if len(drawn) < min(wanted, n):
        console.print(f"More rows would narrow the error: {min(wanted, n):,} are recommended.", highlight=False)


def _print_plan(console: "Console", plan: "BitsPlan", dim: int) -> None:
    from rich.table import Table

    table = Table("bits", "bytes per sample", "of float32", f"overlap@{plan.k}", "")
    for column in table.columns:
        column.justify = "right"
    for bits, share, error in zip(plan.lengths, plan.overlap, plan.error, strict=True):
        chosen = "<- choice" if bits == plan.bits else ""
        table.add_row(f"{bits:,}", f"{bits // 8:,}", f"1/{32 * dim / bits:g}", f"{share:.1%} ± {error:.1%}", chosen)
    console.print(table)
    console.print(f"{plan.reason}.", highlight=False, soft_wrap=True)


def _plan_from_theory(eps: float, a: float, n: int, f: float) -> None:
    """Print the code lengths that keep far samples from coming before near ones."""
    from rich.console import Console
    from rich.table import Table

    from lookalike.analysis.bits import bits_for_order

    answers = bits_for_order(eps, a, n, f)
    table = Table("bits", "bytes per sample", "by")
    for column in table.columns[:2]:
        column.justify = "right"
    for name, title in ANSWERS.items():
        table.add_row(f"{answers[name]:,}", f"{math.ceil(answers[name] / 8):,}", title)
    console = Console()
    console.print(
        f"No sample at an angle of {a * eps:g} pi before one at {eps:g} pi, among {n:,}, except for one anchor in "
        f"{f:g}:",
        highlight=False,
        soft_wrap=True,
    )
    console.print(table)
    console.print(
        f"{8 * math.ceil(answers['exact'] / 8):,} bits keep the order with certainty 1 - 1/{f:g}. Hard negatives need "
        "far fewer; `lookalike plan EMBEDDINGS` predicts how many.",
        highlight=False,
        soft_wrap=True,
    )
