"""Time Hamming search of a reference that is in GPU memory, in host memory or on disk, and estimate a larger one.

    python -m benchmarks.search_streamed [--rows 100000000] [--queries 1000000] [--out FILE | --record]

Half of the codes are random and half lie in clusters, sorted as data often are. Every answer is compared with that of
one search in memory, and some of its rows with the plain backend's. The file is dropped from the system's cache before
it is read. With `--device cpu` and a few rows all of this runs without a GPU.
"""

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from benchmarks import record
from benchmarks.search_gpu_codes import drawn, flips
from lookalike import hamming_topk
from lookalike.mining.cells import Grid, default_block
from lookalike.mining.estimating import found_bytes, hint_bytes
from lookalike.search.pages import CodePages, Page, default_rows
from lookalike.search.request import Neighbours
from lookalike.search.streaming import streamed_topk

ROWS, QUERIES, FEWER = 100_000_000, 1_000_000, 200_000
BITS, K = 512, 64
TOPIC = 100  # codes of a cluster
CHUNK = 1 << 22  # codes that are drawn and written at a time
CHECKED = 8  # queries that the plain backend answers as well
CODES, GPUS = 1_000_000_000, 8  # of the search that is estimated

Matrix = torch.Tensor


def main(
    rows: Annotated[int, arg(help="Codes of the reference.")] = ROWS,
    queries: Annotated[int, arg(help="Queries.")] = QUERIES,
    fewer: Annotated[int, arg(help="Queries of the shorter runs, which leave less time to read a page.")] = FEWER,
    k: Annotated[int, arg(help="Neighbours per query.")] = K,
    page_rows: Annotated[int | None, arg(help="Codes per page; by default those of the search.")] = None,
    device: Annotated[str, arg(help="cuda, or cpu for the search there.")] = "cuda",
    folder: Annotated[Path | None, arg(help="Where to write the codes; by default a temporary folder.")] = None,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, print a table and write the results."""
    whole = (rows, queries, fewer, k, page_rows, device) == (ROWS, QUERIES, FEWER, K, None, "cuda")
    path = record.destination("search_streamed", out, committed, whole=whole)
    page_rows = default_rows(BITS // 8, torch.device(device)) if page_rows is None else page_rows
    step = record.Steps()
    timed: list[dict[str, Any]] = []
    settings = {"rows": rows, "bits": BITS, "k": k, "page_rows": page_rows, "device": device}
    result: dict[str, Any] = {"settings": settings, "search": timed}
    if device == "cuda":
        result["gpu"] = {"name": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    with tempfile.TemporaryDirectory(prefix="lookalike-codes-", dir=folder) as scratch:
        step(f"drawing {rows:,} codes of {BITS} bits")
        codes = _codes(rows, torch.device(device))
        query = codes[torch.randint(rows, (queries,), device=device)] ^ flips(queries, BITS, codes.device, 4)
        file = Path(scratch) / "codes"
        step(f"writing {codes.nbytes / 1e9:.1f} GB")
        result["disk"] = {"write_bytes_per_second": round(codes.nbytes / _seconds(lambda: _write(codes, file)))}
        step("reading them")
        pages = CodePages(file, BITS, page_rows=page_rows, device=device)
        _drop_cache(file)
        result["disk"]["read_bytes_per_second"] = round(codes.nbytes / _seconds(lambda: deque(pages, maxlen=0)))
        _warm_up(query, codes, k)
        expected: dict[int, Neighbours] = {}

        def measure(reference: str, number: int, search: Callable[[Matrix], Neighbours]) -> None:
            step(f"{number:,} queries, reference {reference}")
            found: list[Neighbours] = []
            seconds = _seconds(lambda: found.append(search(query[:number])))
            _compare(reference, found[0], expected.setdefault(number, found[0]))
            row = {"reference": reference, "queries": number, "seconds": round(seconds, 4)}
            timed.append({**row, "pairs_per_second": round(number * rows / seconds)})
            record.write(path, result)

        for number in (fewer, queries):
            measure("in memory, one search", number, lambda part: hamming_topk(part, codes, k))
        step(f"{CHECKED} queries with the plain backend")
        _check(query, codes, expected[queries])
        for number in (fewer, queries):
            _drop_cache(file)
            measure("on disk", number, lambda part: streamed_topk(part, pages, k))
        host = codes.cpu()
        measure("in host memory", fewer, lambda part: streamed_topk(part, _in_pages(host, page_rows), k))
        if device == "cuda":
            pinned = host.pin_memory()
            measure("in page-locked memory", fewer, lambda part: streamed_topk(part, _in_pages(pinned, page_rows), k))
    result["estimate"] = _estimate(timed, result["disk"], k)
    _show(result)
    record.finish(path, result)


def _codes(n: int, device: torch.device) -> Matrix:
    """Draw codes: every second one at random, the others in clusters, sorted."""
    torch.manual_seed(0)
    codes = torch.empty(n, BITS // 8, dtype=torch.uint8, device=device)
    centres = drawn(max(1, n // 2 // TOPIC), BITS, device)
    for first in range(0, n, CHUNK):
        part = codes[first : first + CHUNK]
        part[::2] = drawn(len(part[::2]), BITS, device)
        clustered = part[1::2]
        members = torch.arange(first + 1, first + len(part), 2, device=device) * len(centres) // n
        part[1::2] = centres[members] ^ flips(len(clustered), BITS, device, 3)
    return codes


def _write(codes: Matrix, path: Path) -> None:
    with path.open("wb") as file:
        for first in range(0, len(codes), CHUNK):
            codes[first : first + CHUNK].cpu().numpy().tofile(file)
        os.fsync(file.fileno())


def _in_pages(codes: Matrix, page_rows: int) -> Iterator[Page]:
    return (Page(first, codes[first : first + page_rows]) for first in range(0, len(codes), page_rows))


def _drop_cache(path: Path) -> None:
    """Ask the system to forget a file that is on disk, so that it is read from there."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _warm_up(query: Matrix, codes: Matrix, k: int) -> None:
    """Compile and load the kernels, with and without limits, and the merging of pages."""
    small = codes[:50_000]
    streamed_topk(query[:1000], _in_pages(small, 25_000), k, backend="cuda" if codes.is_cuda else "cpu")


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _compare(name: str, found: Neighbours, expected: Neighbours) -> None:
    for field in expected._fields:
        if not torch.equal(getattr(found, field), getattr(expected, field)):
            raise SystemExit(f"reference {name}: {field} differ from those of one search in memory")


def _check(query: Matrix, codes: Matrix, found: Neighbours) -> None:
    """Compare answers of some queries with the plain backend's."""
    some = torch.arange(0, len(query), max(1, len(query) // CHECKED), device=query.device)[:CHECKED]
    expected = hamming_topk(query[some], codes, found.indices.shape[1], backend="plain")
    _compare("in memory, some queries", Neighbours(*(part[some] for part in found)), expected)


def _estimate(timed: list[dict[str, Any]], disk: dict[str, int], k: int) -> dict[str, Any]:
    """Compute what offline mining takes to search many codes in themselves: the cells of its grid, shared by GPUs.

    Each GPU reads its columns from a disk of its own and writes to it, at the rates that were measured here, while it
    searches.
    """
    rate = min(row["pairs_per_second"] for row in timed if row["reference"] == "on disk")
    block = default_block(CODES)
    grid = Grid(CODES, CODES, itself=True, encodes=False, block=block)
    columns = len(grid.searches(range(block)))
    read = -(-CODES // block) * CODES * BITS // 8 // GPUS
    written = (found_bytes(grid, k) + hint_bytes(grid, k) * columns) // GPUS
    return {
        "codes": CODES,
        "gpus": GPUS,
        "cells": -(-CODES // block) * columns,
        "pairs_per_second": rate * GPUS,
        "compute_hours": round(CODES * CODES / (rate * GPUS) / 3600, 2),
        "read_bytes": read,
        "read_hours": round(read / disk["read_bytes_per_second"] / 3600, 2),
        "written_bytes": written,
        "write_hours": round(written / disk["write_bytes_per_second"] / 3600, 2),
    }


def _show(result: dict[str, Any]) -> None:
    settings, disk, estimate = result["settings"], result["disk"], result["estimate"]
    title = f"{settings['rows']:,} codes of {BITS} bits, k = {settings['k']}, pages of {settings['page_rows']:,}"
    table = Table("reference", "queries", "seconds", "1e12 pairs/s", title=title)
    for row in result["search"]:
        rate = f"{row['pairs_per_second'] / 1e12:.3f}"
        table.add_row(row["reference"], f"{row['queries']:,}", f"{row['seconds']:.2f}", rate)
    Console(width=100).print(table)
    read, written = (disk[f"{way}_bytes_per_second"] / 1e9 for way in ("read", "write"))
    print(f"Disk: {read:.2f} GB/s read, {written:.2f} GB/s written")
    print(
        f"{estimate['codes']:,} codes in themselves on {estimate['gpus']} GPUs: {estimate['compute_hours']} h of "
        f"search, {estimate['read_bytes'] / 1e12:.1f} TB read in {estimate['read_hours']} h, "
        f"{estimate['written_bytes'] / 1e12:.1f} TB written in {estimate['write_hours']} h"
    )


if __name__ == "__main__":
    record.run(main)
