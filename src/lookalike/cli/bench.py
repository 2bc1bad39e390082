"""`lookalike bench`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lookalike.cli.app import app

bench = typer.Typer(help="Measure on this machine; results go to benchmarks/results.", no_args_is_help=True)
app.add_typer(bench, name="bench")
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@bench.command("search", context_settings=PASSED_ON)
def bench_search(
    context: typer.Context,
    device: Annotated[str, typer.Option(help="cpu: against FAISS; cuda: against exact.")] = "cpu",
) -> None:
    """Hamming search against its peers; further options as in `python -m benchmarks.search` or `search_gpu`."""
    modules = {"cpu": "search", "cuda": "search_gpu"}
    if device not in modules:
        raise ValueError(f"--device must be one of {', '.join(modules)}, got {device!r}.")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ValueError("--device cuda needs an NVIDIA GPU that torch can use, and there is none here.")
    _benchmark(modules[device], context.args)


@bench.command("batches", context_settings=PASSED_ON)
def bench_batches(context: typer.Context) -> None:
    """Composition of batches against the published shuffle."""
    _benchmark("batches", context.args)


def _benchmark(name: str, arguments: list[str]) -> None:
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
    command(arguments, standalone_mode=False)
