"""`lookalike train` and `lookalike compare`: from what was typed to what appears on the screen."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from lookalike.data import DataSource
from lookalike.training.comparison import compare
from lookalike.training.comparison_results import HEADINGS, ComparisonRow, summarize, zero_shot_rows
from lookalike.training.errors import Interrupted, UnreadableSampleError
from lookalike.training.recipes import Recipe, recipe
from lookalike.training.run import check_run, train
from lookalike.training.run_folder import BEGIN_AGAIN, RunFolder
from lookalike.training.settings import Settings, parse_strategy

if TYPE_CHECKING:
    from lookalike.training.results import EpochMetrics, RunResult


def run_training(
    data: str | None,
    root: Path | None,
    chosen: dict[str, dict[str, Any]],
    out: Path | None,
    baseline: str | None,
    *,
    print_config: bool,
    resume: bool,
    force: bool,
    keep_checkpoint: bool,
    device: str | None,
) -> None:
    """Train, and a baseline with the same settings if there is to be one; print a line per epoch and a table.

    Args:
        data: Name of the data set.
        root: Where it is.
        chosen: What was typed of "settings", "model" and "data"; None where nothing was.
        out: The run's folder.
        baseline: Another sampler to train.
        print_config: Print what would be trained, and stop.
        resume: Continue the run in `out`.
        force: Overwrite what is there.
        keep_checkpoint: Keep the last checkpoint of a finished run.
        device: Where.
    """
    console = Console()
    if resume and force:
        raise ValueError("--resume continues a run and --force overwrites it: give one of them.")
    if resume and out is None:
        name = data or "glyphs"
        out = _default_folder(name, _changed(recipe(name), chosen).settings, None)
    before = _begun(data, out) if resume and out is not None else {}
    name = _found(data or before.get("data", "glyphs"))
    plan = _changed(_recipe_of(name, before, out), chosen)
    source = DataSource(name, before.get("data_root") if root is None else str(root.resolve()), plan.data)
    if print_config:
        _print_config(console, source, plan, {"settings": asdict(plan.settings)})
        return
    settings = plan.settings
    runs = [settings] if baseline in (None, "none") else [settings, replace(settings, **parse_strategy(baseline))]
    folders = [out or _default_folder(name, settings, None), *(_default_folder(name, each, out) for each in runs[1:])]
    reused = [resume, *[not force] * (len(runs) - 1)]  # a baseline that is there already is not trained again
    # What was typed is checked before anything is loaded.
    if len(runs) > 1 and runs[0] == runs[1]:
        raise ValueError(f"--baseline {baseline} is the run itself: choose another, or --baseline none.")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError(f"{folders[0]} is where the baseline goes: choose another folder with --out.")
    for each, folder, goes_on in zip(runs, folders, reused, strict=True):
        check_run(
            source, each, out=folder, model=plan.model, device=device, resume=goes_on, force=force and not goes_on
        )
    if resume and not RunFolder(folders[0]).config.exists():
        _print_whole(console, f"{folders[0]} holds no run to continue: it begins now.")
    loaded = source.load(progress=True)
    console.print(f"{loaded.description[0].upper()}{loaded.description[1:]}.", highlight=False)
    rows: dict[str, list[RunResult]] = {}
    continued = [f"lookalike train --out {shlex.quote(str(folders[0]))} --resume"]
    continued += [f"--baseline {baseline}"] if len(runs) > 1 else []
    continued += [f"--device {device}"] if device else []
    continued += ["--keep-checkpoint"] if keep_checkpoint else []
    for each, folder, goes_on in zip(runs, folders, reused, strict=True):
        console.print(f"\n{each.strategy} -> {folder}", highlight=False, markup=False, soft_wrap=True)
        try:
            result = train(
                loaded,
                each,
                out=folder,
                model=plan.model,
                resume=goes_on,
                force=force and not goes_on,
                keep_checkpoint=keep_checkpoint,
                device=device,
                on_epoch=partial(_print_epoch, console, each),
            )
        except Interrupted as interrupted:
            _print_whole(console, f"{interrupted}; everything is saved. Continue with: {' '.join(continued)}")
            sys.exit(128 + interrupted.number)
        except UnreadableSampleError as error:
            if not RunFolder(folder).checkpoints.exist():  # it was among the first that were tried
                raise
            raise ValueError(
                f"{str(error).rstrip('.')}. Everything is saved; {' '.join(continued)} continues with the step that "
                "needs it."
            ) from error
        rows[each.strategy] = [result]
    console.print()
    _print_table(console, [*zero_shot_rows(rows), *summarize(rows)])


def _found(data: str) -> str:
    """Return the name of a data set, or where a file of glyphs is, so that its run can be continued from anywhere."""
    return str(Path(data).expanduser().resolve()) if data.endswith(".npz") else data


def _begun(data: str | None, out: Path) -> dict[str, Any]:
    """Read the configuration of the run to continue; empty where it was not begun yet."""
    folder = RunFolder(out)
    if folder.config.exists():
        return folder.read_begun()
    if data is None:
        raise ValueError(f"{out} holds no run to continue; to begin one there, say what to train on.")
    return {}


def _recipe_of(name: str, before: dict[str, Any], out: Path | None) -> Recipe:
    """Return the recipe of a data set, or of a run that was begun with it."""
    usual = recipe(name)
    begun = {each: before[each] for each in asdict(usual.settings) if each in before}
    try:
        return usual.changed(begun, before.get("model_options", {}), before.get("data_options"))
    except (ValueError, TypeError) as error:
        config = RunFolder(out or Path()).config
        raise ValueError(f"{config} is damaged ({str(error).rstrip('.')}). {BEGIN_AGAIN}") from None


def run_comparison(
    data: str,
    root: Path | None,
    samplers: str,
    seeds: int,
    chosen: dict[str, dict[str, Any]],
    out: Path | None,
    *,
    print_config: bool,
    jobs: int,
    force: bool,
    device: str | None,
) -> None:
    """Train every sampler with every seed, print the table and say where it is."""
    console = Console()
    data = _found(data)
    folder = out or Path("runs") / f"compare-{Path(data).stem}"
    plan = _changed(recipe(data), chosen)
    source = DataSource(data, None if root is None else str(root.resolve()), plan.data)
    names = [name.strip() for name in samplers.split(",")]
    contenders = {name: replace(plan.settings, **parse_strategy(name)) for name in names}
    if print_config:
        _print_config(
            console, source, plan, {"seeds": seeds, "settings": {k: asdict(v) for k, v in contenders.items()}}
        )
        return
    try:
        table = compare(
            source,
            contenders,
            out=folder,
            seeds=seeds,
            model=plan.model,
            jobs=jobs,
            force=force,
            device=device,
            on_run=lambda name, result: console.print(
                f"{name}, seed {result.config['seed']}: R@1 {result.metrics['recall@1']:.2%}", highlight=False
            ),
        )
    except Interrupted as interrupted:
        without = " without --force" if force else ""
        _print_whole(
            console, f"{interrupted}; everything is saved. Continue by running the same command again{without}."
        )
        sys.exit(128 + interrupted.number)
    console.print()
    _print_table(console, table.rows)
    console.print(table.conditions(), highlight=False)
    _print_whole(console, f"Written: {folder / 'compare.json'}, {folder / 'compare.md'}")


def _changed(usual: Recipe, chosen: dict[str, dict[str, Any]]) -> Recipe:
    return usual.changed(_settings(usual.settings, chosen["settings"]), chosen["model"], chosen["data"])


def _print_config(console: Console, source: DataSource, plan: Recipe, how: dict[str, Any]) -> None:
    shown = {"data_set": source.name, "root": source.root, "data": plan.data, "model": plan.model, **how}
    console.print_json(json.dumps(shown))


def _settings(usual: Settings, options: dict[str, Any]) -> dict[str, Any]:
    """Settings that were typed; "lsh:128" is a sampler and its bits.

    Raises:
        ValueError: One of them would be ignored.
    """
    typed = {name: value for name, value in options.items() if value is not None}
    strategy = parse_strategy(typed["sampler"]) if "sampler" in typed else {"sampler": usual.sampler}
    if "bits" in strategy and typed.get("bits", strategy["bits"]) != strategy["bits"]:
        raise ValueError(f"--sampler {typed['sampler']} and --bits {typed['bits']} disagree: give one of them.")
    sampler, bits = strategy["sampler"], typed.get("bits", strategy.get("bits", usual.bits))
    for name, belongs in (
        ("bits", sampler == "lsh"),
        ("guard", sampler == "lsh"),
        ("target_overlap", sampler == "lsh" and bits == "auto"),
        ("hardness", sampler not in ("random", "batchhard")),
    ):
        if name in typed and not belongs:
            called = typed.get("sampler", f"lsh:{bits}" if sampler == "lsh" else sampler)
            raise ValueError(f"--{name.replace('_', '-')} means nothing for the sampler {called}.")
    return {**typed, **(strategy if "sampler" in typed else {})}


def _default_folder(data: str, settings: Settings, beside: Path | None) -> Path:
    name = f"{Path(data).stem}-{settings.strategy.replace(':', '')}-seed{settings.seed}"
    return (Path("runs") if beside is None else beside.parent) / name


def _print_whole(console: Console, text: str) -> None:
    """Print a line that may be copied, paths and commands unbroken."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _print_epoch(console: Console, settings: Settings, metrics: EpochMetrics) -> None:
    recall = metrics.quality.get("recall@1")
    shown = "     -" if recall is None else f"{recall:6.2%}"
    if metrics.epoch == 0:
        console.print(f"epoch   0  R@1 {shown}  before training", highlight=False)
        return
    chosen = f", {metrics.bits} bits" if settings.strategy == "lsh:auto" else ""
    console.print(
        f"epoch {metrics.epoch:>3}  R@1 {shown}  loss {metrics.loss:.3f}  "
        f"{metrics.seconds:.1f} s, mining {metrics.mining_seconds:.2f} s ({metrics.mining_share:.1%}){chosen}",
        highlight=False,
    )


def _print_table(console: Console, rows: list[ComparisonRow]) -> None:
    """As many columns as the terminal has room for."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in lines) + 3 for i in range(len(HEADINGS))]
    shown = [i for i in range(len(HEADINGS)) if any(line[i] for line in lines[1:])]
    for heading in ("R@1%", "R@10", "R@5", "MRR@10"):  # least needed first
        if sum(widths[i] for i in shown) + 1 > console.width:
            shown = [i for i in shown if HEADINGS[i] != heading]
    table = Table(*(HEADINGS[i] for i in shown))
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for line in lines[1:]:
        table.add_row(*(line[i] for i in shown))
    console.print(table)
