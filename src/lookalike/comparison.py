"""Training with every strategy over several seeds: the paper's table, for any data."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from lookalike.encoders import make_encoder
from lookalike.files import write_text
from lookalike.machine import versions
from lookalike.runs import RunFolder
from lookalike.training import train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lookalike.data import DataSource
    from lookalike.data.retrieval import RetrievalData
    from lookalike.settings import Settings

METRICS = ("recall@1", "recall@5", "recall@10", "recall@1%", "mrr@10")


def train_by_name(
    source: DataSource,
    settings: Settings,
    out: Path,
    *,
    model: dict[str, Any],
    data: RetrievalData | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train an encoder by name on a data set by name; the seed decides what of its first weights is not pretrained.

    Args:
        source: The data set.
        settings: How.
        out: The run's folder.
        model: Of `make_encoder`.
        data: The data set, where it is loaded already.
        options: Of `train`.
    """
    loaded = source.load(progress=True) if data is None else data
    torch.manual_seed(settings.seed)
    return train(make_encoder(**model), loaded, settings, out, model_options=model, source=source, **options)


def compare(
    source: DataSource,
    contenders: dict[str, Settings],
    seeds: int,
    out: Path,
    *,
    model: dict[str, Any],
    jobs: int = 1,
    device: str | None = None,
    force: bool = False,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train every contender with seeds 0 to `seeds` - 1 and write compare.json and compare.md into `out`.

    Runs that are finished are not trained again, and those that were interrupted go on. With `jobs` above one, so many
    run at a time, which disturbs the times.

    Raises:
        ValueError: `out` holds runs of another configuration.
    """
    runs = [
        _Run(name, replace(settings, seed=seed), out / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-seed{seed}")
        for seed in range(seeds)
        for name, settings in contenders.items()
    ]
    loaded = source.load(progress=True)
    for run in runs:  # before hours are spent on the first
        RunFolder(run.folder).check(asdict(run.settings), resume=not force, force=force)
    report(loaded.description)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    options = {"model": model, "device": device, "resume": not force, "force": force, "show_progress": jobs == 1}
    for done, (run, result) in enumerate(_trained(source, loaded, runs, jobs, options), 1):
        results[run.name].append(result)
        report(
            f"{done}/{len(runs)}  {run.name}, seed {run.settings.seed}: "
            f"R@1 {result['metrics']['recall@1']:.2%} in {result['seconds']:.0f} s"
        )
    first = next(iter(results.values()))[0]
    table = {
        "data": Path(source.name).name,
        "data_options": source.options,
        "encoder": _encoder_name(model.get("encoder", "convnet")),
        "description": loaded.description,
        "data_checksum": loaded.checksum,
        "model": first["config"]["model"],
        "settings": {name: asdict(settings) for name, settings in contenders.items()},
        "seeds": seeds,
        "jobs": jobs,
        "rows": summary(results),
        "machine": first["machine"],
        "versions": versions(),
    }
    write_text(out / "compare.json", json.dumps(table, indent=1) + "\n")
    write_text(out / "compare.md", markdown(table))
    return table


class _Run(NamedTuple):
    name: str
    settings: Settings
    folder: Path


def _trained(
    source: DataSource, loaded: RetrievalData, runs: list[_Run], jobs: int, options: dict[str, Any]
) -> Iterator[tuple[_Run, dict[str, Any]]]:
    if jobs == 1:
        for run in runs:
            yield run, train_by_name(source, run.settings, run.folder, data=loaded, **options)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), initializer=torch.set_num_threads, initargs=(threads,)
    ) as pool:
        waiting = {pool.submit(train_by_name, source, run.settings, run.folder, **options): run for run in runs}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def summary(results: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row per strategy: means and standard deviations over the seeds, in the order given."""
    rows = []
    for strategy, runs in results.items():
        row: dict[str, Any] = {"sampler": strategy, "runs": len(runs)}
        for metric in METRICS:
            values = [run["metrics"][metric] for run in sorted(runs, key=lambda run: run["config"]["seed"])]
            row[metric] = {"mean": statistics.mean(values), "sd": _deviation(values), "values": values}
        for name in ("seconds", "mining_seconds_per_epoch", "mining_share"):
            known = [run[name] for run in runs if run[name] is not None]
            row[name] = statistics.mean(known) if known else None
        row["kept_bytes"] = runs[0]["kept_bytes"]
        rows.append(row)
    baseline = next((row for row in rows if row["sampler"] == "random"), None)
    for row in rows:
        if baseline is not None and row is not baseline and row["runs"] > 1:
            row["gain_over_random"] = _difference(row["recall@1"], baseline["recall@1"])
    return rows


def _difference(of: dict[str, Any], against: dict[str, Any]) -> dict[str, float]:
    """Of two means over independent seeds, with its standard error."""
    variances = [part["sd"] ** 2 / len(part["values"]) for part in (of, against)]
    return {"mean": of["mean"] - against["mean"], "standard_error": math.sqrt(sum(variances))}


def _deviation(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table, as text."""

    def percent(value: dict[str, Any]) -> str:
        deviation = "" if value["sd"] is None else f" ±{100 * value['sd']:.2f}"
        return f"{100 * value['mean']:.2f}{deviation}"

    gain, seconds = row.get("gain_over_random"), row["mining_seconds_per_epoch"]
    return [
        row["sampler"],
        *(percent(row[metric]) for metric in METRICS),
        f"{100 * gain['mean']:+.2f} ±{100 * gain['standard_error']:.2f}" if gain else "",
        "" if seconds is None else f"{seconds:.2f} s, {row['mining_share']:.1%}",
        f"{row['kept_bytes'] / 1e6:.1f} MB",
    ]


MINING = "mining, epoch"
HEADINGS = ["sampler", "R@1", "R@5", "R@10", "R@1%", "MRR@10", "over random", MINING, "kept"]


def markdown(table: dict[str, Any]) -> str:
    """The table with its conditions; without times where runs disturbed each other's."""
    shown = [i for i, heading in enumerate(HEADINGS) if table["jobs"] == 1 or heading != MINING]
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(cells(row) for row in table["rows"])]
    text = "\n".join("| " + " | ".join(line[i] for i in shown) + " |" for line in lines)
    return f"{text}\n\n{conditions(table)}\n"


def _encoder_name(encoder: str) -> str:
    """Without the folder of a local copy."""
    kind, colon, name = encoder.partition(":")
    return f"{kind}{colon}{Path(name).name}" if Path(name).expanduser().is_dir() and name else encoder


def conditions(table: dict[str, Any]) -> str:
    """What the figures hold for."""
    about, settings = table["description"], next(iter(table["settings"].values()))
    where = table["machine"].get("gpu") or table["machine"]["processor"]
    model = f"{table['encoder']}, {table['model']}" if "encoder" in table else table["model"]
    at_a_time = f", {table['jobs']} runs at a time, so without times" if table["jobs"] > 1 else ""
    return (
        f"{about[0].upper()}{about[1:]}. {model[0].upper()}{model[1:]}, {settings['epochs']} epochs, "
        f"{settings['batch_size']} pairs per batch, {table['seeds']} seeds; in points, ± standard deviation, over "
        f"random (R@1) ± standard error; {where}{at_a_time}."
    )
