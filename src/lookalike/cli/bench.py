"""`lookalike bench`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lookalike.cli.app import app

bench = typer.Typer(help="Measure on this machine, against others.", no_args_is_help=True)
app.add_typer(bench, name="bench")
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
Quick = Annotated[bool, typer.Option("--quick", help="A smaller problem: seconds instead of minutes.")]
Out = Annotated[Path | None, typer.Option(help="Write results to this file.", show_default="in a temporary folder")]


@bench.command("search", context_settings=PASSED_ON)
def bench_search(
    context: typer.Context,
    device: Annotated[str, typer.Option(help="cpu: against FAISS; cuda: against exact.")] = "cpu",
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Hamming search against its peers; further options as in `python -m benchmarks.search` or `search_gpu`."""
    modules = {"cpu": "search", "cuda": "search_gpu"}
    if device not in modules:
        raise ValueError(f"--device must be one of {', '.join(modules)}, got {device!r}.")
    peers = {"cpu": "FAISS and exact search on the CPU", "cuda": "exact search on the GPU"}
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ValueError("--device cuda needs an NVIDIA GPU that torch can use, and there is none here.")
    _announce(f"Hamming search against {peers[device]}", quick)
    _benchmark(modules[device], context, quick, out)


@bench.command("batches", context_settings=PASSED_ON)
def bench_batches(context: typer.Context, quick: Quick = False, out: Out = None) -> None:
    """Composition of batches against the published shuffle; further options as in `python -m benchmarks.batches`."""
    _announce("Composition of batches against the shuffle of Sample4Geo", quick)
    _benchmark("batches", context, quick, out)


def _announce(what: str, quick: bool) -> None:
    """Say what is measured before anything is imported, which takes seconds."""
    how_long = "some seconds" if quick else "several minutes; --quick takes seconds"
    typer.echo(f"{what}: {how_long}.")
    sys.stdout.flush()


def _benchmark(name: str, context: typer.Context, quick: bool, out: Path | None) -> None:
    """Run a benchmark of the repository, which an installed wheel does not have."""
    import importlib

    import lookalike

    repository = Path(lookalike.__file__).resolve().parents[2]
    if not (repository / "benchmarks").is_dir():
        raise ValueError(
            "benchmarks are not part of the package: run them from a clone, installed with pip install -e ."
        )
    sys.path.insert(0, str(repository))
    command = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    command.command()(importlib.import_module(f"benchmarks.{name}").main)
    chosen = ["--quick"] * quick + ([] if out is None else ["--out", str(out)])
    command([*context.args, *chosen], prog_name=context.command_path, standalone_mode=False)


def main(args: list[str]) -> None:
    """Run the old command."""
    import lookalike.cli.train  # noqa: F401 - a single command would lose its name
    from lookalike.cli.app import bridge

    bridge(["bench", *args])
