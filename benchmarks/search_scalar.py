"""Time the search of codes of several bits on the CPU against exact search and FAISS, interleaved, best of several.

    python -m benchmarks.search_scalar [--quick] [--out FILE | --record]

Times are compared as pairs per second, in CPU time of one thread. Exact search, FAISS and FAISS' PQ compare every
query with every row, so a slice of the queries gives their rate; ours is timed on the whole data set searched in
itself. Exact search is the faster of FAISS' `IndexFlatIP` and of a matrix product with topk in torch. Before anything
is timed, answers spread over the data are compared with the plain backend's. The embeddings are drawn with seeds that
nothing was tuned on.
"""

import os

os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")  # FAISS' BLAS may otherwise pick kernels four times as slow

import time
from collections.abc import Callable
from typing import Annotated, Any

import torch
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from benchmarks import record
from lookalike import ScalarCodes, ScalarHasher, SignHasher, hamming_topk, scalar_topk
from lookalike.data.synthetic import clustered_embeddings
from lookalike.search import plain
from lookalike.search.cosine import cosine_topk
from lookalike.search.request import checked_request
from lookalike.utils.imports import optional_import

faiss = optional_import("faiss", "comparing with FAISS", "faiss-cpu")

K = 128
SEED = 30
DIMS = 384, 768
BYTES = 16, 32, 64, 128
ROWS = 59_551  # training samples of Stanford Online Products
SLICE = 256  # queries of exact search
SOME = 48  # queries that the plain backend answers too

Task = tuple[int, Callable[[], Any]]  # pairs compared, and the call


def main(
    repeats: Annotated[int, arg(help="Rounds; the best of each competitor counts.")] = 5,
    quick: Annotated[bool, arg(help="Few rows, one round: seconds instead of minutes.")] = False,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, print a table of ratios and write the results."""
    path = record.destination("search_scalar", out, committed, whole=not quick)
    n, repeats = (4000, 1) if quick else (ROWS, repeats)
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    step, rows = record.Steps(), []
    for dim in DIMS:
        step(f"{n:,} embeddings of dimension {dim}")
        x, labels = clustered_embeddings(n, dim, seed=SEED)
        signs = SignHasher(dim, 8 * max(BYTES))
        signs.update_mean(x)
        sign_codes = signs.encode(x)
        for size in BYTES:
            step(f"dimension {dim}: codes of {size} bytes in themselves")
            hasher = ScalarHasher(dim, 8 * size)
            hasher.update(x)
            codes = hasher.encode(x)
            _check(codes, labels)
            as_short = sign_codes[:, :size].contiguous()
            rates = _rates(_tasks(codes, as_short, x, labels), repeats)
            exact = max(rates["FAISS, exact cosine"], rates["torch, exact cosine"])
            rows.append(
                {
                    "dim": dim,
                    "bytes": size,
                    "groups": [list(group) for group in codes.scheme.groups],
                    "gigapairs_per_second": {name: round(rate / 1e9, 4) for name, rate in rates.items()},
                    "faster_than_exact": round(rates["ours, labels"] / exact, 2),
                    "faster_than_faiss_pq": round(rates["ours, labels"] / rates["FAISS, PQ"], 2),
                    "slower_than_signs": round(rates["signs, labels"] / rates["ours, labels"], 2),
                }
            )
    settings = {"n": n, "k": K, "repeats": repeats, "seed": SEED, "faiss": faiss.__version__}
    result = {"settings": {**settings, "load": [round(each, 1) for each in os.getloadavg()]}, "search": rows}
    _show(result)
    record.finish(path, result)


def _check(codes: ScalarCodes, labels: torch.Tensor) -> None:
    """Compare the answers of some queries with the plain backend's, and exit if they differ."""
    some = torch.arange(0, len(codes), max(1, len(codes) // SOME))
    found = scalar_topk(codes, codes, K, query_labels=labels, backend="cpu")
    request = checked_request(codes.packed[some], codes.packed, K, (labels[some], labels), scheme=codes.scheme)
    expected = plain.topk(request)
    for name in expected._fields:
        if not torch.equal(getattr(found, name)[some], getattr(expected, name)):
            raise SystemExit(f"codes of {codes.packed.shape[1]} bytes: {name} differ from the plain backend's")


def _tasks(codes: ScalarCodes, signs: torch.Tensor, x: torch.Tensor, labels: torch.Tensor) -> dict[str, Task]:
    n, few = len(x), x[:SLICE]
    exact = faiss.IndexFlatIP(x.shape[1])
    exact.add(x.numpy())
    product: Any = faiss.IndexPQ(x.shape[1], codes.packed.shape[1], 8)
    product.pq.cp.min_points_per_centroid = 1  # or FAISS warns, once per part of the dimensions
    product.train(x[:20_000].numpy())
    product.add(x.numpy())
    return {
        "ours, labels": (n * n, lambda: scalar_topk(codes, codes, K, query_labels=labels, backend="cpu")),
        "signs, labels": (n * n, lambda: hamming_topk(signs, signs, K, query_labels=labels, backend="cpu")),
        "FAISS, exact cosine": (SLICE * n, lambda: exact.search(few.numpy(), K)),
        "torch, exact cosine": (SLICE * n, lambda: cosine_topk(few, x, K)),
        "FAISS, PQ": (SLICE * n, lambda: product.search(few.numpy(), K)),
    }


def _rates(tasks: dict[str, Task], repeats: int) -> dict[str, float]:
    """Time the tasks in turns, and return the best rate of each, in pairs per second."""
    rates = dict.fromkeys(tasks, 0.0)
    for _ in range(repeats):
        for name, (pairs, call) in tasks.items():
            start = time.thread_time()
            call()
            rates[name] = max(rates[name], pairs / (time.thread_time() - start))
    return rates


def _show(result: dict[str, Any]) -> None:
    table = Table("dimension", "bytes", "Gpairs/s", "exact cosine", "FAISS' PQ", title="ours is faster by")
    for row in result["search"]:
        rate = row["gigapairs_per_second"]["ours, labels"]
        ratios = (f"{row['faster_than_exact']:.1f}x", f"{row['faster_than_faiss_pq']:.1f}x")
        table.add_row(str(row["dim"]), str(row["bytes"]), f"{rate:.2f}", *ratios)
    Console(width=100).print(table)


if __name__ == "__main__":
    record.run(main)
