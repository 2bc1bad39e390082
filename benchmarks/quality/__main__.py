"""Train the cells of the tables, or those of a YAML file, with one pool of processes.

python -m benchmarks.quality tables INPUTS [--only NAME,...] [--limit SECONDS] [--out FOLDER | --record]
python -m benchmarks.quality run CELLS.yaml INPUTS [--limit SECONDS] [--out FOLDER]

INPUTS holds what `benchmarks.prepare` makes, or what it makes that from. A cell that fails or is stopped does not
affect the others; run the same command again to resume. Runs share the machine, so their times are not comparable.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg
from tyro.extras import subcommand_cli_from_dict

from benchmarks import record
from benchmarks.mps import shared_gpu
from benchmarks.prepare.inputs import make_from_folder
from benchmarks.quality.cells import Cell, distinct, read_cells
from benchmarks.quality.pool import trained
from benchmarks.quality.records import KEPT, Records
from benchmarks.quality.sources import SOURCES
from lookalike.samplers.warmup import compile_kernels
from lookalike.utils.files import write_text

CORES = os.cpu_count() or 1
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

Inputs = Positional[Annotated[Path, arg(help="The folder of inputs.")]]
Runs = Annotated[Path, arg(help="The folder of the runs.")]
Jobs = Annotated[int, arg(help="Runs at a time.")]
Limit = Annotated[float | None, arg(help="Seconds after which running cells are saved and stopped.")]
Known = Annotated[tuple[Path, ...], arg(help=f"Files {KEPT} of earlier calls, whose cells are not run again.")]


def run(
    cells: Positional[Annotated[Path, arg(help="A YAML file: a list of data, settings, rows and seeds.")]],
    inputs: Inputs,
    runs: Runs = Path("runs/quality"),
    jobs: Jobs = CORES,
    limit: Limit = None,
    known: Known = (),
    out: record.OutFolder = None,
) -> None:
    """Train the cells of a YAML file and print a line for each; exit with 1 if one of them does not finish."""
    began = time.monotonic()
    _train(
        {cells.stem: read_cells(cells)}, inputs, runs, jobs, began, limit, known, record.destination_folder(out, False)
    )


def _train(
    tables: dict[str, list[Cell]],
    inputs: Path,
    runs: Path,
    jobs: int,
    began: float,
    limit: float | None,
    known: tuple[Path, ...],
    results: Path,
) -> None:
    """Train what is not known yet, and write each table whenever one of its cells ends."""
    inputs, runs = inputs.resolve(), runs.resolve()
    records = Records((runs, results), known)
    cells = distinct(cell for table in tables.values() for cell in table)
    wanted = [cell for cell in cells if cell not in records]
    print(f"{len(cells)} cells, {len(wanted)} to train", flush=True)
    if wanted:
        for need in dict.fromkeys(need for cell in wanted for need in SOURCES[cell.data].needs):
            print(f"input: {make_from_folder(need, inputs).name}", flush=True)
        compile_kernels()  # once, rather than in every process
    finished = failed = 0
    with shared_gpu() as environment:
        os.environ |= ONE_THREAD | OFFLINE | environment  # which the processes inherit
        deadline = float("inf") if limit is None else began + limit
        for cell, outcome in trained(wanted, inputs, runs, jobs, deadline) if wanted else ():
            elapsed = f"[{time.monotonic() - began:4.0f} s]"
            if outcome.result is not None:
                finished += 1
                records.add(cell, outcome, jobs)
                print(f"{elapsed} {records.line(cell)}", flush=True)
                for name, own in tables.items():
                    if any(cell.key == each.key for each in own):
                        _write(name, own, records, results)
            elif outcome.error is not None:
                failed += 1
                print(f"{elapsed} {cell.data}, {cell.row} failed:\n{_end(outcome.error)}", flush=True)
    for name, own in tables.items():
        _write(name, own, records, results)
        print(f"\n{records.overview(name, own)}", flush=True)
    left = len(wanted) - finished - failed
    print(f"{finished} cells trained, {failed} failed, {left} left. Written: {results}")
    if finished < len(wanted):
        sys.exit(1)


def _end(text: str, lines: int = 4) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _write(name: str, cells: list[Cell], records: Records, results: Path) -> None:
    write_text(results / f"{name}.json", json.dumps(records.table(name, cells), indent=1) + "\n")


if __name__ == "__main__":
    subcommand_cli_from_dict({"run": run}, config=(FlagCreatePairsOff,))
