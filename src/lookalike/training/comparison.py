"""Training with every strategy over several seeds: the paper's table, for any data."""

from __future__ import annotations

import json
import math
import re
import statistics
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from lookalike.training.encoders import check_encoder, make_encoder
from lookalike.training.jobs import in_processes
from lookalike.training.run import finished_result, train
from lookalike.training.runs import RunFolder
from lookalike.utils.files import remove_leftovers, writable, write_text
from lookalike.utils.locks import locked
from lookalike.utils.machine import checked_device, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    from lookalike.data import DataSource
    from lookalike.data.retrieval import RetrievalData
    from lookalike.training.settings import Settings

TABLE, TEXT = "compare.json", "compare.md"
ZERO_SHOT = "before training"  # the name of its row
METRICS = ("recall@1", "recall@5", "recall@10", "recall@1%", "mrr@10")


class Built(NamedTuple):
    """An encoder, and the state of the random numbers after it was built."""

    encoder: nn.Module
    random: torch.Tensor


def build(model: dict[str, Any], seed: int) -> Built:
    """Build an encoder by name; the seed decides which weights it begins with where they are not pretrained."""
    torch.manual_seed(seed)
    return Built(make_encoder(**model), torch.get_rng_state())


def build_and_load(model: dict[str, Any], seed: int, source: DataSource) -> tuple[Built | None, RetrievalData]:
    """Build an encoder and load the data, first what fails sooner: images may take long to read, models to download.

    Args:
        model: Of `make_encoder`; empty where none is needed.
        seed: As in `build`.
        source: The data set.
    """
    loaded = source.load(progress=True) if source.is_table else None
    built = build(model, seed) if model else None
    return built, source.load(progress=True) if loaded is None else loaded


def train_by_name(
    source: DataSource,
    settings: Settings,
    out: Path,
    *,
    model: dict[str, Any],
    data: RetrievalData | None = None,
    built: Built | None = None,
    resume: bool = False,
    keep_checkpoint: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Train an encoder by name on a data set by name.

    Args:
        source: The data set.
        settings: How.
        out: The run's folder.
        model: Of `make_encoder`.
        data: The data set, where it is loaded already.
        built: The encoder, where it is built already.
        resume: As in `train`, and so are the following.
        keep_checkpoint: Keep the last checkpoint when the run ends.
        options: Of `train`.
    """
    loaded = source.load(progress=True) if data is None else data
    folder = RunFolder(out)
    if resume:
        known = {**asdict(settings), **source.as_config(), "model_options": model, "data_checksum": loaded.checksum}
        folder.check(known, resume=True, force=False)
        if (result := finished_result(folder, keep_checkpoint=keep_checkpoint)) is not None:
            return result  # without loading a model for it
    encoder, random = built or build(model, settings.seed)
    torch.set_rng_state(random)  # whatever came between, such as reading data
    return train(
        encoder,
        loaded,
        settings,
        out,
        model_options=model,
        source=source,
        resume=resume,
        keep_checkpoint=keep_checkpoint,
        **options,
    )


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

    Finished runs are not trained again, and interrupted ones are continued. With `jobs` above one, so many are trained
    at a time, which disturbs the times.

    Args:
        source: The data set.
        contenders: Settings by the name of a row.
        seeds: Runs per contender.
        out: The folder of the comparison, held by one process at a time.
        model: Of `make_encoder`.
        jobs: Runs at a time.
        device: As in `train`.
        force: Remove the runs in `out` first.
        report: Called with a line of text now and then.

    Raises:
        ValueError: `out` holds runs of another configuration.
        FolderInUseError: Another process works in `out` or one of its runs.
    """
    checked_device(device)
    check_encoder(**model)
    source.check()
    runs = [
        _Run(name, replace(settings, seed=seed), out / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-seed{seed}")
        for seed in range(seeds)
        for name, settings in contenders.items()
    ]
    if RunFolder(out).config.exists():
        raise ValueError(f"{out} is the folder of a run; a comparison needs one of its own, choose it with --out.")
    with locked(out):
        remove_leftovers(out / TABLE, out / TEXT)
        for run in runs:  # before hours are spent on the first
            RunFolder(run.folder).check_free(force=force)
            RunFolder(run.folder).check(asdict(run.settings), resume=not force, force=force)
        is_done = all(RunFolder(run.folder).result.exists() for run in runs) and not force
        built, loaded = build_and_load({} if is_done else model, runs[0].settings.seed, source)
        if force:
            _clear(out, runs)
        report(loaded.description)
        results: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
        options = {"model": model, "device": device, "resume": True, "show_progress": jobs == 1}
        for done, (run, result) in enumerate(_trained(source, loaded, built, runs, jobs, options), 1):
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
            "rows": [*zero_shot(results), *summary(results)],
            "machine": first["machine"],
            "versions": versions(),
        }
        with writable(out):
            write_text(out / TABLE, json.dumps(table, indent=1) + "\n")
            write_text(out / TEXT, markdown(table))
    return table


class _Run(NamedTuple):
    name: str
    settings: Settings
    folder: Path


def _clear(out: Path, runs: list[_Run]) -> None:
    """Remove a comparison: the table first, so that it never stands above runs that it does not count."""
    with writable(out):
        for name in (TABLE, TEXT):
            (out / name).unlink(missing_ok=True)
        for run in runs:
            if run.folder.is_dir():
                with RunFolder(run.folder).held():
                    RunFolder(run.folder).clear()


def _trained(
    source: DataSource,
    loaded: RetrievalData,
    built: Built | None,
    runs: list[_Run],
    jobs: int,
    options: dict[str, Any],
) -> Iterator[tuple[_Run, dict[str, Any]]]:
    if jobs > 1:
        tasks = {i: partial(train_by_name, source, run.settings, run.folder, **options) for i, run in enumerate(runs)}
        yield from ((runs[i], result) for i, result in in_processes(tasks, jobs))
        return
    for run in runs:
        # Building the first encoder again would give the same one: another seed gives another.
        fresh = built if run is runs[0] else None
        yield run, train_by_name(source, run.settings, run.folder, data=loaded, built=fresh, **options)


def zero_shot(results: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Make the row of the model before training; none where runs did not record it.

    With the same seed every strategy begins with the same weights, so the runs of one strategy tell it for all.
    """
    runs = sorted(next(iter(results.values())), key=lambda run: run["config"]["seed"])
    before = [run.get("zero_shot") for run in runs]
    if not all(before):
        return []
    nothing = {"seconds": None, "mining_seconds_per_epoch": None, "mining_share": None, "kept_bytes": None}
    metrics = {metric: _over_seeds([each[metric] for each in before if each]) for metric in METRICS}
    return [{"sampler": ZERO_SHOT, "runs": len(runs), **metrics, **nothing}]


def summary(results: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row per strategy: means and standard deviations over the seeds, in the order given."""
    rows = []
    for strategy, runs in results.items():
        row: dict[str, Any] = {"sampler": strategy, "runs": len(runs)}
        for metric in METRICS:
            ordered = sorted(runs, key=lambda run: run["config"]["seed"])
            row[metric] = _over_seeds([run["metrics"][metric] for run in ordered])
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


def _over_seeds(values: list[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "sd": deviation, "values": values}


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table, as text."""

    def percent(value: dict[str, Any]) -> str:
        is_one_model = row["sampler"] == ZERO_SHOT and value["sd"] == 0  # the same pretrained weights for every seed
        deviation = "" if value["sd"] is None or is_one_model else f" ±{100 * value['sd']:.2f}"
        return f"{100 * value['mean']:.2f}{deviation}"

    gain, seconds = row.get("gain_over_random"), row["mining_seconds_per_epoch"]
    return [
        row["sampler"],
        *(percent(row[metric]) for metric in METRICS),
        f"{100 * gain['mean']:+.2f} ±{100 * gain['standard_error']:.2f}" if gain else "",
        "" if seconds is None else f"{seconds:.2f} s, {row['mining_share']:.1%}",
        "" if row["kept_bytes"] is None else f"{row['kept_bytes'] / 1e6:.1f} MB",
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
    several = table["seeds"] > 1
    spread = ", ± standard deviation, over random (R@1) ± standard error" if several else ""
    at_a_time = f", {table['jobs']} runs at a time, so without times" if table["jobs"] > 1 else ""
    return (
        f"{about[0].upper()}{about[1:]}. {model[0].upper()}{model[1:]}, {settings['epochs']} epochs, "
        f"{settings['pairs_per_batch']} pairs per batch, {table['seeds']} seed{'s' if several else ''}; "
        f"in points{spread}; "
        f"{where}{at_a_time}."
    )
