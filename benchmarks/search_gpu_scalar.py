"""Time the search of codes of several bits on a GPU against exact search by bf16 products there.

    python -m benchmarks.search_gpu_scalar [--rows 532736] [--bytes 64] [--dims 165,190,248] [--out FILE | --record]

Random codes of as many dimensions share out the bits evenly: of 64 bytes, 165 dimensions get three bits each, 248 get
two, and 190 three or two. Codes are searched in themselves, and each leaves out itself and one other by a label. Before
anything is timed, answers spread over the data are compared with the plain backend's. Exact search is timed on a slice
of the queries.
"""

from typing import Annotated, Any

import torch
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from benchmarks import record
from benchmarks.search_gpu import DIM, K, rate, seconds_of
from lookalike import ScalarCodes, ScalarHasher, scalar_topk
from lookalike.search import plain
from lookalike.search.cuda_values import SLICE
from lookalike.search.request import checked_request

BYTE_PRODUCTS = 0.65e15  # per second, measured on an H200: mma.sync, int8


def main(
    rows: Annotated[str, arg(help="Numbers of codes, comma-separated, searched in themselves.")] = "59551,532736",
    num_bytes: Annotated[int, arg(name="bytes", help="Length of a code.")] = 64,
    dims: Annotated[str, arg(help="Dimensions that share out the bits, comma-separated.")] = "165,190,248",
    repeats: Annotated[int, arg(help="Timings; the median counts.")] = 7,
    slice_size: Annotated[int, arg(name="slice", help="Queries of exact search, at most.")] = 8192,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, print a table and write the results."""
    path = record.destination("search_gpu_scalar", out, committed)
    step = record.Steps()
    timed: list[dict[str, Any]] = []
    result = {
        "gpu": {"name": torch.cuda.get_device_name(), "cuda": torch.version.cuda},
        "settings": {"k": K, "dim": DIM, "repeats": repeats, "slice": slice_size, "byte_products": BYTE_PRODUCTS},
        "search": timed,
    }
    for n in map(int, rows.split(",")):
        labels = torch.arange(n, device="cuda") // 2
        step(f"{n:,} embeddings of dimension {DIM}, timing exact search")
        vectors = _directions(n, DIM).bfloat16()
        exact = rate(lambda a, b: a @ b.T, vectors, vectors, labels, slice_size)
        del vectors
        for dim in map(int, dims.split(",")):
            step(f"{n:,} codes of {num_bytes} bytes and {dim} dimensions in themselves")
            hasher = ScalarHasher(dim, 8 * num_bytes)
            x = _directions(n, dim)
            hasher.update(x)
            timed.append(_row(hasher.encode(x), labels, repeats, exact))
            record.write(path, result)
    _show(timed)
    record.finish(path, result)


def _directions(n: int, dim: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(n + dim)
    return torch.nn.functional.normalize(torch.randn(n, dim, device="cuda", generator=generator))


def _row(codes: ScalarCodes, labels: torch.Tensor, repeats: int, exact: float) -> dict[str, Any]:
    _check(codes, labels)
    seconds = seconds_of(lambda: scalar_topk(codes, codes, K, query_labels=labels, backend="cuda"), repeats)
    n, padded = len(codes), -(-codes.scheme.dims // SLICE) * SLICE
    return {
        "rows": n,
        "bytes": codes.packed.shape[1],
        "groups": [list(group) for group in codes.scheme.groups],
        "seconds": round(seconds, 6),
        "share_of_floor": round(n * n * padded / BYTE_PRODUCTS / seconds, 4),
        "exact_seconds": round(n * n / exact, 4),
        "faster_by": round(n * n / exact / seconds, 2),
    }


def _check(codes: ScalarCodes, labels: torch.Tensor) -> None:
    """Compare the answers of queries spread over the data with the plain backend's, and exit if they differ."""
    found = scalar_topk(codes, codes, K, query_labels=labels, backend="cuda")
    some = torch.arange(0, len(codes), max(1, len(codes) // 48), device=labels.device)
    request = checked_request(codes.packed[some], codes.packed, K, (labels[some], labels), scheme=codes.scheme)
    expected = plain.topk(request)
    for name in expected._fields:
        if not torch.equal(getattr(found, name)[some], getattr(expected, name)):
            raise SystemExit(f"{codes.scheme.groups}, {len(codes)} rows: {name} differ from the plain backend's")


def _show(timed: list[dict[str, Any]]) -> None:
    title = f"k = {K}: from codes to sorted neighbours"
    table = Table("rows", "bytes", "dimensions x bits", "ms", "of floor", f"bf16 cosine, d = {DIM}", title=title)
    for row in timed:
        groups = ", ".join(f"{count} x {width}" for width, count in row["groups"])
        numbers = (f"{1000 * row['seconds']:.1f}", f"{row['share_of_floor']:.0%}", f"{row['faster_by']:.1f}x")
        table.add_row(f"{row['rows']:,}", str(row["bytes"]), groups, *numbers)
    Console(width=100).print(table)


if __name__ == "__main__":
    record.run(main)
