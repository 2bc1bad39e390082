"""Train the cells of the tables, or those of a YAML file, with one pool of processes.

python -m benchmarks.quality tables INPUTS [--only NAME,...] [--limit SECONDS] [--out FOLDER | --record]
python -m benchmarks.quality run CELLS.yaml INPUTS [--limit SECONDS] [--out FOLDER]
python -m benchmarks.quality figure [--out FILE]
python -m benchmarks.quality readiness --known FILE ... [--out FILE | --record]

INPUTS holds what `benchmarks.prepare` makes, or what it makes that from. A cell that fails or is stopped does not
affect the others; run the same command again to resume. Runs share the machine, so their times are not comparable,
unless they are trained with `--jobs 1`.
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
from benchmarks.quality.declared import ALONE, TABLES, cells_of
from benchmarks.quality.explored import READINESS, collected
from benchmarks.quality.figure import FIGURE, draw
from benchmarks.quality.pool import Pool, trained
from benchmarks.quality.records import KEPT, Records
from benchmarks.quality.sources import SOURCES
from lookalike.samplers.warmup import compile_kernels
from lookalike.utils.files import write_text

DOCS = Path(__file__).parents[2] / "docs"
CORES = os.cpu_count() or 1
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
SHARED = ",".join(name for name in TABLES if name not in ALONE and not name.startswith("compare_"))

Inputs = Positional[Annotated[Path, arg(help="The folder of inputs.")]]
Runs = Annotated[Path, arg(help="The folder of the runs.")]
Jobs = Annotated[int, arg(help="Runs at a time.")]
Limit = Annotated[float | None, arg(help="Seconds after which running cells are saved and stopped.")]
Known = Annotated[tuple[Path, ...], arg(help=f"Files {KEPT} of earlier calls, whose cells are not trained again.")]


def run(
    cells: Positional[Annotated[Path, arg(help="A YAML file: a list of entries with data, settings, rows and seeds.")]],
    inputs: Inputs,
    runs: Runs = Path("runs/quality"),
    jobs: Jobs = CORES,
    limit: Limit = None,
    known: Known = (),
    out: record.OutFolder = None,
) -> None:
    """Train the cells of a YAML file and print a line for each; exit with 1 if one of them does not finish."""
    pool = Pool(inputs.resolve(), runs.resolve(), jobs, limit)
    results = record.destination_folder(out, committed=False)
    _fill({cells.stem: read_cells(cells)}, pool, Records([pool.runs, results], known), results)


def tables(
    inputs: Inputs,
    only: Annotated[str, arg(help="Tables to fill, comma-separated.")] = SHARED,
    rows: Annotated[str | None, arg(help="Rows to train, separated by semicolons.")] = None,
    seeds: Annotated[int | None, arg(help="Seeds per row, at most.")] = None,
    runs: Runs = Path("runs/quality"),
    jobs: Jobs = CORES,
    limit: Limit = None,
    known: Known = (),
    train: Annotated[bool, arg(help="Train cells that have no result; otherwise write what is known.")] = True,
    out: record.OutFolder = None,
    committed: record.Record = False,
) -> None:
    """Train what the tables need and write each of them, with the names of cells that are missing.

    Exit with 1 if a cell does not finish.
    """
    names = only.split(",")
    if unknown := [name for name in names if name not in TABLES]:
        raise ValueError(f"there is no table {unknown[0]!r}; there are {', '.join(TABLES)}.")
    results = record.destination_folder(out, committed, whole=rows is None and seeds is None)
    wanted = {name: [cell for cell in cells_of(name) if _is_wanted(cell, rows, seeds)] for name in names}
    pool = Pool(inputs.resolve(), runs.resolve(), jobs, limit)
    records = Records([pool.runs] if committed else [pool.runs, results], known)
    if not train:
        for name, own in wanted.items():
            _write(name, own, records, results)
            print(f"{records.overview(name, own)}\n", flush=True)
        return
    timed = [name for name in names if name in ALONE and any(cell not in records for cell in wanted[name])]
    if jobs > 1 and timed:
        raise ValueError(f"{timed[0]} has times, so its cells are trained one after the other: give --jobs 1.")
    _fill(wanted, pool, records, results)


def figure(
    out: record.Out = None,
    results: Annotated[Path, arg(help="The folder of results.")] = record.RESULTS,
) -> None:
    """Draw R@1 against R@10 after one epoch, from the tables one_epoch_*; into docs/ by default."""
    path = out or DOCS / FIGURE
    draw(path, results)
    print(f"Written: {path}")


def readiness(
    known: Annotated[tuple[Path, ...], arg(help=f"Files {KEPT} of finished runs.")],
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Collect what warm starts saw: how often positives beat negatives, and how many bits flipped."""
    path = record.destination(READINESS, out, committed)
    write_text(path, json.dumps(collected(known), indent=1) + "\n")
    print(f"Written: {path}")


def _is_wanted(cell: Cell, rows: str | None, seeds: int | None) -> bool:
    return (rows is None or cell.row in rows.split(";")) and (seeds is None or cell.settings.seed < seeds)


def _fill(tables: dict[str, list[Cell]], pool: Pool, records: Records, results: Path) -> None:
    """Train what is not known yet; write each table whenever one of its cells ends."""
    began = time.monotonic()
    cells = distinct(cell for table in tables.values() for cell in table)
    wanted = [cell for cell in cells if cell not in records]
    minutes = sum(cell.seconds for cell in wanted) / pool.jobs / 60
    print(f"{len(cells)} cells, {len(wanted)} to train, {minutes:.1f} min at a rough guess", flush=True)
    for need in dict.fromkeys(need for cell in wanted for need in SOURCES[cell.data].needs):
        print(f"input: {make_from_folder(need, pool.inputs).name}", flush=True)
    finished = failed = 0
    if wanted:
        compile_kernels()  # once, rather than in every process
        with shared_gpu() as environment:
            os.environ |= ONE_THREAD | OFFLINE | environment  # which the processes inherit
            for cell, outcome in trained(wanted, pool, began):
                elapsed = f"[{time.monotonic() - began:4.0f} s]"
                if outcome.result is not None:
                    finished += 1
                    records.add(cell, outcome, pool.jobs)
                    print(f"{elapsed} {records.line(cell)}", flush=True)
                    for name, own in tables.items():
                        if cell.key in {each.key for each in own}:
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


def _write(name: str, cells: list[Cell], records: Records, results: Path) -> None:
    """Write what is known of a table; a comparison of the documentation only once it is complete."""
    table = records.table(name, cells)
    if table["parts"] and not (name.startswith("compare_") and table["missing"]):
        content = next(iter(table["parts"].values())) if name.startswith("compare_") else table
        write_text(results / f"{name}.json", json.dumps(content, indent=1) + "\n")


def _end(text: str, lines: int = 4) -> str:
    return "\n".join(text.splitlines()[-lines:])


if __name__ == "__main__":
    subcommand_cli_from_dict(
        {"tables": tables, "run": run, "figure": figure, "readiness": readiness}, config=(FlagCreatePairsOff,)
    )
