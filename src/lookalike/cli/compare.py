"""`lookalike compare`: several samplers over several seeds, as a table."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lookalike.cli.config import print_config, read_config
from lookalike.cli.parsing import Hint, Without, parse_typed
from lookalike.cli.runs import RunOptions, complete, data_name, defaults_shown, print_table, print_whole
from lookalike.training.recipes import recipe
from lookalike.training.settings import Settings

if TYPE_CHECKING:
    from lookalike.training.results import RunResult

SAMPLERS = ("random", "batchhard", "full", "incremental", "lsh:128", "lsh:512")


@dataclass(frozen=True, kw_only=True)
class Options(RunOptions):
    """Options of `lookalike compare`."""

    samplers: Annotated[tuple[str, ...], Hint(value="NAME,NAME,...", words=lambda: SAMPLERS)] = SAMPLERS
    """Samplers to train with."""
    seeds: int = 3
    """Runs per sampler."""
    jobs: int = 1
    """Runs to train at a time; more than one disturbs the times."""
    out: Annotated[Path | None, Hint(default="runs/compare-DATA")] = None
    """Folder of the runs."""
    settings: Annotated[Settings, Without("sampler", "seed")] = field(default_factory=Settings)


def main(args: list[str]) -> None:
    """Train with several samplers over several seeds and print the paper's table; resumes unfinished runs.

    `lookalike compare DATA --help` shows the defaults of a data set.
    """
    typed = parse_typed(Options, args, "compare", main.__doc__, defaults_shown(args))
    file = read_config(typed.get("config"), Options)
    options = complete(Options, [file, typed], recipe(data_name({**file, **typed})), {})
    if options.print_config:
        print_config(options)
    else:
        _run(options)


def _run(options: Options) -> None:
    """Train every sampler with every seed, and print a line per run and the table."""
    from rich.console import Console

    from lookalike.training.comparison import compare
    from lookalike.training.errors import Interrupted

    console = Console()
    folder = options.out or Path("runs") / f"compare-{Path(options.source.name).stem}"
    total, done = len(options.samplers) * options.seeds, 0

    def print_run(name: str, result: "RunResult") -> None:
        nonlocal done
        done += 1
        recall, seconds = result.metrics["recall@1"], result.seconds
        line = f"{done}/{total}  {name}, seed {result.config['seed']}: R@1 {recall:.2%} in {seconds:.0f} s"
        console.print(line, highlight=False)

    try:
        table = compare(
            options.source,
            options.samplers,
            seeds=options.seeds,
            settings=options.settings,
            model=options.encoder,
            out=folder,
            on_run=print_run,
            jobs=options.jobs,
            device=options.device,
            force=options.force,
            report_to=options.report_to,
        )
    except Interrupted as interrupted:
        again = "the same command again" + (" without --force" if options.force else "")
        print_whole(console, f"{interrupted}; everything is saved. Continue by running {again}.")
        sys.exit(128 + interrupted.number)
    console.print()
    print_table(console, table.rows)
    console.print(table.conditions(), highlight=False)
    print_whole(console, f"Written: {folder / 'compare.json'}, {folder / 'compare.md'}")
