"""`lookalike bench search` and `lookalike bench batches`: benchmarks of the repository, which a wheel does not hold."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lookalike.cli.menu import run_one_of
from lookalike.cli.parsing import Flag, Hint, Positional, parse
from lookalike.utils.checks import check_choice

PEERS = {  # by device: the benchmark, and what it compares with
    "cpu": ("search", "FAISS and exact search on the CPU"),
    "cuda": ("search_gpu", "exact search on the GPU"),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every benchmark."""

    more: Positional[Annotated[tuple[str, ...], Hint(value="[-- OPTION ...]")]] = ()
    """After `--`: further options of the benchmark, as `python -m benchmarks.NAME --help` lists them."""
    quick: Flag = False
    """Measure a smaller problem: seconds instead of minutes."""
    out: Annotated[Path | None, Hint(default="a file in a temporary folder")] = None
    """File to write."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Options):
    """Options of `lookalike bench search`."""

    device: Annotated[str, Hint(value="cpu|cuda", words=lambda: PEERS)] = "cpu"
    """Compare with FAISS and exact search on the CPU, or with exact search on a GPU."""


MENU = {
    "search": ("Time Hamming search against FAISS and exact search.", SearchOptions),
    "batches": ("Time the composition of batches against the published shuffle.", Options),
}


def main(args: list[str]) -> None:
    """Measure speed on this machine."""
    functions = {"search": search, "batches": batches}
    commands = {name: (summary, functions[name]) for name, (summary, _) in MENU.items()}
    run_one_of(commands, args, "lookalike bench", "Measure speed on this machine.")


def search(args: list[str]) -> None:
    """Time Hamming search against FAISS and exact search."""
    options = parse(SearchOptions, args, "bench search", search.__doc__)
    check_choice("--device", options.device, PEERS)
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ValueError("--device cuda needs an NVIDIA GPU that torch can use, and there is none here.")
    name, peers = PEERS[options.device]
    _run(name, f"Hamming search against {peers}", options, "bench search")


def batches(args: list[str]) -> None:
    """Time the composition of batches against the published shuffle."""
    options = parse(Options, args, "bench batches", batches.__doc__)
    _run("batches", "Composition of batches against the shuffle of Sample4Geo", options, "bench batches")


def _run(name: str, title: str, options: Options, command: str) -> None:
    """Announce the benchmark before imports that take seconds, and run it."""
    print(f"{title}: {'a few seconds' if options.quick else 'several minutes; --quick takes seconds'}.", flush=True)
    import importlib

    import lookalike

    repository = Path(lookalike.__file__).resolve().parents[2]
    if not (repository / "benchmarks").is_dir():
        raise ValueError(
            "the benchmarks are not in the package: run them from a clone, installed with pip install -e ."
        )
    sys.path.insert(0, str(repository))
    args = [*options.more, *["--quick"] * options.quick, *([] if options.out is None else ["--out", str(options.out)])]
    benchmark = importlib.import_module(f"benchmarks.{name}").main
    importlib.import_module("benchmarks.record").run(benchmark, args, f"lookalike {command} --")
