"""`lookalike analyze`: from a file of embeddings, or a run, to a table and analysis.json."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from lookalike.cli.parsing import Flag, Hint, Positional, parse
from lookalike.utils.checks import checked_integer

if TYPE_CHECKING:
    from rich.console import Console

BACKENDS = {
    "cpu": "the compiled kernel (backend cpu)",
    "matmul": "matrix products as well (backend matmul; numba, which is not installed, is many times faster)",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `lookalike analyze`."""

    source: Positional[Path]
    """Embeddings (.npy, .npz, .safetensors, .parquet), or the folder of a run."""
    labels: Path | None = None
    """Labels of the embeddings: a .npy file, or one label per line."""
    bits: tuple[int, ...] = (128, 256, 512, 1024)
    """Code lengths to compare, multiples of 8."""
    k: int = 128
    """Hard negatives per anchor."""
    anchors: int = 1000
    """Anchors to compare with exact search."""
    out: Annotated[Path | None, Hint(default="analysis.json beside SOURCE")] = None
    """File to write."""
    force: Flag = False
    """Overwrite the file."""

    def __post_init__(self) -> None:
        for name, low in (("k", 1), ("anchors", 2)):
            checked_integer(name, getattr(self, name), low)


def main(args: list[str]) -> None:
    """Compare the hard negatives found in bits with the true ones: overlap, rank, similarity, bounds, speed."""
    options = parse(Options, args, "analyze", main.__doc__)
    source = options.source
    is_run = source.is_dir()
    beside = source / "analysis.json" if is_run else source.with_name(source.name.split(":")[0] + ".analysis.json")
    out = options.out or beside
    if out.exists() and not options.force:
        raise ValueError(f"{out} exists; --force overwrites it, --out chooses another file.")
    if is_run and options.labels is not None:
        raise ValueError("--labels belongs to a file of embeddings; a run knows its own labels.")
    from rich.console import Console

    from lookalike.analysis.study import analyze
    from lookalike.data.embeddings import load_embeddings
    from lookalike.data.labels import load_labels
    from lookalike.training.embedding import embed_run
    from lookalike.utils.files import write_text

    x: Any
    labels: Any = None
    if is_run:
        x, labels = embed_run(source, progress=True)
    else:
        x = load_embeddings(source, min_rows=options.k + 1)
        if options.labels is not None:
            labels = load_labels(options.labels, len(x))
    result = analyze(x, labels, bits=options.bits, k=options.k, anchors=options.anchors, progress=True)
    write_text(out, json.dumps(result, indent=1) + "\n")
    console = Console()
    _print_table(console, result)
    console.print(f"Written: {out}", highlight=False, soft_wrap=True)


def _print_table(console: "Console", result: dict[str, Any]) -> None:
    from rich.table import Table

    settings = result["settings"]
    k = settings["k"]
    widest = max(row["overlap"]["high"] - row["overlap"]["mean"] for row in result["rows"])
    console.print(
        f"{settings['n']:,} embeddings of dimension {settings['dim']}, the {k} hardest negatives of "
        f"{settings['anchors']:,} anchors. Overlap at random: {result['random']['overlap']:.1%}; the 95% confidence "
        f"interval is ±{widest:.1%} or less. Timed on {settings['threads']} thread{'s' * (settings['threads'] > 1)}: "
        f"codes with {BACKENDS[settings['backend']]}, floats with matrix products (exact).",
        highlight=False,
    )
    table = Table("codes", "bits", f"overlap@{k}", "off by", "cosine", "beyond", "queries/s")
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    exact = result["exact"]
    table.add_row("exact", "", "100%", "0", f"{exact['similarity']:.3f}", "0%", f"{exact['queries_per_second']:,.0f}")
    for row in result["rows"]:
        table.add_row(
            row["method"],
            str(row["bits"]),
            f"{row['overlap']['mean']:.1%}",
            f"{row['positional_distance']['mean']:,.0f}",
            f"{row['similarity']:.3f}",
            f"{row['bound']['beyond']:.1%}",
            f"{row['queries_per_second']:,.0f}",
        )
    console.print(table)
