"""Compare what each kind of code finds, at each length, with the true hard negatives."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lookalike.analysis.kinds import CODE_METHODS, Codes, chunks, make_codes, normalized_rows, possible_lengths
from lookalike.analysis.measures import NEIGHBOURS, bound_usage, overlap, positional_distance
from lookalike.hashing import ScalarCodes
from lookalike.search import hamming_topk, load_kernel, scalar_topk, search_backend
from lookalike.utils.checks import check_choice, checked_bits, checked_positive
from lookalike.utils.progress import progress_bar
from lookalike.utils.tensors import checked_labels

A = 1.1  # the paper's factor in its bound
ANCHORS_AT_A_TIME_BYTES = 1 << 28
BINS = 60


@dataclass(frozen=True)
class _Anchors:
    """Some anchors with their exact similarities and neighbours."""

    ids: Tensor  # int64 [m]
    similarity: Tensor  # float32 [m, n], minus infinity for excluded rows
    ascending: Tensor  # the same, sorted
    true: Tensor  # int64 [m, k]


def analyze(
    x: Any,
    labels: Any = None,
    *,
    bits: tuple[int, ...] = (128, 256, 512, 1024),
    k: int = NEIGHBOURS,
    anchors: int = 1000,
    methods: tuple[str, ...] = CODE_METHODS,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, Any]:
    """Compare what codes retrieve for a sample of anchors with their exact neighbours.

    Args:
        x: Embeddings, floats `[n, dim]`, a tensor or an array, which may be memory-mapped.
        labels: Integers `[n]`; rows with the anchor's label are excluded. Without labels only the anchor itself is.
        bits: Code lengths.
        k: Neighbours per anchor.
        anchors: Number of anchors; means come with a 95% confidence interval over them.
        methods: Kinds of codes, from `CODE_METHODS`.
        seed: Seed of the rotation and of the choice of anchors.
        progress: Show a bar on a terminal.

    Returns:
        What `lookalike analyze` writes as analysis.json: `settings`, `exact`, `random`, `rows`, `histogram`.

    Raises:
        ValueError: k, a length or a method is impossible.
    """
    n, dim = x.shape
    lengths = sorted(checked_bits(b) for b in bits)
    if checked_positive("k", k) >= n:
        raise ValueError(f"k must be below the number of embeddings, {n}, got {k}.")
    for method in methods:
        check_choice("methods", method, CODE_METHODS)
    values = torch.arange(n) if labels is None else checked_labels("labels", labels, n)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(n, generator=generator)[: min(anchors, n)].sort().values
    work = {(method, b): _Tally() for method in methods for b in possible_lengths(method, lengths, dim)}
    exact = _Tally()
    edges = torch.linspace(-1, 1, BINS + 1)
    with progress_bar("analysing", len(work) + len(methods) + 1, shown=progress) as bar:
        tables: dict[str, dict[int, Codes]] = {}
        for method in methods:
            tables[method] = make_codes(method, x, possible_lengths(method, lengths, dim), seed)
            bar.advance(1)
        load_kernel()  # before anything is timed
        found, backend = {}, ""
        for (method, b), tally in work.items():
            codes = tables[method][b]
            if isinstance(codes, Tensor):
                backend = search_backend(codes[chosen], codes, k)
            found[method, b], tally.seconds = _searched(codes, chosen, values, k)
            bar.advance(1)
        step = max(1, ANCHORS_AT_A_TIME_BYTES // (4 * n))
        for first in range(0, len(chosen), step):
            part, exact_seconds = _exact(x, chosen[first : first + step], values, k)
            exact.seconds += exact_seconds
            exact.add(part.true, part, edges)
            for key, tally in work.items():
                tally.add(found[key][first : first + step], part, edges)
        bar.advance(1)
    rows = [
        {
            "method": method,
            "bits": b,
            "bytes": b // 8,
            "compression": 32 * dim / b,
            **tally.row(len(chosen)),
        }
        for (method, b), tally in work.items()
    ]
    _, numbered = torch.unique(values, return_inverse=True)
    candidates = float((n - torch.bincount(numbered)[numbered[chosen]]).double().mean())
    return {
        "settings": {
            "n": n,
            "dim": dim,
            "k": k,
            "anchors": len(chosen),
            "a": A,
            "labels": labels is not None,
            "seed": seed,
            "backend": backend,
            "threads": torch.get_num_threads(),
        },
        "exact": {
            "similarity": float(torch.cat(exact.similarity).double().mean()),
            "queries_per_second": len(chosen) / exact.seconds,
        },
        # Of k candidates at random: each true neighbour is among them with this probability, and a random row is off
        # its place in the true ranking by about half the candidates.
        "random": {"overlap": k / candidates, "positional_distance": (candidates - k) / 2},
        "rows": rows,
        "histogram": {
            "edges": edges.tolist(),
            "exact": exact.counts(),
            "lsh": {str(b): tally.counts() for (method, b), tally in work.items() if method == "lsh"},
        },
    }


class _Tally:
    """Measures of one kind of code at one length, anchor by anchor."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.overlap: list[Tensor] = []
        self.position: list[Tensor] = []
        self.similarity: list[Tensor] = []
        self.bound: list[tuple[int, dict[str, float]]] = []
        self.histogram: Tensor | None = None

    def add(self, found: Tensor, anchors: _Anchors, edges: Tensor) -> None:
        self.overlap.append(overlap(found, anchors.true))
        self.position.append(positional_distance(found, anchors.similarity, anchors.ascending))
        values = anchors.similarity.gather(1, found.clamp(min=0))[found >= 0]
        self.similarity.append(values)
        self.bound.append((len(found), bound_usage(found, anchors.true, anchors.similarity, A)))
        counts = torch.histogram(values, edges).hist
        self.histogram = counts if self.histogram is None else self.histogram + counts

    def counts(self) -> list[int]:
        assert self.histogram is not None  # noqa: S101 - our own invariant
        return [int(count) for count in self.histogram]

    def row(self, anchors: int) -> dict[str, Any]:
        total = sum(size for size, _ in self.bound)
        return {
            "overlap": _interval(torch.cat(self.overlap)),
            "positional_distance": _interval(torch.cat(self.position)),
            "similarity": float(torch.cat(self.similarity).double().mean()),
            "bound": {
                name: sum(size * shares[name] for size, shares in self.bound) / total for name in self.bound[0][1]
            },
            "queries_per_second": anchors / self.seconds,
        }


def _interval(values: Tensor) -> dict[str, float]:
    """Return the mean with its 95% confidence interval over anchors."""
    mean = float(values.mean())
    half = 1.96 * float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {"mean": mean, "low": mean - half, "high": mean + half}


def _searched(codes: Codes, anchors: Tensor, labels: Tensor, k: int) -> tuple[Tensor, float]:
    search: Any = scalar_topk if isinstance(codes, ScalarCodes) else hamming_topk
    queries = codes[anchors]
    began = time.perf_counter()
    found: Tensor = search(queries, codes, k, query_labels=labels[anchors], reference_labels=labels).indices
    return found, time.perf_counter() - began


def _exact(x: Any, ids: Tensor, labels: Tensor, k: int) -> tuple[_Anchors, float]:
    queries = normalized_rows(x, ids.numpy())
    began = time.perf_counter()
    similarity = torch.cat([queries @ part.T for part in chunks(x)], dim=1)
    similarity.masked_fill_(labels[ids, None] == labels, -torch.inf)
    scores, true = similarity.topk(k, dim=1)
    seconds = time.perf_counter() - began
    true = true.masked_fill(scores == -torch.inf, -1)
    return _Anchors(ids, similarity, similarity.sort(dim=1).values, true), seconds
