"""Time Hamming search on a GPU against exact search by matrix products there, from codes to sorted neighbours.

    python -m benchmarks.search_gpu [--quick] [--out FILE | --record]

Ours is timed on whole self-joins, labels excluded. The others compare every query with every row, so a slice of the
queries gives their rate. Before anything is timed, answers spread over the data are compared with the plain backend's.
Results are written after every row, so an interrupted run keeps them.
"""

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import torch
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from benchmarks import record
from lookalike import SignHasher, hamming_topk
from lookalike.data.synthetic import clustered_embeddings
from lookalike.search import plain
from lookalike.search.request import checked_request

K = 128
DIM = 768
ROWS = "25882,35532,40007,59551,532736"  # the training sets of the paper's timing table
CORPUS = 8_841_823  # passages of MS MARCO
BIT_PRODUCTS = 5.2e15  # per second, measured on an H200: mma.sync, one bit, and + popcount
SCORES = 1 << 29  # similarities in memory at a time

Matrix = torch.Tensor


def main(
    rows: Annotated[str, arg(help="Numbers of samples, comma-separated.")] = ROWS,
    bits: Annotated[str, arg(help="Code lengths, comma-separated.")] = "128,256,512,1024",
    repeats: Annotated[int, arg(help="Timings; the median counts.")] = 7,
    slice_size: Annotated[int, arg(name="slice", help="Queries of the others, at most.")] = 8192,
    corpus: Annotated[bool, arg(help="Also all queries of the last row in 8.8 M codes.")] = False,
    others: Annotated[bool, arg(help="Time exact search as well.")] = True,
    quick: Annotated[bool, arg(help="One size, two lengths: seconds instead of minutes.")] = False,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, print a table and write the results."""
    path = record.destination("search_gpu", out, committed, whole=not quick)
    if quick:
        rows, bits, repeats, slice_size = "25882", "128,512", 3, 2048
    lengths = [int(part) for part in bits.split(",")]
    result: dict[str, Any] = {
        "gpu": {"name": torch.cuda.get_device_name(), "cuda": torch.version.cuda},
        "settings": {"k": K, "dim": DIM, "repeats": repeats, "slice": slice_size, "bit_products": BIT_PRODUCTS},
        "search": [],
    }
    step = record.Steps()
    sizes = [int(part) for part in rows.split(",")]
    for n in sizes:
        step(f"{n:,} embeddings of dimension {DIM}" + (", timing exact search" if others else ""))
        x, labels = (part.cuda() for part in clustered_embeddings(n, DIM, seed=n))
        codes = _codes(x, max(lengths))
        exact = _exact(x, labels, slice_size) if others else {}
        for length in lengths:
            step(f"{n:,} codes of {length} bits in themselves")
            short = codes[:, : length // 8].contiguous()
            peers = exact | (_int8(short, labels, slice_size) if others else {})
            result["search"].append(_row(short, short, labels, labels, repeats, peers))
            record.write(path, result)
        if corpus and n == sizes[-1]:
            del x
            for length in lengths:
                step(f"{n:,} codes of {length} bits in {CORPUS:,}")
                short = codes[:, : length // 8].contiguous()
                result["search"].append(_row(short, _noisy_copies(short, CORPUS), None, None, max(1, repeats // 3), {}))
                record.write(path, result)
    _show(result)
    record.finish(path, result)


def _codes(x: Matrix, length: int) -> Matrix:
    hasher = SignHasher(DIM, length).cuda()
    hasher.update_mean(x)
    return hasher.encode(x)


def _row(
    queries: Matrix,
    reference: Matrix,
    query_labels: Matrix | None,
    labels: Matrix | None,
    repeats: int,
    peers: dict[str, float],
) -> dict[str, Any]:
    options: dict[str, Any] = {"query_labels": query_labels, "reference_labels": labels}
    check(queries, reference, options)
    seconds = seconds_of(lambda: hamming_topk(queries, reference, K, backend="cuda", **options), repeats)
    length, pairs = 8 * queries.shape[1], len(queries) * len(reference)
    floor = pairs * max(256, length) / BIT_PRODUCTS
    return {
        "queries": len(queries),
        "rows": len(reference),
        "bits": length,
        "seconds": round(seconds, 6),
        "share_of_floor": round(floor / seconds, 4),
        "others_seconds": {name: round(pairs / rate, 4) for name, rate in peers.items()},
        "faster_by": {name: round(pairs / rate / seconds, 2) for name, rate in peers.items()},
    }


def check(queries: Matrix, reference: Matrix, options: dict[str, Any], backend: str = "cuda") -> None:
    """Compare the answers of queries spread over the data with the plain backend's, and exit if they differ."""
    found = hamming_topk(queries, reference, K, backend=backend, **options)
    some = torch.arange(0, len(queries), max(1, len(queries) // 48), device=queries.device)
    query_labels = None if options["query_labels"] is None else options["query_labels"][some]
    request = checked_request(queries[some], reference, K, (query_labels, options["reference_labels"]))
    expected = plain.topk(request)
    for name in expected._fields:
        if not torch.equal(getattr(found, name)[some], getattr(expected, name)):
            raise SystemExit(
                f"{8 * queries.shape[1]} bits, {len(reference)} rows: {name} differ from the plain backend's"
            )


def _exact(x: Matrix, labels: Matrix, slice_size: int) -> dict[str, float]:
    """Measure the pairs per second of exact cosine search, by precision."""
    rates = {}
    for name, dtype, tf32 in (
        ("fp32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("bf16", torch.bfloat16, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        vectors = x.to(dtype)
        rates[f"cosine, {name}"] = rate(lambda a, b: a @ b.T, vectors, vectors, labels, slice_size)
    torch.backends.cuda.matmul.allow_tf32 = False
    return rates


def _int8(codes: Matrix, labels: Matrix, slice_size: int) -> dict[str, float]:
    """Measure the pairs per second of the same Hamming search as products of +-1 in int8."""
    shifts = torch.arange(8, dtype=torch.uint8, device=codes.device)
    signs = ((codes.unsqueeze(-1) >> shifts & 1).to(torch.int8) * 2 - 1).flatten(1)
    padded = torch.nn.functional.pad(signs, (0, 0, 0, -len(signs) % 8))  # as the product requires

    def product(a: Matrix, b: Matrix) -> Matrix:
        scores: Matrix = torch._int_mm(a, b.T)[:, : len(labels)]  # noqa: SLF001 - torch has no public one
        return scores

    return {"int8": rate(product, signs, padded, labels, slice_size)}


def rate(
    product: Callable[[Matrix, Matrix], Matrix], queries: Matrix, reference: Matrix, labels: Matrix, slice_size: int
) -> float:
    """Measure the pairs per second of matrix product, label mask and topk, tile by tile."""
    tile = max(32, min(slice_size, SCORES // len(reference) // 32 * 32))
    count = min(len(queries) // 32 * 32, slice_size // tile * tile)

    def search() -> None:
        for first in range(0, count, tile):
            part = slice(first, min(first + tile, count))
            scores = product(queries[part], reference)
            scores.masked_fill_(labels[part, None] == labels, -(1 << 14))
            scores.topk(K, dim=1)

    return count * len(labels) / seconds_of(search, 2)


def seconds_of(call: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a call after a first one that compiles and fills caches: GPU time if there is one."""
    call()
    return statistics.median(
        (_device_seconds if torch.cuda.is_available() else _wall_seconds)(call) for _ in range(repeats)
    )


def _device_seconds(call: Callable[[], Any]) -> float:
    event: Any = torch.cuda.Event
    start, end = event(enable_timing=True), event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000


def _wall_seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _noisy_copies(codes: Matrix, n: int) -> Matrix:
    """Draw n of the codes, each with an eighth of its bits flipped."""
    generator = torch.Generator(codes.device).manual_seed(0)

    def drawn(high: int, shape: tuple[int, ...], dtype: torch.dtype) -> Matrix:
        return torch.randint(high, shape, dtype=dtype, device=codes.device, generator=generator)

    many = codes[drawn(len(codes), (n,), torch.int64)]
    flips = drawn(256, tuple(many.shape), torch.uint8)
    for _ in range(2):
        flips &= drawn(256, tuple(many.shape), torch.uint8)
    return many ^ flips


def _show(result: dict[str, Any]) -> None:
    peers = list(dict.fromkeys(name for row in result["search"] for name in row["faster_by"]))
    title = f"{result['gpu']['name']}, k = {K}: seconds, share of the arithmetic floor, faster by"
    table = Table("queries", "rows", "bits", "seconds", "of floor", *peers, title=title)
    for row in result["search"]:
        ratios = (f"{row['faster_by'][name]:.1f}" if name in row["faster_by"] else "" for name in peers)
        numbers = (f"{row['queries']:,}", f"{row['rows']:,}", str(row["bits"]), f"{row['seconds']:.4f}")
        table.add_row(*numbers, f"{row['share_of_floor']:.0%}", *ratios)
    Console().print(table)


if __name__ == "__main__":
    record.run(main)
