"""Search times by size, as `lookalike bench search` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lookalike.report.records import kinds

if TYPE_CHECKING:
    from lookalike.report.records.checks import Checker


@dataclass(frozen=True)
class SearchRow:
    """Seconds to search `queries` codes among `references`, and what other searches take."""

    queries: int
    references: int
    bits: int
    seconds: float
    others_seconds: dict[str, float]


@dataclass(frozen=True)
class SearchBenchmark:
    """Search times on one machine."""

    rows: list[SearchRow]
    gpu: str


def parse_benchmark(content: dict[str, Any], checker: Checker) -> SearchBenchmark | None:
    """Check a search benchmark, whose `search` is a list; None if no row can be shown."""
    rows = []
    required = {"queries": kinds.COUNT, "rows": kinds.COUNT, "bits": kinds.COUNT, "seconds": kinds.POSITIVE}
    for place, row in checker.rows(content["search"]):
        if checker.has(row, required, "skipped the row", place):
            others = checker.kept(row, {"others_seconds": kinds.OBJECT}, place).get("others_seconds", {})
            others = checker.kept(others, dict.fromkeys(others, kinds.POSITIVE), place, of="others_seconds")
            rows.append(SearchRow(row["queries"], row["rows"], row["bits"], row["seconds"], others))
    if not rows:
        checker.note("no row can be shown; skipped the benchmark")
        return None
    return SearchBenchmark(rows, checker.part(content, "gpu", {"name": kinds.TEXT}).get("name", ""))
