"""`lookalike plan`: how many bits embeddings take, or which strategy suits a data set, as a table and a choice."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from lookalike.cli.advice import print_advice
from lookalike.cli.options import options_of
from lookalike.cli.parsing import Device, Flag, Hint, Pairs, Positional, build, parse_typed
from lookalike.cli.runs import BY_DATA_SET, MODELS
from lookalike.data.registry import data_names, data_sets
from lookalike.utils.checks import SHORTEST_CODE, checked_integer
from lookalike.utils.messages import suggestion

if TYPE_CHECKING:
    from rich.console import Console

    from lookalike.analysis.bits import BitsPlan, Kind

ROWS = 4096  # rows of the file to predict from, at least
RANK = 6  # true neighbours of a sample among these rows, at least
EMBEDDINGS = (".npy", ".npz", ".safetensors", ".parquet")
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

    source: Positional[Annotated[str | None, Hint(words=data_names)]] = None
    """A data set, as `lookalike data list` names it, or embeddings: FILE.npy, .npz, .safetensors or .parquet; FILE:NAME
    where it holds several arrays."""
    k: int = 128
    """Hard negatives per sample."""
    target: float = 0.5
    """Fraction of the true k nearest to find."""
    max_bits: int = 1024
    """Longest code to consider."""
    seed: int = 0
    """Seed of the rotation, of the choice of samples, and of new weights."""
    root: Path | None = None
    """For a data set: folder or file to read it from."""
    data_options: Pairs = field(default_factory=dict)
    """For a data set: option of its reader, such as size=224."""
    model: Annotated[str | None, Hint(default=BY_DATA_SET, value="NAME", words=lambda: MODELS)] = None
    """For a data set: encoder, as in `lookalike train`."""
    model_options: Pairs = field(default_factory=dict)
    """For a data set: option of the encoder."""
    pairs_per_batch: Annotated[int | None, Hint(default=BY_DATA_SET)] = None
    """For a data set: pairs of query and reference per batch."""
    sample: Annotated[int | None, Hint(default="8192")] = None
    """For a data set: samples, or pairs, to embed at most."""
    device: Device = None
    """For a data set: device of torch, such as cpu or cuda."""
    out: Path | None = None
    """For a data set: file to write everything measured to, as JSON."""
    force: Flag = False
    """For a data set: overwrite the file."""
    n: Annotated[int | None, Hint(default="the rows of the file")] = None
    """For embeddings: number of samples to search."""
    eps: float | None = None
    """Without SOURCE: angle of a near sample, as a fraction of pi."""
    a: float | None = None
    """Without SOURCE: angle of a far sample divided by that of a near one."""
    f: float = 10.0
    """Without SOURCE: one in this many anchors may get a far sample first."""

    def __post_init__(self) -> None:
        checked_integer("k", self.k, 1)
        if self.n is not None:
            checked_integer("n", self.n, 2)


OF_DATA = (
    "root",
    "data_options",
    "model",
    "model_options",
    "pairs_per_batch",
    "sample",
    "device",
    "out",
    "force",
)
OF_THEORY = ("eps", "a", "f")


def main(args: list[str]) -> None:
    """Say which strategy suits a data set, from a sample; or predict the bits it takes to find a fraction of the true
    neighbours of embeddings, or to keep an order (--eps, --a, --n).
    """
    typed = parse_typed(Options, args, "plan", main.__doc__)
    options = build(Options, typed)
    eps, a, n = options.eps, options.a, options.n
    if options.source is not None and _is_data(options.source):
        _refuse(typed, ("n", *OF_THEORY), f"{options.source} is a data set")
        print_advice(options.source, typed)
    elif options.source is not None and eps is None and a is None:
        _refuse(typed, OF_DATA, f"{options.source} holds embeddings")
        _plan_from_embeddings(options.source, options)
    elif options.source is None and eps is not None and a is not None and n is not None:
        _refuse(typed, OF_DATA, "there is no data set")
        _plan_from_theory(eps, a, n, options.f)
    else:
        raise ValueError("give a data set, a file of embeddings, or --eps, --a and --n.")


def _is_data(source: str) -> bool:
    """Return whether a source is a data set rather than a file of embeddings.

    Raises:
        ValueError: It is neither.
    """
    known = data_sets()
    if source in known:
        return True
    path = Path(source).expanduser()
    if path.suffix == ".npz" and path.is_file():
        from lookalike.data.glyphs import is_glyph_file

        return is_glyph_file(path)
    if Path(path.name.partition(":")[0]).suffix in EMBEDDINGS:
        return False
    raise ValueError(
        f"{source} is neither a data set nor a file of embeddings ({', '.join(EMBEDDINGS)}): name a data set, and give "
        f"its folder or file with --root; there are {', '.join(known)}{suggestion(source, known)}"
    )


def _refuse(typed: Mapping[str, Any], names: tuple[str, ...], why: str) -> None:
    """Refuse options that were typed and would be ignored.

    Raises:
        ValueError: There is one.
    """
    if unused := [name for name in names if name in typed]:
        raise ValueError(f"{options_of(Options)[unused[0]].flag} has no effect here: {why}.")


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
        rows = torch.from_numpy(x[drawn])
        kinds: tuple[Kind, ...] = ("signs", "scalar") if options.max_bits >= SHORTEST_CODE else ("signs",)
        plans = [
            plan_bits(rows, n, code=code, k=k, target=options.target, max_bits=options.max_bits, seed=options.seed)
            for code in kinds
        ]
    console.print(
        f"{n:,} samples of dimension {x.shape[1]}, predicted from {len(rows):,} rows of {path}.",
        highlight=False,
        soft_wrap=True,
    )
    _print_plans(console, plans, x.shape[1])
    if len(drawn) < min(wanted, n):
        console.print(f"More rows would narrow the error: {min(wanted, n):,} are recommended.", highlight=False)


def _print_plans(console: "Console", plans: "list[BitsPlan]", dim: int) -> None:
    """Print what codes of each kind find; all plans are of the same lengths."""
    from rich.table import Table

    kinds = [column for plan in plans for column in (plan.code, "")]
    table = Table("bits", "bytes", "of float32", *kinds, title=f"overlap@{plans[0].k}")
    for column in table.columns:
        column.justify = "right"
    for bits in plans[0].lengths:
        cells = []
        for plan in plans:
            share, error = plan.predicted(bits)
            cells += [f"{share:.1%} ± {error:.1%}", "<-" if bits == plan.bits else ""]
        table.add_row(f"{bits:,}", f"{bits // 8:,}", f"1/{32 * dim / bits:g}", *cells)
    console.print(table)
    for plan in plans:
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
        "far fewer; `lookalike plan FILE` predicts how many.",
        highlight=False,
        soft_wrap=True,
    )
