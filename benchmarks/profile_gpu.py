"""Time each kernel of a Hamming search on a GPU, on the device itself.

    python -m benchmarks.profile_gpu [--rows 40007,532736] [--bits 128,256,512,1024] [--out FILE | --record]

Random codes are searched in themselves, and each excludes one other by its label. Events around every kernel give its
time; what is missing from the whole is the time between kernels, which the host takes to start them.
"""

import statistics
from typing import Annotated, Any

import torch
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from benchmarks import record
from benchmarks.search_gpu import K, seconds_of
from benchmarks.search_gpu_codes import drawn
from lookalike import hamming_topk
from lookalike.search.nvrtc import Kernels


def main(
    rows: Annotated[str, arg(help="Codes, comma-separated, searched in themselves.")] = "40007,532736",
    bits: Annotated[str, arg(help="Code lengths, comma-separated.")] = "128,256,512,1024",
    repeats: Annotated[int, arg(help="Searches; the median counts.")] = 5,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, print a table and write the results."""
    path = record.destination("profile_gpu", out, committed)
    step = record.Steps()
    timed: list[dict[str, Any]] = []
    result = {
        "gpu": {"name": torch.cuda.get_device_name(), "cuda": torch.version.cuda},
        "settings": {"k": K, "repeats": repeats},
        "search": timed,
    }
    for n in map(int, rows.split(",")):
        for length in map(int, bits.split(",")):
            step(f"{n:,} codes of {length} bits in themselves")
            timed.append({"rows": n, "bits": length, **_timed(n, length, repeats)})
            record.write(path, result)
    _show(timed)
    record.finish(path, result)


def _timed(n: int, bits: int, repeats: int) -> dict[str, Any]:
    codes = drawn(n, bits, torch.device("cuda"))
    labels = torch.arange(n, device="cuda") // 2

    def search() -> None:
        hamming_topk(codes, codes, K, query_labels=labels, backend="cuda")

    whole = seconds_of(search, repeats)
    kernels: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, seconds in _by_kernel(search).items():
            kernels.setdefault(name, []).append(seconds)
    medians = {name: round(statistics.median(seconds), 6) for name, seconds in kernels.items()}
    return {"seconds": round(whole, 6), "kernels": medians}


def _by_kernel(search: Any) -> dict[str, float]:
    """Return the seconds of each kernel in one search, with events around its launches."""
    events: list[tuple[str, Any, Any]] = []
    original = Kernels.launch

    def launch(self: Kernels, name: str, *arguments: Any, **options: Any) -> None:
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        original(self, name, *arguments, **options)
        end.record()
        events.append((name, start, end))

    Kernels.launch = launch  # type: ignore[method-assign]
    try:
        search()
    finally:
        Kernels.launch = original  # type: ignore[method-assign]
    torch.cuda.synchronize()
    totals: dict[str, float] = {}
    for name, start, end in events:
        totals[name] = totals.get(name, 0.0) + start.elapsed_time(end) / 1000
    return totals


def _show(timed: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in timed for name in row["kernels"]))
    table = Table("rows", "bits", "ms", *names, title=f"k = {K}, milliseconds")
    for row in timed:
        parts = (f"{1000 * row['kernels'].get(name, 0):.2f}" for name in names)
        table.add_row(f"{row['rows']:,}", str(row["bits"]), f"{1000 * row['seconds']:.2f}", *parts)
    Console(width=120).print(table)


if __name__ == "__main__":
    record.run(main)
