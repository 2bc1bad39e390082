"""Write the results of benchmarks, with the machine and the versions they come from.

Every benchmark takes the same two options. By default results go to a temporary folder; `--out FILE` writes them
elsewhere, and `--record` replaces the committed ones, from which `python -m benchmarks.tables` makes the tables of the
documentation.
"""

import json
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import FlagCreatePairsOff, arg

from lookalike.utils.files import writable, write_text
from lookalike.utils.machine import machine, versions

RESULTS = Path(__file__).parent / "results"

Out = Annotated[
    Path | None, arg(help="Write results to this file.", help_behavior_hint="(default: in a temporary folder)")
]
OutFolder = Annotated[
    Path | None, arg(help="Write results to this folder.", help_behavior_hint="(default: a temporary folder)")
]
Record = Annotated[bool, arg(name="record", help="Replace the committed results, which the documentation shows.")]


def run(main: Callable[..., None], args: Sequence[str] | None = None, prog: str | None = None) -> None:
    """Run a benchmark with options from the command line, which its signature declares."""
    tyro.cli(main, args=args, prog=prog, config=(FlagCreatePairsOff,))


def destination(name: str, out: Path | None, committed: bool, *, whole: bool = True) -> Path:
    """Return the file that results will be written to, before anything is measured.

    Raises:
        ValueError: Two places are named, or less than the `whole` benchmark would replace committed results.
        UnwritableError: The folder cannot be written to.
    """
    if out is not None and not out.is_dir():
        return destination_folder(out.parent, committed, whole=whole) / out.name
    return destination_folder(out, committed, whole=whole) / f"{name}.json"


def destination_folder(out: Path | None, committed: bool, *, whole: bool = True) -> Path:
    """Return the folder that several results will be written to; raises what `destination` raises."""
    if committed and out is not None:
        raise ValueError("--out and --record name two places for the results; give one of them.")
    if committed and not whole:
        raise ValueError("--record replaces committed results and takes the benchmark at its full size.")
    if committed:
        return RESULTS
    if out is None:
        return Path(tempfile.mkdtemp(prefix="lookalike-bench-"))
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    return out


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result with machine and versions."""
    write_text(path, json.dumps({"machine": machine(), "versions": versions(), **result}, indent=1) + "\n")


def finish(path: Path, result: dict[str, Any]) -> None:
    """Write the result and print its path."""
    write(path, result)
    print(f"Written: {path}")


def read(name: str) -> dict[str, Any]:
    """Read a committed result."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


class Steps:
    """Print each step of a benchmark when it begins, with the time so far."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def __call__(self, text: str) -> None:
        """Print the beginning of a step."""
        print(f"[{time.perf_counter() - self._began:4.0f} s] {text}", flush=True)


def peak_bytes() -> int:
    """Return the peak memory of this process; not that of its parent, which `getrusage` reports at first."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
