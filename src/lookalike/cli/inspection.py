"""`lookalike demo`, `analyze`, `report` and `plan`: what bits do, and what runs came to."""

from pathlib import Path
from typing import Annotated

import typer

from lookalike.cli.app import Force, app, integers


@app.command()
def demo(
    n: Annotated[int, typer.Option(min=2, help="Number of embeddings.")] = 20_000,
    dim: Annotated[int, typer.Option(min=1, help="Their dimension.")] = 256,
    k: Annotated[int, typer.Option(min=1, help="Hard negatives per embedding.")] = 128,
    bits: Annotated[str, typer.Option(help="Code lengths, multiples of 8, comma-separated.")] = "128,256,512,1024",
    seed: Annotated[int, typer.Option(help="Seed of embeddings and rotation.")] = 0,
) -> None:
    """Make embeddings, find their hard negatives in bits and exactly, and show overlap, time and memory."""
    lengths = integers("--bits", bits)
    from lookalike.cli.demo import run_demo

    run_demo(n, dim, k, lengths, seed)


@app.command()
def analyze(
    source: Annotated[Path, typer.Argument(help="Embeddings (.npy, .npz, .safetensors, .parquet) or a run's folder.")],
    labels: Annotated[Path | None, typer.Option(help="Labels, .npy or one per line.")] = None,
    bits: Annotated[str, typer.Option(help="Code lengths, comma-separated.")] = "128,256,512,1024",
    k: Annotated[int, typer.Option(min=1, help="Hard negatives per anchor.")] = 128,
    anchors: Annotated[int, typer.Option(min=2, help="How many are compared with exact search.")] = 1000,
    out: Annotated[Path | None, typer.Option(help="Result.", show_default="analysis.json by the source")] = None,
    force: Force = False,
) -> None:
    """Show what bits find of the true hard negatives: overlap, places, similarity, bounds, other codes, speed."""
    lengths = tuple(integers("--bits", bits))
    from lookalike.cli.analyze import run_analysis

    run_analysis(source, labels, lengths, k, anchors, out, force=force)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, comparisons or analyses.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    gallery: Annotated[bool, typer.Option(help="Load data and model, to show what the model confuses.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out even if it is no report.")] = False,
) -> None:
    """Show runs on one page that opens from disk: tables, curves, what the bits keep, and a gallery of lookalikes."""
    from lookalike.report import make_report

    content = make_report(runs, out, gallery=gallery, force=force, progress=True)
    for notice in content.notices:
        typer.echo(notice)
    for what, command in content.missing:
        typer.echo(f"Missing: {what} ({command})")
    typer.echo(f"Written: {out} ({out.stat().st_size / 1e3:,.0f} kB)")


@app.command()
def plan(
    embeddings: Annotated[
        str | None,
        typer.Argument(
            help="FILE.npy, .npz, .safetensors or .parquet; FILE:NAME of several arrays.", show_default=False
        ),
    ] = None,
    k: Annotated[int, typer.Option(min=1, help="Hard negatives per sample.")] = 128,
    target: Annotated[float, typer.Option(help="Share of the true k nearest to find.")] = 0.5,
    n: Annotated[
        int | None, typer.Option(min=2, help="Samples to be searched.", show_default="those in the file")
    ] = None,
    max_bits: Annotated[int, typer.Option(help="Longest codes to consider.")] = 1024,
    seed: Annotated[int, typer.Option(help="Of the rotation and of the rows that are looked at.")] = 0,
    eps: Annotated[float | None, typer.Option(help="Without a file: angle of a near sample, share of pi.")] = None,
    a: Annotated[float | None, typer.Option("--a", help="Ratio of the angle of far samples to eps.")] = None,
    f: Annotated[float, typer.Option("--f", help="One in so many anchors may get a far sample first.")] = 10.0,
) -> None:
    """Say how many bits it takes: for a share of the true neighbours, or (--eps, --a, --n) to keep an order."""
    from lookalike.cli.plan import run_order_plan, run_plan

    if embeddings is not None and eps is None and a is None:
        run_plan(embeddings, k=k, target=target, n=n, max_bits=max_bits, seed=seed)
    elif embeddings is None and eps is not None and a is not None and n is not None:
        run_order_plan(eps, a, n, f)
    else:
        raise ValueError("give either a file of embeddings or --eps, --a and --n.")
