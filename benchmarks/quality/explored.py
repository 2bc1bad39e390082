"""Show the runs that chose the defaults: what was tried, how many bits flipped, which models were ready."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import record
from benchmarks.markdown import markdown
from benchmarks.quality.declared import QUALITY
from lookalike.analysis.readiness import DECISIVE_RANK, ENOUGH

NAMES = {"texts": "debian", "msmarco": "medquad", "sop": "emoji", "folder": "grocery"}  # reader -> its data here
UNTRAINED = "emoji, weights drawn at random"
DECISIVE = str(DECISIVE_RANK)
FIRST_SEEN_LATER = ("grocery", "cjk")  # data that nobody had looked at when the rule was frozen
RUNS, READINESS = "exploration.jsonl", "readiness"


def runs(results: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield the settings and metrics of every run, with the name of its data under `name`."""
    for run in _lines(RUNS, results):
        config = run["result"]["config"]
        untrained = config["model_options"].get("pretrained") is False
        name = UNTRAINED if untrained else NAMES.get(config["data"], config["data"])
        yield config | run["result"]["metrics"] | {"name": name}


def exploration() -> str:
    """Show the means of equal runs."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs():
        shared = (run["name"], run["pairs_per_batch"], run["learning_rate"], run["epochs"])
        found.setdefault((*shared, _described(run)), []).append(run)
    if not found:
        return ""
    lines = [
        [*key, *(f"{100 * mean(run[metric] for run in own):.1f}" for metric in ("recall@1", "recall@10")), len(own)]
        for key, own in sorted(found.items())
    ]
    header = ["data", "pairs per batch", "learning rate", "epochs", "", "R@1", "R@10", "runs"]
    return f"{markdown(header, lines)}\n\nFrom `benchmarks/results/{RUNS}`."


def flips() -> str:
    """Show the fraction of bits that differ between two looks at a sample, in first epochs of a warm start."""
    found: dict[tuple[Any, ...], list[list[float]]] = {}
    for run in _judged():
        if run["flips"]:
            key = (run["data"], run["learning_rate"], run["pairs_per_batch"], run["epochs"])
            found.setdefault(key, []).append(run["flips"])
    lines = [
        [*key, *(f"{mean(each(own) for own in looks):.0%}" for each in (_first, _tenth, max)), len(looks)]
        for key, looks in sorted(found.items())
    ]
    header = ["data", "learning rate", "pairs per batch", "epochs", "first look", "after a tenth", "most", "runs"]
    return f"{markdown(header, lines)}\n\nMeans over runs; from `benchmarks/results/{READINESS}.json`." if lines else ""


def readiness() -> str:
    """Show by data set how often the positive is nearer than the decisive negative, and what followed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in _judged():
        found.setdefault(run["data"], []).append(run)
    shares = {data: [run["beats"][DECISIVE] for run in own] for data, own in found.items()}
    lines = []
    for data in sorted(shares, key=lambda data: -mean(shares[data])):
        marked = f"{data} *" if data in FIRST_SEEN_LATER else data
        low, high = f"{min(shares[data]):.2f}", f"{max(shares[data]):.2f}"
        lines.append([marked, low if low == high else f"{low} to {high}", len(shares[data]), _outcome(found[data])])
    header = ["data", "positive nearer than the 32nd negative", "runs", "the first epoch"]
    note = f"Marked *: not looked at before the rule was frozen. From `benchmarks/results/{READINESS}.json`."
    return f"{markdown(header, lines)}\n\n{note}" if lines else ""


def collected(known: Iterable[Path]) -> dict[str, Any]:
    """Return what warm starts saw in the runs of files `cells.jsonl`.

    Args:
        known: The files; of equal runs the last counts.
    """
    found = {}
    for file in known:
        for run in map(json.loads, file.read_text().splitlines()):
            if "beats" in run.get("notes", {}):
                notes, config = run["notes"], run["result"]["config"]
                found[run["key"]] = {
                    "data": next(
                        data for data in QUALITY if NAMES.get(config["data"], config["data"]).startswith(data)
                    ),
                    **{name: config[name] for name in ("pairs_per_batch", "learning_rate", "epochs", "seed")},
                    "beats": notes["beats"],
                    "was_ready": notes["beats"][DECISIVE] >= ENOUGH,
                    "was_mined_to_the_end": notes["is_used"],
                    "flips": notes.get("flips", []),
                }
    return {"runs": sorted(found.values(), key=lambda run: [str(value) for value in run.values()][:5])}


def _judged() -> list[dict[str, Any]]:
    """Return what warm starts saw, run by run."""
    path = record.RESULTS / f"{READINESS}.json"
    return list(json.loads(path.read_text())["runs"]) if path.exists() else []


def _outcome(runs: list[dict[str, Any]]) -> str:
    if not any(run["was_ready"] for run in runs):
        return "random"
    given_up = [len(run["flips"]) for run in runs if not run["was_mined_to_the_end"]]
    if not given_up:
        return "mined"
    looks = f"{min(given_up)}" if min(given_up) == max(given_up) else f"{min(given_up)} to {max(given_up)}"
    return f"mined, given up at look {looks} in {len(given_up)} of {len(runs)} runs"


def _described(run: dict[str, Any]) -> str:
    if run["sampler"] == "random":
        return "random batches"
    start = "first epoch random" if run["warm_start"] == "off" else "warm start"
    if run["x_probation"]:
        start = f"warm start after {run['x_probation']:.0%} of the first epoch"
    size = run["neighbourhood"]
    is_one = size is None or size >= run["pairs_per_batch"]
    parts = [start, "one neighbourhood" if is_one else f"neighbourhoods of {size}"]
    parts += [f"hardness {run['hardness']:g}"] if run["hardness"] < 1 else []
    parts += [f"center {run['center']:g}"] if run["center"] < 1 else []
    parts += [f"masked above {run['mask_above']:g}"] if run["mask_above"] else []
    return ", ".join(parts)


def _first(looks: list[float]) -> float:
    return looks[0]


def _tenth(looks: list[float]) -> float:
    return looks[len(looks) // 10]


def _lines(name: str, results: Path | None = None) -> Iterator[dict[str, Any]]:
    path = (results or record.RESULTS) / name
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())
