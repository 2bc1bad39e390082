"""`lookalike analyze`: from a file of embeddings, or a training run, to a table and analysis.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from lookalike.analysis.study import analyze
from lookalike.data.embeddings import holds_objects, load_embeddings
from lookalike.data.reading import read_lines
from lookalike.training.embedding import embed_run
from lookalike.utils.files import write_text

if TYPE_CHECKING:
    from pathlib import Path


BACKENDS = {
    "cpu": "the compiled kernel (backend cpu)",
    "matmul": "matrix products as well (backend matmul; numba, which is not installed, is many times faster)",
}


def run_analysis(
    source: Path, labels: Path | None, bits: tuple[int, ...], k: int, anchors: int, out: Path | None, *, force: bool
) -> None:
    """Read, analyse, print a table, and write the analysis next to the source."""
    console = Console()
    is_run = source.is_dir()
    target = out or (
        source / "analysis.json" if is_run else source.with_name(source.name.split(":")[0] + ".analysis.json")
    )
    if target.exists() and not force:
        raise ValueError(f"{target} exists; --force overwrites it, --out chooses another file.")
    x: Any
    values: Any
    if is_run:
        if labels is not None:
            raise ValueError("--labels belongs to a file of embeddings; a run knows its own labels.")
        x, values = embed_run(source, progress=True)
    else:
        x = load_embeddings(source, min_rows=k + 1)
        values = None if labels is None else load_labels(labels, len(x))
    result = analyze(x, values, bits=bits, k=k, anchors=anchors, progress=True)
    write_text(target, json.dumps(result, indent=1) + "\n")
    _print(console, result)
    console.print(f"Written: {target}", highlight=False)


def load_labels(path: Path, n: int) -> Any:
    """Read labels, numbers or text, from a .npy file or from the lines of a text file, and number them.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It holds something else, or another number of labels.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of labels.")
    if path.suffix == ".npy" and holds_objects(path):
        raise ValueError(
            f"{path} holds Python objects, which are never unpickled here; save text with "
            "numpy.save(path, labels.astype(str))."
        )
    values = _read_labels(path)
    if values.ndim != 1 or len(values) != n:
        raise ValueError(f"{path} must hold one label per embedding, {n}, got the shape {list(values.shape)}.")
    return np.unique(values, return_inverse=True)[1]


def _read_labels(path: Path) -> Any:
    is_array = path.suffix == ".npy"
    unreadable = (ValueError, OSError, EOFError) if is_array else (OSError,)  # `read_lines` says which line is wrong
    try:
        return (
            np.load(path, allow_pickle=False) if is_array else np.array([line.strip() for _, line in read_lines(path)])
        )
    except unreadable as error:
        raise ValueError(f"{path} cannot be read as labels ({error}): a .npy file, or one label per line.") from None


def _print(console: Console, result: dict[str, Any]) -> None:
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
