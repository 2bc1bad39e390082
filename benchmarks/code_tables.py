"""The tables of what codes of several bits find, how far they err, and how fast they are searched."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.markdown import markdown

FIGURE = "overlap.svg"  # in docs/
DOCS = Path(__file__).parents[1] / "docs"
QUERIES = {"code": "code", "float": "floats"}


def _overlap() -> str:
    result = record.read("overlap")
    settings, data = result["settings"], result["data"]
    sizes = _sizes(result["overlap"])
    found = {(row["kind"], row["query"], row["data"], row["bytes"]): row["overlap"] for row in result["overlap"]}
    rows = [
        [
            kind,
            QUERIES[query],
            *(" / ".join(f"{100 * found[kind, query, each['data'], size]:.0f}" for size in sizes) for each in data),
        ]
        for kind, query in dict.fromkeys((row["kind"], row["query"]) for row in result["overlap"])
    ]
    error = max(row["standard_error"] for row in result["overlap"])
    described = "; ".join(f"{each['title']}, {each['n']:,} x {each['dim']}, {each['encoder']}" for each in data)
    note = (
        f"Percent of the true {settings['k']} nearest that are among the {settings['k']} found, at "
        f"{_listed(sizes)} bytes per vector, everything stored counted; {settings['queries']:,} queries, which leave "
        f"out themselves; standard error at most {100 * error:.1f}. {described}. FAISS {settings['faiss']}: the best "
        "of its settings; from `benchmarks/results/overlap.json`."
    )
    return f"{markdown(['code', 'query', *(each['data'] for each in data)], rows)}\n\n{note}"


def _overlap_errors() -> str:
    result = record.read("overlap")
    sizes = _sizes(result["errors"])
    found = {(row["data"], row["query"], row["bytes"]): row for row in result["errors"]}
    rows = []
    for each in result["data"]:
        for query, name in QUERIES.items():
            cells = [found[each["data"], query, size] for size in sizes]
            rows.append([each["data"], name, *(f"{row['error']:.4f} ({row['predicted']:.4f})" for row in cells)])
    note = (
        "Standard deviation of the error of an estimated cosine, over random pairs, and in brackets what "
        "`cosine_error` predicts from the spectrum; from `benchmarks/results/overlap.json`."
    )
    return f"{markdown(['data', 'query', *(f'{size} bytes' for size in sizes)], rows)}\n\n{note}"


def _overlap_figure() -> str:
    if not (DOCS / FIGURE).exists():
        return ""
    return f"![Fraction of the true 128 nearest that codes find, over bytes per vector, by kind of code]({FIGURE})"


def _search_scalar() -> str:
    result = record.read("search_scalar")
    settings = result["settings"]
    rows = [
        [
            row["dim"],
            row["bytes"],
            ", ".join(f"{count} x {width}" for width, count in row["groups"]),
            f"{row['gigapairs_per_second']['ours, labels']:.2f}",
            f"{row['faster_than_exact']:.1f}x",
            f"{row['faster_than_faiss_pq']:.1f}x",
            f"{row['slower_than_signs']:.1f}x",
        ]
        for row in result["search"]
    ]
    header = [
        "dimension",
        "bytes",
        "components x bits",
        "1e9 pairs/s",
        "faster than exact cosine",
        "than FAISS' PQ",
        "slower than as many signs",
    ]
    machine = result["machine"]
    note = (
        f"{settings['n']:,} clustered embeddings in themselves, k = {settings['k']}, labels excluded; interleaved, "
        f"best of {settings['repeats']}, CPU time of one thread, load {settings['load'][0]}. Exact cosine: the faster "
        f"of FAISS' `IndexFlatIP` and torch's products with topk. {machine['cores']} cores with {machine['popcount']}, "
        f"FAISS {settings['faiss']}; from `benchmarks/results/search_scalar.json`."
    )
    return f"{markdown(header, rows)}\n\n{note}"


def _sizes(rows: list[dict[str, Any]]) -> list[int]:
    return sorted({row["bytes"] for row in rows})


def _listed(sizes: list[int]) -> str:
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"


TABLES: dict[str, Callable[[], str]] = {
    "overlap": _overlap,
    "overlap_errors": _overlap_errors,
    "overlap_figure": _overlap_figure,
    "search_scalar": _search_scalar,
}
