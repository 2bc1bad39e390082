"""Train with several strategies over several seeds: the paper's table, for any data."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lookalike.training.comparison_results import ComparisonResult, summarize, zero_shot_rows
from lookalike.training.jobs import in_processes
from lookalike.training.run import Plan, check_run, train
from lookalike.training.run_folder import RunFolder
from lookalike.training.settings import Settings, parse_strategy
from lookalike.utils import ranks
from lookalike.utils.checks import checked_positive
from lookalike.utils.files import remove_leftovers, writable, write_text
from lookalike.utils.locks import locked
from lookalike.utils.machine import versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lookalike.data.retrieval import RetrievalData
    from lookalike.training.results import RunResult
    from lookalike.training.run import Data, Model

TABLE, TEXT = "compare.json", "compare.md"


def compare(
    data: Data,
    samplers: Sequence[str] | Mapping[str, Settings],
    *,
    out: str | Path,
    seeds: int = 3,
    settings: Settings | None = None,
    model: Model | None = None,
    jobs: int = 1,
    device: str | None = None,
    force: bool = False,
    report_to: str | Sequence[str] | None = None,
    on_run: Callable[[str, RunResult], None] | None = None,
    progress: bool = True,
) -> ComparisonResult:
    """Train every sampler with seeds 0 to `seeds` - 1 and write compare.json and compare.md into `out`.

    Call it again to continue: it resumes unfinished runs and reads the results of finished ones.

    Args:
        data: Name of a data set, a `DataSource` (name, folder and reader options), or loaded data.
        samplers: Strategies, such as `["random", "lsh:128", "lsh:512"]`, or settings by the name of a row.
        out: Folder of the comparison, held by one process at a time; every run has a folder inside.
        seeds: Runs per sampler.
        settings: How to train, apart from sampler, bits and seed; the data set's recipe by default. Ignored if
            `samplers` are settings.
        model: Name of an encoder or a dictionary of `make_encoder` arguments; the data set's recipe by default.
        jobs: Runs to train at a time, each in a process of its own; more than one makes times incomparable.
        device: Device of torch; by default a GPU if there is one.
        force: Remove the runs in `out` first.
        report_to: Trackers to log every run to, as in `train`.
        on_run: Called with the name of the row and the result whenever a run ends.
        progress: Draw progress bars if stderr is a terminal.

    Raises:
        ValueError: `out` holds runs with other settings, or an argument is impossible.
        MissingLibraryError: The library of a tracker is not installed.
        FolderInUseError: Another process works in `out` or in one of its runs.
        Interrupted: Ctrl-C or SIGTERM; everything is saved.

    Examples:
        >>> from lookalike import compare
        >>> result = compare("glyphs", ["random", "lsh:512"], out="runs/compare", seeds=5)  # doctest: +SKIP
        >>> print(result.as_markdown())  # doctest: +SKIP
    """
    if ranks.is_distributed() or os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError("compare runs in a single process: start it without torchrun or accelerate launch.")
    checked_positive("seeds", seeds)
    checked_positive("jobs", jobs)
    out = Path(out)
    plan = Plan.of(data, settings, model)
    if plan.model is not None:
        raise ValueError("compare builds a model for every run: give model= by name or options, not as a module.")
    if plan.source is None and jobs > 1:
        raise ValueError("data made in Python cannot be loaded by other processes: compare with jobs=1.")
    contenders = _contenders(samplers, plan.settings)
    runs = [
        _Run(name, replace(each, seed=seed), out / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}-seed{seed}")
        for seed in range(seeds)
        for name, each in contenders.items()
    ]
    if len({run.folder for run in runs}) < len(runs):
        raise ValueError(
            f"the names {', '.join(map(repr, contenders))} lead to the same folder; name them differently."
        )
    if RunFolder(out).config.exists():
        raise ValueError(f"{out} is the folder of a run; a comparison needs one of its own, choose it with out=.")
    options: dict[str, Any] = {"model": plan.model_options, "device": device, "report_to": report_to}
    with locked(out):
        remove_leftovers(out / TABLE, out / TEXT)
        for run in runs:  # before hours are spent on the first
            own = replace(plan, settings=run.settings)
            check_run(own, run.folder, device=device, resume=not force, force=force, report_to=report_to)
        loaded = plan.load_data(progress=progress)
        if force:
            _clear(out, runs)
        results: dict[str, list[RunResult]] = {name: [] for name in contenders}
        for run, result in _trained(loaded, runs, jobs, {**options, "progress": progress and jobs == 1}):
            results[run.name].append(result)
            if on_run is not None:
                on_run(run.name, result)
        first = next(iter(results.values()))[0]
        table = ComparisonResult(
            data=Path(plan.config(loaded)["data"]).name,
            data_options={} if plan.source is None else plan.source.options,
            encoder=_encoder_name(plan.model_options.get("encoder", "convnet")),
            description=loaded.description,
            data_checksum=loaded.checksum,
            model=first.config["model"],
            settings={name: asdict(each) for name, each in contenders.items()},
            seeds=seeds,
            jobs=jobs,
            rows=[*zero_shot_rows(results), *summarize(results)],
            machine=first.machine,
            versions=versions(),
        )
        with writable(out):
            write_text(out / TABLE, json.dumps(table.as_json(), indent=1) + "\n")
            write_text(out / TEXT, table.as_markdown())
    return table


class _Run(NamedTuple):
    name: str
    settings: Settings
    folder: Path


def _contenders(samplers: Sequence[str] | Mapping[str, Settings], settings: Settings) -> dict[str, Settings]:
    """Return settings by the name of a row."""
    if isinstance(samplers, Mapping):
        contenders = dict(samplers)
    else:
        contenders = {name: replace(settings, **parse_strategy(name)) for name in samplers}
    if not contenders:
        raise ValueError("samplers must name at least one sampler, such as random or lsh:512.")
    return contenders


def _clear(out: Path, runs: list[_Run]) -> None:
    """Remove a comparison: the table first, so that no table is left without its runs."""
    with writable(out):
        for name in (TABLE, TEXT):
            (out / name).unlink(missing_ok=True)
        for run in runs:
            if run.folder.is_dir():
                with locked(run.folder):
                    RunFolder(run.folder).clear()


def _trained(
    data: RetrievalData, runs: list[_Run], jobs: int, options: dict[str, Any]
) -> Iterator[tuple[_Run, RunResult]]:
    """Train one run after the other or, with `jobs` above 1, unfinished runs in processes that load the data again."""
    apart = [run for run in runs if jobs > 1 and not RunFolder(run.folder).is_finished]
    for run in runs:
        if run not in apart:
            yield run, train(data, run.settings, out=run.folder, resume=True, **options)
    source = data.source or data
    tasks = {run: partial(train, source, run.settings, out=run.folder, resume=True, **options) for run in apart}
    yield from in_processes(tasks, jobs)


def _encoder_name(encoder: str) -> str:
    """Shorten the path of a local model to its last part."""
    kind, colon, name = encoder.partition(":")
    return f"{kind}{colon}{Path(name).name}" if name and Path(name).expanduser().is_dir() else encoder
