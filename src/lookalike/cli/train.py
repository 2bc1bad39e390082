"""`lookalike train`: one run, and a baseline to compare it with."""

import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from lookalike.cli.config import print_config, read_config
from lookalike.cli.parsing import Flag, Hint, parse_typed
from lookalike.cli.runs import RunOptions, complete, data_name, defaults_shown, print_table, print_whole
from lookalike.training.recipes import Recipe, recipe
from lookalike.training.settings import SAMPLERS, Settings, parse_strategy

if TYPE_CHECKING:
    from rich.console import Console

    from lookalike.training.results import EpochMetrics, RunResult
    from lookalike.training.run import Plan

NO_BASELINE = (None, "none")
BASELINES = (*SAMPLERS, "none")


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Options of `lookalike train`."""

    out: Annotated[Path | None, Hint(default="runs/DATA-SAMPLER-SEED")] = None
    """Folder of the run."""
    baseline: Annotated[
        str | None, Hint(default="random without DATA, otherwise none", value="NAME", words=lambda: BASELINES)
    ] = None
    """Sampler to train as well, with the same settings, for comparison."""
    same: Annotated[Path | None, Hint(value="FILE")] = None
    """Pairs of training samples that are the same, as `lookalike explore` writes them: never negatives of each other.
    .jsonl, .csv, .tsv or .npy."""
    resume: Flag = False
    """Continue the run in --out with its own settings."""
    keep_checkpoint: bool = False
    """Keep the last checkpoint of a finished run."""
    settings: Settings = field(default_factory=Settings)


def main(args: list[str]) -> None:
    """Train an embedding model with hard negatives; without DATA, on glyphs and compared with random batches.

    `lookalike train DATA --help` shows the defaults of a data set.
    """
    typed = parse_typed(Options, args, "train", main.__doc__, defaults_shown(args))
    with _together(typed):
        options = _complete(typed)
        options.settings.check_used(each.name for each in fields(Settings) if each.name in typed)
        if options.print_config:
            if os.environ.get("RANK", "0") == "0":  # once for all ranks
                print_config(options)
        else:
            _run(options)


@contextmanager
def _together(typed: Mapping[str, Any]) -> Iterator[None]:
    """Let all processes that a launcher has started end together, and rank 0 alone log."""
    if os.environ.get("WORLD_SIZE", "1") == "1":  # in one process, nothing is imported for that
        yield
        return
    import torch

    from lookalike.training.team import Team
    from lookalike.utils.machine import checked_device

    file = read_config(typed.get("config"), Options)
    team = Team.join(torch.device(checked_device({**file, **typed}.get("device"))).type)
    if not team.is_first:
        logging.getLogger("lookalike").setLevel(logging.ERROR)
    with team.guarded():
        yield


def _complete(typed: Mapping[str, Any]) -> Options:
    """Take what was not typed from the configuration file, then from the run to resume or else the recipe.

    Raises:
        ValueError: There is nothing to resume.
    """
    file = read_config(typed.get("config"), Options)
    given = {**file, **typed}
    is_named = given.get("data") is not None
    usual = complete(Options, [file, typed], recipe(data_name(given)), {})
    if not usual.resume:
        return usual if is_named or usual.baseline is not None else replace(usual, baseline="random")
    if usual.force:
        raise ValueError("--resume continues a run and --force overwrites it: give one of them.")
    out = usual.out or _default_folder(usual, usual.settings)
    begun = _recorded(out)
    if begun is None or begun.source is None:
        if not is_named:
            raise ValueError(f"{out} holds no run to continue; to begin one there, name the data to train on.")
        return replace(usual, out=out)
    own = Recipe(settings=begun.settings, model=begun.model_options, data=begun.source.options)
    more = {"data": begun.source.name, "root": begun.source.root, "out": out, "same": begun.same}
    return complete(Options, [file, typed], own, more)


def _recorded(folder: Path) -> "Plan | None":
    """Read the run that a folder holds, if it holds one; rank 0 reads it for all."""
    from lookalike.training.run import Plan
    from lookalike.training.run_folder import RunFolder
    from lookalike.training.team import Team

    run = RunFolder(folder)
    config = Team.join("cpu").from_first(lambda: run.read_begun() if run.config.exists() else None)
    return None if config is None else Plan.recorded(folder, config)


def _default_folder(options: Options, settings: Settings) -> Path:
    """Return the default folder of a run: beside the folder chosen for another run, or under runs/."""
    name = f"{Path(options.source.name).stem}-{settings.strategy.replace(':', '')}-seed{settings.seed}"
    return (Path("runs") if options.out is None else options.out.parent) / name


def _run(options: Options) -> None:
    """Check everything that was typed, load the data, train, and print a line per epoch and a table."""
    from rich.console import Console

    from lookalike.data.same import num_samples
    from lookalike.negatives.same import read_same
    from lookalike.training.comparison_results import summarize, zero_shot_rows
    from lookalike.training.run import Plan, check_run
    from lookalike.training.team import Team

    runs = [options.settings]
    if options.baseline not in NO_BASELINE:
        runs.append(replace(options.settings, **parse_strategy(str(options.baseline))))
    folders = [options.out or _default_folder(options, runs[0]), *(_default_folder(options, each) for each in runs[1:])]
    if runs[0] in runs[1:]:
        raise ValueError(f"--baseline {options.baseline} is the run itself: choose another, or --baseline none.")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError(f"{folders[0]} is where the baseline goes: choose another folder with --out.")
    for settings, folder in zip(runs, folders, strict=True):
        how = _how(options, settings)
        check_run(Plan.of(options.source, settings, how.pop("model"), how.pop("same")), folder, **how)
    team = Team.join("cpu")
    console = Console(quiet=not team.is_first)
    if options.resume and _recorded(folders[0]) is None:
        print_whole(console, f"{folders[0]} holds no run to continue, so a new one begins.")
    data = team.together(lambda: options.source.load(progress=team.is_first))
    console.print(f"{data.description[0].upper()}{data.description[1:]}.", highlight=False)
    if share := options.settings.validation_share:
        what = "classes" if data.train.pairs is None else "pairs"
        console.print(f"{share:.0%} of the training {what} are held out for validation.", highlight=False)
    if options.same is not None:
        number = len(read_same(options.same, num_samples(data.train), data.checksum))
        console.print(f"Pairs of training samples that are marked as the same: {number:,}.", highlight=False)
    results: dict[str, list[RunResult]] = {}
    for settings, folder in zip(runs, folders, strict=True):
        print_whole(console, f"\n{settings.strategy} -> {folder}")
        how = {**_how(options, settings), "keep_checkpoint": options.keep_checkpoint}
        results[settings.strategy] = [_train(console, data, settings, folder, how, _command(options, folders[0]))]
    console.print()
    print_table(console, [*zero_shot_rows(results), *summarize(results)])


def _how(options: Options, settings: Settings) -> dict[str, Any]:
    """Return arguments of `train`; a baseline that was trained before is not trained again."""
    resume = options.resume if settings is options.settings else not options.force
    return {
        "model": options.encoder,
        "same": options.same,
        "device": options.device,
        "resume": resume,
        "force": options.force and not resume,
        "report_to": options.report_to,
    }


def _command(options: Options, folder: Path) -> str:
    """Return the command that continues the runs."""
    parts = ["lookalike", "train", "--out", str(folder), "--resume"]
    parts += [] if options.baseline in NO_BASELINE else ["--baseline", str(options.baseline)]
    parts += [] if options.device is None else ["--device", options.device]
    parts += ["--report-to", ",".join(options.report_to)] if options.report_to else []
    parts += ["--keep-checkpoint"] if options.keep_checkpoint else []
    return shlex.join(parts)


def _train(
    console: "Console", data: Any, settings: Settings, folder: Path, how: dict[str, Any], command: str
) -> "RunResult":
    """Train, and say how to continue if it is stopped."""
    from lookalike.training.errors import Interrupted, UnreadableSampleError
    from lookalike.training.run import train

    try:
        result = train(data, settings, out=folder, on_epoch=partial(_print_epoch, console, settings), **how)
    except Interrupted as interrupted:
        print_whole(console, f"{interrupted}; everything is saved. Continue with: {command}")
        sys.exit(128 + interrupted.number)
    except UnreadableSampleError as error:
        if _recorded(folder) is None:  # a sample that `train` tries before the run begins
            raise
        raise ValueError(
            f"{str(error).rstrip('.')}. Everything is saved; {command} continues with the step that needs it."
        ) from error
    if result.best_epoch is not None:
        early = f"; stopped early, after epoch {result.epochs}" if result.epochs != settings.epochs else ""
        console.print(f"best epoch by validation: {result.best_epoch}{early}", highlight=False)
    return result


def _print_epoch(console: "Console", settings: Settings, epoch: "EpochMetrics") -> None:
    quality = epoch.validation or epoch.quality
    recall = f"R@1 {quality['recall@1']:6.2%}" if "recall@1" in quality else "R@1      -"
    if epoch.validation:
        recall = f"validation {recall}"
    if epoch.epoch == 0:
        console.print(f"epoch   0  {recall}  before training", highlight=False)
        return
    bits = f", {epoch.bits} bits" if settings.sampler == "lsh" and settings.bits == "auto" else ""
    outcomes = {None: "", "used": ", warm start", "not ready": f", not ready: {epoch.readiness or 0:.0%}"}
    first = outcomes.get(epoch.warm_start, f", warm start {epoch.warm_start}")
    masked = "" if epoch.masked is None else f"  masked {epoch.masked:.2%}"
    console.print(
        f"epoch {epoch.epoch:>3}  {recall}  loss {epoch.loss:.3f}{masked}  "
        f"{epoch.seconds:.1f} s, mining {epoch.mining_seconds:.2f} s ({epoch.mining_share:.1%}){bits}{first}",
        highlight=False,
    )
