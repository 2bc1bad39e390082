"""Measure what fraction of true neighbours codes of equal bytes find on real embeddings, beside FAISS' PQ and RaBitQ.

    python -m benchmarks.overlap INPUTS [--only medquad,debian] [--out FILE | --record]

INPUTS is the folder of `benchmarks.prepare`; embeddings are made once and kept there. A code's bytes are all that is
stored per vector, corrections included. Queries are drawn from the rows, and each leaves out itself. They are compared
as codes, as samplers compare them, and as floats with what codes stand for. FAISS compares floats with codes; for PQ,
queries are also replaced by what their codes stand for. RaBitQ gets as many principal components as fit, rotated, at
one to eight bits each. Inner products and Euclidean distances are tried with each, and the best setting counts.

Estimated cosines of random pairs are compared with true ones, and their errors with what `analysis.rounding` predicts.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from tyro.conf import Positional, arg

from benchmarks import record
from benchmarks.embedded import EMBEDDED, embeddings
from lookalike import ScalarHasher, SignHasher, hamming_topk, scalar_topk
from lookalike.analysis import overlap
from lookalike.analysis.rounding import cosine_error
from lookalike.search.cosine import cosine_topk
from lookalike.utils.imports import optional_import

faiss = optional_import("faiss", "comparing with FAISS", "faiss-cpu")

BYTES = (16, 32, 64, 128)
K = 128
QUERIES = 2000
FEW = 1024  # rows that codes are fitted to, where a whole data set is not at hand
WIDTHS = (1, 2, 3, 4, 6, 8)  # bits per dimension of RaBitQ
METRICS = faiss.METRIC_L2, faiss.METRIC_INNER_PRODUCT


def main(
    inputs: Positional[Annotated[Path, arg(help="The folder of inputs.")]],
    only: Annotated[str, arg(help="Data sets, comma-separated.")] = ",".join(EMBEDDED),
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure all kinds of codes on each data set, print their overlaps and write the results."""
    names = only.split(",")
    path = record.destination("overlap", out, committed, whole=set(names) == {*EMBEDDED})
    step = record.Steps()
    data: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    for name in names:
        step(f"embedding {name}")
        x = embeddings(name, inputs)
        n, dim = x.shape
        data.append(
            {"data": name, "title": EMBEDDED[name].title, "encoder": EMBEDDED[name].encoder, "n": n, "dim": dim}
        )
        ids = torch.from_numpy(np.random.default_rng(0).choice(n, min(n, QUERIES), replace=False))
        true = cosine_topk(x[ids], x, K, query_labels=ids, reference_labels=torch.arange(n)).indices
        for size in BYTES:
            step(f"{name}: {n:,} embeddings of dimension {dim}, codes of {size} bytes")
            errors += [{"data": name, "bytes": size, **row} for row in _errors(x, size)]
            best: dict[tuple[str, str], Tensor] = {}
            for kind, query, found in _kinds(x, ids, size):
                shares = overlap(_without(found, ids), true)
                best[kind, query] = max(shares, best.get((kind, query), shares), key=torch.mean)
            for (kind, query), shares in best.items():
                row = {"data": name, "bytes": size, "kind": kind, "query": query}
                error = float(shares.std() / len(shares) ** 0.5)
                rows.append({**row, "overlap": round(float(shares.mean()), 4), "standard_error": round(error, 4)})
                print(f"  {kind}, queries as {query}s: {rows[-1]['overlap']:.3f}", flush=True)
    settings = {"k": K, "queries": QUERIES, "few": FEW, "widths": WIDTHS, "faiss": faiss.__version__}
    record.finish(path, {"settings": settings, "data": data, "overlap": rows, "errors": errors})


def _kinds(x: Tensor, ids: Tensor, size: int) -> Iterator[tuple[str, str, Tensor]]:
    """Yield kinds of codes, how queries are compared, and what was found: with FAISS, for each of its settings."""
    for kind, center in (("signs", 1.0), ("signs, half centred", 0.5)):
        signs = SignHasher(x.shape[1], 8 * size, center=center)
        signs.update_mean(x)
        codes = signs.encode(x)
        yield kind, "code", hamming_topk(codes[ids], codes, K + 1).indices
    shuffled = x[torch.from_numpy(np.random.default_rng(1).permutation(len(x)))]
    for kind, rows in (("several bits", len(x)), (f"several bits, fitted to {FEW:,} rows", FEW)):
        hasher = ScalarHasher(x.shape[1], 8 * size)
        for part in torch.split(shuffled[:rows], 128):  # as embeddings leave training, batch by batch
            hasher.update(part)
        scalar = hasher.encode(x)
        yield kind, "code", scalar_topk(scalar[ids], scalar, K + 1).indices
        yield kind, "float", _nearest(x[ids], hasher.decode(scalar), normalized=False)
    for metric in METRICS:
        product: Any = faiss.IndexPQ(x.shape[1], size, 8, metric)
        product.pq.cp.min_points_per_centroid = 1  # or FAISS warns, once per part of the dimensions
        index = _filled(product, x)
        yield "FAISS PQ", "float", _searched(index, x[ids])
        stand_for = torch.from_numpy(index.sa_decode(index.sa_encode(x.numpy())))
        for normalized in (False, True):
            yield "FAISS PQ", "code", _nearest(stand_for[ids], stand_for, normalized=normalized)
        for width in WIDTHS:
            if dims := _fitting(x.shape[1], size, width):
                index = _filled(faiss.index_factory(x.shape[1], f"PCAR{dims},RaBitQ{width}", metric), x)
                yield "FAISS RaBitQ", "float", _searched(index, x[ids])


def _errors(x: Tensor, size: int) -> Iterator[dict[str, Any]]:
    """Yield the standard deviation of the error of estimated cosines, measured on random pairs and predicted."""
    hasher = ScalarHasher(x.shape[1], 8 * size)
    hasher.update(x)
    codes, variances = hasher.encode(x), hasher.moments.spectrum().variances
    others = torch.from_numpy(np.random.default_rng(2).permutation(len(x)))
    true = (x * x[others]).sum(1).double()
    estimates = {
        "code": codes.scheme.cosines(codes.scheme.compare(codes.packed, codes.packed[others])),
        "float": (x * hasher.decode(codes)[others]).sum(1).double(),
    }
    for query, estimated in estimates.items():
        predicted = cosine_error(variances, 8 * size, float_query=query == "float")
        error = float((estimated - true).std())
        yield {"query": query, "error": round(error, 5), "predicted": round(predicted, 5)}


def _fitting(dim: int, size: int, width: int) -> int:
    """Return how many dimensions fit into a code of RaBitQ of `size` bytes at `width` bits each."""
    fitting = (dims for dims in range(8, dim + 1, 8) if faiss.IndexRaBitQ(dims, METRICS[0], width).code_size <= size)
    return max(fitting, default=0)


def _filled(index: Any, x: Tensor) -> Any:
    index.train(x.numpy())
    index.add(x.numpy())
    return index


def _searched(index: Any, query: Tensor) -> Tensor:
    return torch.from_numpy(index.search(query.numpy(), K + 1)[1])


def _nearest(query: Tensor, reference: Tensor, *, normalized: bool) -> Tensor:
    """Return the K + 1 rows with the largest inner product, or the largest cosine."""
    if normalized:
        reference = torch.nn.functional.normalize(reference, dim=1)
    return torch.cat([(part @ reference.T).topk(K + 1, dim=1).indices for part in torch.split(query, 256)])


def _without(found: Tensor, ids: Tensor) -> Tensor:
    """Take each query itself out of its K + 1 neighbours, or else the last of them, int64 [q, K]."""
    own = found == ids[:, None]
    own[:, -1] |= ~own.any(1)
    return found[~own].view(len(found), -1)


if __name__ == "__main__":
    record.run(main)
