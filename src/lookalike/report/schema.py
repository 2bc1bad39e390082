"""What is taken from the files of runs, comparisons, analyses and benchmarks: values that the figures can draw unseen.

Every function returns its content with the values that do not fit left out, which the checker records; None where
nothing is left of use.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lookalike.report.checking import (
    BITS,
    COSINE,
    COUNT,
    INTEGER,
    LIST,
    NOT_NEGATIVE,
    NUMBER,
    OBJECT,
    POSITIVE,
    SHARE,
    TEXT,
    Kind,
    list_of,
    optional,
)
from lookalike.training.comparison_results import METRICS

if TYPE_CHECKING:
    from lookalike.report.checking import Checker

LONGEST_NAME = 80  # characters of a sampler or a method
NARROWEST = 1e-6  # of a bar in a histogram
NAME = Kind(
    f"a name of up to {LONGEST_NAME} letters", lambda value: TEXT.fits(value) and 0 < len(value) <= LONGEST_NAME
)
ROW = "the row is left out"
NUMBERED = Kind("the number of an epoch", lambda value: INTEGER.fits(value) and 0 <= value < 10**6)
SETTINGS = {
    "bits": BITS,
    "epochs": COUNT,
    "pairs_per_batch": COUNT,
    "hardness": SHARE,
    "seed": INTEGER,
    "data": TEXT,
    "data_root": optional(TEXT),
    "data_checksum": optional(TEXT),
    "data_options": optional(OBJECT),
    "model": TEXT,
    "model_options": optional(OBJECT),
}
EPOCH = {
    **dict.fromkeys(METRICS, SHARE),
    "loss": NUMBER,
    "hardest_negative": COSINE,
    "mining_share": SHARE,
    "seconds": NOT_NEGATIVE,
    "mining_seconds": NOT_NEGATIVE,
    "kept_bytes": NOT_NEGATIVE,
    "bits": COUNT,
    "overlap": OBJECT,
    "positional_distance": OBJECT,
}
COSTS = {
    "seconds": optional(NOT_NEGATIVE),
    "mining_seconds_per_epoch": optional(NOT_NEGATIVE),
    "mining_share": optional(SHARE),
    "kept_bytes": optional(NOT_NEGATIVE),
}
TABLE = {
    "data": TEXT,
    "description": TEXT,
    "encoder": TEXT,
    "model": TEXT,
    "seeds": COUNT,
    "jobs": COUNT,
    "machine": OBJECT,
    "settings": Kind("an object with the settings of the samplers", lambda value: OBJECT.fits(value) and bool(value)),
}
SOME_ROWS = Kind("a list of rows", lambda value: LIST.fits(value) and bool(value))
EDGES = Kind(
    "a list of rising cosines",
    lambda value: (
        list_of(COSINE).fits(value) and len(value) > 1 and all(b - a >= NARROWEST for a, b in pairwise(value))
    ),
)


def checked_config(content: dict[str, Any], checker: Checker) -> dict[str, Any] | None:
    """Check the settings of a run."""
    if not checker.has(content, {"sampler": NAME}, "the run is left out"):
        return None
    return checker.kept(content, SETTINGS)


def checked_epochs(lines: list[tuple[str, dict[str, Any]]], checker: Checker) -> list[dict[str, Any]]:
    """Check the epochs of a run, by place and content; of an epoch that was written twice the last counts.

    Epoch 0, the model before training, is no part of what training did and not returned.
    """
    epochs = {}
    for place, line in lines:
        if not checker.has(line, {"epoch": NUMBERED}, "the line is left out", place):
            continue
        epoch = checker.kept(line, EPOCH, place)
        for name, kind in (("overlap", SHARE), ("positional_distance", NOT_NEGATIVE)):
            if name in epoch:
                kept = checker.kept(epoch[name], dict.fromkeys(epoch[name], kind), place, of=name)
                epoch[name] = {bits: value for bits, value in kept.items() if _is_bits(bits)}
        epochs[epoch["epoch"]] = epoch
    return [epoch for number, epoch in sorted(epochs.items()) if number > 0]


def checked_result(content: dict[str, Any], checker: Checker) -> dict[str, Any] | None:
    """Check the result of a run: its metrics must be complete."""
    otherwise = "the run is shown as far as its metrics go"
    shares = dict.fromkeys(METRICS, SHARE)
    if not checker.has(content, {"metrics": OBJECT}, otherwise):
        return None
    if not checker.has(content["metrics"], shares, otherwise):
        return None
    return {**dict.fromkeys(COSTS), **checker.kept(content, COSTS)}


def checked_comparison(content: dict[str, Any], checker: Checker) -> dict[str, Any] | None:
    """Check a table of samplers."""
    otherwise = "its runs are shown one by one"
    if not checker.has(content, {"rows": SOME_ROWS}, otherwise):
        return None
    rows = [_checked_row(row, place, checker) for place, row in checker.objects(content["rows"])]
    table = checker.kept(content, TABLE)
    table["rows"] = [row for row in rows if row is not None]
    if not table["rows"]:
        checker.leave_out(f"no row is left: {otherwise}")
        return None
    settings = table.get("settings", {})
    settings = checker.kept(settings, dict.fromkeys(settings, OBJECT), of="settings of")
    kinds = {"sampler": NAME, **SETTINGS}
    table["settings"] = {name: checker.kept(each, kinds, of=f"settings of {name}:") for name, each in settings.items()}
    table["machine"] = checker.kept(table.get("machine", {}), {"gpu": TEXT, "processor": TEXT}, of="machine")
    table.setdefault("jobs", 1)
    table.setdefault("seeds", max(len(row["recall@1"]["values"]) for row in table["rows"]) or 1)
    return table


def _checked_row(content: dict[str, Any], place: str, checker: Checker) -> dict[str, Any] | None:
    if not checker.has(content, {"sampler": NAME, "recall@1": OBJECT}, ROW, place):
        return None
    if not checker.has(content["recall@1"], {"mean": SHARE}, ROW, place, of="recall@1"):
        return None
    row = {**dict.fromkeys((*COSTS, *METRICS)), **checker.kept(content, COSTS, place)}
    for metric in METRICS:
        row[metric] = _spread(content, metric, place, checker)
    gain = checker.kept(content, {"gain_over_random": optional(OBJECT)}, place).get("gain_over_random")
    kinds = {"mean": NUMBER, "standard_error": NOT_NEGATIVE}
    known = gain is not None and checker.has(gain, kinds, "it is left out", place, of="gain_over_random")
    return {**row, "gain_over_random": gain if known else None}


def _spread(row: dict[str, Any], name: str, place: str, checker: Checker) -> dict[str, Any] | None:
    """Check a metric over seeds; None where it was not measured."""
    if name not in row or not checker.has(row, {name: OBJECT}, "it is left out", place):
        return None
    if not checker.has(row[name], {"mean": SHARE}, "it is left out", place, of=name):
        return None
    kept = checker.kept(row[name], {"sd": optional(NOT_NEGATIVE), "values": list_of(SHARE)}, place, of=name)
    return {"sd": None, "values": [], **kept}


def checked_analysis(content: dict[str, Any], checker: Checker) -> dict[str, Any] | None:
    """Check a study of codes."""
    otherwise = "the analysis is left out"
    rows = checker.kept(content, {"rows": LIST}).get("rows", [])
    about = {"n": COUNT, "dim": COUNT, "k": COUNT, "anchors": COUNT, "a": NUMBER}
    found: dict[str, Any] = {
        "settings": checker.part(content, "settings", about),
        "exact": checker.part(content, "exact", {"queries_per_second": POSITIVE}),
        "random": checker.part(content, "random", {"overlap": SHARE, "positional_distance": NOT_NEGATIVE}),
        "rows": [_checked_code(row, place, checker) for place, row in checker.objects(rows)],
        "histogram": _checked_histogram(content, checker),
    }
    found["rows"] = [row for row in found["rows"] if row is not None]
    if not found["rows"] and found["histogram"] is None:
        checker.leave_out(f"there are neither rows nor a histogram: {otherwise}")
        return None
    return found


def _checked_code(content: dict[str, Any], place: str, checker: Checker) -> dict[str, Any] | None:
    """Check what is known of a kind of codes of one length."""
    if not checker.has(content, {"method": NAME, "bits": COUNT}, ROW, place):
        return None
    row = checker.kept(content, {"compression": POSITIVE, "queries_per_second": POSITIVE}, place)
    row["overlap"] = _interval(content, "overlap", SHARE, place, checker)
    row["positional_distance"] = _interval(content, "positional_distance", NOT_NEGATIVE, place, checker)
    bound: Any = content.get("bound")
    shares = dict.fromkeys(("within_eps", "within_a_eps", "beyond"), SHARE)
    known = bound is not None and checker.has(content, {"bound": OBJECT}, "it is left out", place)
    row["bound"] = bound if known and checker.has(bound, shares, "it is left out", place, of="bound") else None
    return row


def _interval(row: dict[str, Any], name: str, kind: Kind, place: str, checker: Checker) -> dict[str, float] | None:
    """Check a mean with its confidence interval, whose ends may lie beyond what a mean can be."""
    if name not in row or not checker.has(row, {name: OBJECT}, "it is left out", place):
        return None
    if not checker.has(row[name], {"mean": kind}, "it is left out", place, of=name):
        return None
    found = checker.kept(row[name], {"low": NUMBER, "high": NUMBER}, place, of=name)
    mean: float = found["mean"]
    if not {"low", "high"} <= set(found):
        return {"mean": mean}
    most = 1.0 if kind is SHARE else found["high"]
    return {"mean": mean, "low": max(0.0, min(mean, found["low"])), "high": max(mean, min(most, found["high"]))}


def _checked_histogram(content: dict[str, Any], checker: Checker) -> dict[str, Any] | None:
    found = content.get("histogram")
    if not found or not checker.has(content, {"histogram": OBJECT}, "it is left out"):
        return None
    if not checker.has(found, {"edges": EDGES}, "it is left out", of="histogram"):
        return None
    bars = len(found["edges"]) - 1
    tally = Kind(
        f"{bars} counts, one between every two edges",
        lambda value: list_of(NOT_NEGATIVE).fits(value) and len(value) == bars,
    )
    by_bits = checker.kept(found, {"lsh": optional(OBJECT)}, of="histogram").get("lsh") or {}
    by_bits = checker.kept(by_bits, dict.fromkeys(by_bits, tally), of="histogram of lsh:")
    by_bits = {bits: counts for bits, counts in by_bits.items() if _is_bits(bits)}
    exact = checker.kept(found, {"exact": tally}, of="histogram").get("exact")
    return {"edges": found["edges"], "exact": exact, "lsh": by_bits} if exact or by_bits else None


def checked_benchmark(content: dict[str, Any], checker: Checker) -> dict[str, Any] | None:
    """Check the times of searches."""
    rows = []
    kinds = {"queries": COUNT, "rows": COUNT, "bits": COUNT, "seconds": POSITIVE}
    for place, row in checker.objects(content["search"]):
        if not checker.has(row, kinds, ROW, place):
            continue
        others = checker.kept(row, {"others_seconds": OBJECT}, place).get("others_seconds", {})
        others = checker.kept(others, dict.fromkeys(others, POSITIVE), place, of="others_seconds")
        rows.append({**row, "others_seconds": others})
    if not rows:
        checker.leave_out("no row is left: the benchmark is left out")
        return None
    return {"search": rows, "gpu": checker.part(content, "gpu", {"name": TEXT})}


def _is_bits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7 and int(text) > 0
