"""Training with every strategy over several seeds: the paper's table, for any data."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch

from lookalike.data import load_data
from lookalike.encoders import ConvNet
from lookalike.files import write_text
from lookalike.machine import versions
from lookalike.settings import Settings, parse_strategy
from lookalike.training import train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lookalike.data.retrieval import RetrievalData

METRICS = ("recall@1", "recall@5", "recall@10", "recall@1%", "mrr@10")


def train_by_name(
    data: str | RetrievalData, settings: Settings, out: Path, *, model: dict[str, int], **options: Any
) -> dict[str, Any]:
    """Train the built-in network on a data set by name; the seed decides its first weights."""
    loaded = load_data(data, progress=True) if isinstance(data, str) else data
    torch.manual_seed(settings.seed)
    return train(ConvNet(**model), loaded, settings, out, model_options=model, **options)


def compare(
    data: str,
    strategies: list[str],
    seeds: int,
    settings: Settings,
    out: Path,
    *,
    model: dict[str, int],
    jobs: int = 1,
    device: str | None = None,
    force: bool = False,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train every strategy with seeds 0 to `seeds` - 1 and write compare.json and compare.md into `out`.

    Runs that are finished are not trained again, and those that were interrupted go on. With `jobs` above one, so many
    run at a time, which disturbs the times.

    Raises:
        ValueError: A strategy is unknown, or `out` holds runs of another configuration.
    """
    runs = [
        (replace(settings, seed=seed, **parse_strategy(strategy)), out / f"{strategy.replace(':', '-')}-seed{seed}")
        for seed in range(seeds)
        for strategy in strategies
    ]
    loaded = load_data(data, progress=True)
    report(loaded.description)
    results: dict[str, list[dict[str, Any]]] = {run[0].strategy: [] for run in runs}
    options = {"model": model, "device": device, "resume": not force, "force": force, "show_progress": jobs == 1}
    for done, (run, result) in enumerate(_trained(data, loaded, runs, jobs, options), 1):
        results[run.strategy].append(result)
        report(
            f"{done}/{len(runs)}  {run.strategy}, seed {run.seed}: "
            f"R@1 {result['metrics']['recall@1']:.2%} in {result['seconds']:.0f} s"
        )
    table = {
        "data": data,
        "description": loaded.description,
        "data_checksum": loaded.checksum,
        "model": results[runs[0][0].strategy][0]["config"]["model"],
        "settings": {
            name: value for name, value in asdict(settings).items() if name not in ("sampler", "bits", "seed")
        },
        "seeds": seeds,
        "jobs": jobs,
        "rows": summary(results),
        "machine": results[runs[0][0].strategy][0]["machine"],
        "versions": versions(),
    }
    write_text(out / "compare.json", json.dumps(table, indent=1) + "\n")
    write_text(out / "compare.md", markdown(table))
    return table


def _trained(
    data: str, loaded: RetrievalData, runs: list[tuple[Settings, Path]], jobs: int, options: dict[str, Any]
) -> Iterator[tuple[Settings, dict[str, Any]]]:
    if jobs == 1:
        for settings, folder in runs:
            yield settings, train_by_name(loaded, settings, folder, **options)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), initializer=torch.set_num_threads, initargs=(threads,)
    ) as pool:
        waiting = {pool.submit(train_by_name, data, *run, **options): run[0] for run in runs}
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
        deviation = "" if value["sd"] is None else f" ± {100 * value['sd']:.2f}"
        return f"{100 * value['mean']:.2f}{deviation}"

    gain = row.get("gain_over_random")
    return [
        row["sampler"],
        *(percent(row[metric]) for metric in METRICS),
        f"{100 * gain['mean']:+.2f} (s.e. {100 * gain['standard_error']:.2f})" if gain else "",
        "" if row["mining_seconds_per_epoch"] is None else f"{row['mining_seconds_per_epoch']:.2f} s",
        "" if row["mining_share"] is None else f"{row['mining_share']:.1%}",
        f"{row['kept_bytes'] / 1e6:.1f} MB",
    ]


HEADINGS = [
    "sampler", "R@1", "R@5", "R@10", "R@1%", "MRR@10", "R@1 over random", "mining per epoch", "of the epoch", "kept",
]  # fmt: skip


def markdown(table: dict[str, Any]) -> str:
    """The table with its conditions."""
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(cells(row) for row in table["rows"])]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{text}\n\n{conditions(table)}\n"


def conditions(table: dict[str, Any]) -> str:
    """What the figures hold for."""
    at_a_time = f", {table['jobs']} runs at a time" if table["jobs"] > 1 else ""
    return (
        f"{table['description'][0].upper()}{table['description'][1:]}. {table['model']}, "
        f"{table['settings']['epochs']} epochs, {table['settings']['batch_size']} pairs per batch, {table['seeds']} "
        f"seeds (mean ± standard deviation, in points); {table['machine'].get('gpu') or table['machine']['processor']}"
        f"{at_a_time}."
    )
