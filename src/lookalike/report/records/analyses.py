"""Read analysis.json: what codes keep of exact search."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lookalike.report.records import kinds

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.report.records.checks import Checker

NARROWEST = 1e-6  # bar of a histogram
IGNORED = "ignored"  # what happens to a damaged part
SETTINGS = {**dict.fromkeys(("n", "dim", "k", "anchors"), kinds.COUNT), "a": kinds.NUMBER}
EDGES = kinds.Kind(
    "a list of rising cosines",
    lambda value: (
        kinds.list_of(kinds.COSINE).fits(value)
        and len(value) > 1
        and all(b - a >= NARROWEST for a, b in pairwise(value))
    ),
)


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval, if that is known."""

    mean: float
    ends: tuple[float, float] | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """Every number that an axis has to span."""
        return (self.mean, *(self.ends or ()))


@dataclass(frozen=True)
class BoundUsage:
    """Fractions of the retrieved samples: as near as the last true neighbour, within `a` times that, or farther."""

    within_eps: float
    within_a_eps: float
    beyond: float


@dataclass(frozen=True, kw_only=True)
class CodeRow:
    """Codes of one method and length."""

    method: str
    bits: int
    overlap: Interval | None = None
    positional_distance: Interval | None = None
    bound: BoundUsage | None = None
    compression: float | None = None
    queries_per_second: float | None = None


@dataclass(frozen=True)
class Histogram:
    """Counts of cosines between anchors and their negatives: the true ones, and those found by number of bits."""

    edges: list[float]
    exact: list[float] | None
    by_bits: dict[int, list[float]]


@dataclass(frozen=True)
class AnalysisSettings:
    """What an analysis was made with."""

    n: int | None = None
    """Number of embeddings."""
    dim: int | None = None
    k: int | None = None
    """Neighbours per anchor."""
    anchors: int | None = None
    a: float | None = None
    """Multiple of the last true neighbour's distance up to which `BoundUsage` counts a sample as near."""


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """An analysis; None for what analysis.json does not say."""

    path: Path
    rows: list[CodeRow]
    histogram: Histogram | None = None
    settings: AnalysisSettings
    exact_queries_per_second: float | None = None
    random_overlap: float | None = None
    random_positional_distance: float | None = None

    @property
    def lsh_rows(self) -> list[CodeRow]:
        """The rows of our own codes, by number of bits."""
        return sorted((row for row in self.rows if row.method == "lsh"), key=lambda row: row.bits)


def parse_analysis(content: dict[str, Any], checker: Checker, *, path: Path) -> Analysis | None:
    """Check analysis.json; None if nothing in it can be shown."""
    listed = checker.kept(content, {"rows": kinds.LIST}).get("rows", [])
    parsed = [_parse_row(row, place, checker) for place, row in checker.rows(listed)]
    rows = [row for row in parsed if row is not None]
    histogram = _parse_histogram(content, checker)
    if not rows and histogram is None:
        checker.note("there are neither rows nor a histogram; skipped the analysis")
        return None
    exact = checker.part(content, "exact", {"queries_per_second": kinds.POSITIVE})
    random = checker.part(content, "random", {"overlap": kinds.FRACTION, "positional_distance": kinds.NOT_NEGATIVE})
    return Analysis(
        path=path,
        rows=rows,
        histogram=histogram,
        settings=AnalysisSettings(**checker.part(content, "settings", SETTINGS)),
        exact_queries_per_second=exact.get("queries_per_second"),
        random_overlap=random.get("overlap"),
        random_positional_distance=random.get("positional_distance"),
    )


def _parse_row(content: dict[str, Any], place: str, checker: Checker) -> CodeRow | None:
    if not checker.has(content, {"method": kinds.NAME, "bits": kinds.COUNT}, "skipped the row", place):
        return None
    return CodeRow(
        method=content["method"],
        bits=content["bits"],
        overlap=_parse_interval(content, "overlap", kinds.FRACTION, place, checker),
        positional_distance=_parse_interval(content, "positional_distance", kinds.NOT_NEGATIVE, place, checker),
        bound=_parse_bound(content, place, checker),
        **checker.kept(content, {"compression": kinds.POSITIVE, "queries_per_second": kinds.POSITIVE}, place),
    )


def _parse_interval(row: dict[str, Any], name: str, kind: kinds.Kind, place: str, checker: Checker) -> Interval | None:
    """Check a mean and its confidence interval, which is cut off where a mean cannot be."""
    found = checker.measured(row, name, kind, place)
    if found is None:
        return None
    mean = found["mean"]
    ends = checker.kept(found, {"low": kinds.NUMBER, "high": kinds.NUMBER}, place, of=name)
    if len(ends) < 2:
        return Interval(mean)
    highest = 1.0 if kind is kinds.FRACTION else ends["high"]
    return Interval(mean, (max(0.0, min(mean, ends["low"])), max(mean, min(highest, ends["high"]))))


def _parse_bound(row: dict[str, Any], place: str, checker: Checker) -> BoundUsage | None:
    fractions = dict.fromkeys(("within_eps", "within_a_eps", "beyond"), kinds.FRACTION)
    if row.get("bound") is None or not checker.has(row, {"bound": kinds.OBJECT}, IGNORED, place):
        return None
    if not checker.has(row["bound"], fractions, IGNORED, place, of="bound"):
        return None
    return BoundUsage(**{name: row["bound"][name] for name in fractions})


def _parse_histogram(content: dict[str, Any], checker: Checker) -> Histogram | None:
    found = content.get("histogram")
    if not found or not checker.has(content, {"histogram": kinds.OBJECT}, IGNORED):
        return None
    if not checker.has(found, {"edges": EDGES}, IGNORED, of="histogram"):
        return None
    bars = len(found["edges"]) - 1
    tally = kinds.Kind(
        f"a list of {bars} counts, one per bar",
        lambda value: kinds.list_of(kinds.NOT_NEGATIVE).fits(value) and len(value) == bars,
    )
    by_bits = checker.kept(found, {"lsh": kinds.optional(kinds.OBJECT)}, of="histogram").get("lsh") or {}
    by_bits = checker.kept(by_bits, {bits: tally for bits in by_bits if kinds.is_bits(bits)}, of="histogram of lsh:")
    exact = checker.kept(found, {"exact": tally}, of="histogram").get("exact")
    if not exact and not by_bits:
        return None
    return Histogram(found["edges"], exact, {int(bits): counts for bits, counts in by_bits.items()})
