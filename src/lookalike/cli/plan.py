"""`lookalike plan`: how many bits, as a table and a choice."""

import math

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from lookalike.analysis.bits import BitsPlan, bits_for_order, plan_bits
from lookalike.data.embeddings import load_embeddings

ROWS = 4096  # at least, of those in the file
RANK = 6  # of the true k nearest so many should be among the rows that are looked at

ANSWERS = {
    "exact": "exact, worst geometry",
    "typical": "exact, unrelated directions",
    "normal": "normal approximation, worst geometry",
    "chernoff": "guarantee (Chernoff), any geometry",
    "paper": "the paper's expression: best case, no bound",
}


def run_plan(path: str, *, k: int, target: float, n: int | None, max_bits: int, seed: int) -> None:
    """Predict the overlap at every length from a file of embeddings and print it with the choice."""
    console = Console()
    x = load_embeddings(path, min_rows=k + 1 if n is None else 2)
    n = len(x) if n is None else n
    wanted = max(ROWS, math.ceil(RANK * n / k))
    drawn = np.arange(len(x))
    if len(x) > wanted:
        drawn = np.sort(np.random.default_rng(seed).choice(len(x), wanted, replace=False))
    with console.status(f"comparing {len(drawn):,} rows"):
        plan = plan_bits(torch.from_numpy(x[drawn]), n, k=k, target=target, max_bits=max_bits, seed=seed)
    console.print(
        f"{n:,} samples of dimension {x.shape[1]}, predicted from {plan.rows:,} rows of {path}.",
        highlight=False,
        soft_wrap=True,
    )
    _print_plan(console, plan, x.shape[1])
    if len(drawn) < min(wanted, n):
        console.print(f"More rows would make it surer: {min(wanted, n):,} are advisable.", highlight=False)


def _print_plan(console: Console, plan: BitsPlan, dim: int) -> None:
    table = Table("bits", "bytes per sample", "of float32", f"overlap@{plan.k}", "")
    for column in table.columns:
        column.justify = "right"
    for bits, share, error in zip(plan.lengths, plan.overlap, plan.error, strict=True):
        chosen = "<- choice" if bits == plan.bits else ""
        table.add_row(f"{bits:,}", f"{bits // 8:,}", f"1/{32 * dim / bits:g}", f"{share:.1%} ± {error:.1%}", chosen)
    console.print(table)
    console.print(f"{plan.reason}.", highlight=False, soft_wrap=True)


def run_order_plan(eps: float, a: float, n: int, f: float) -> None:
    """Print what the theory asks for, so that far samples do not come first."""
    answers = bits_for_order(eps, a, n, f)
    table = Table("bits", "bytes per sample", "by")
    for column in table.columns[:2]:
        column.justify = "right"
    for name, title in ANSWERS.items():
        length = -(-answers[name] // 8) * 8
        table.add_row(f"{answers[name]:,}", f"{length // 8:,}", title)
    console = Console()
    console.print(
        f"No sample at an angle of {a * eps:g} pi before one at {eps:g} pi, among {n:,}, but for one anchor in {f:g}:",
        highlight=False,
        soft_wrap=True,
    )
    console.print(table)
    length = -(-answers["exact"] // 8) * 8
    console.print(
        f"{length:,} bits keep the order with certainty 1 - 1/{f:g}; for hard negatives far fewer do, which "
        "`lookalike plan EMBEDDINGS` predicts.",
        highlight=False,
        soft_wrap=True,
    )
