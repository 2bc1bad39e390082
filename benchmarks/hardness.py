"""How hard should batches be? Train the same network with every way to compose them, over several seeds.

    python -m benchmarks.hardness [DATA] [--jobs N] [--out FILE | --record]

Takes hours without a GPU.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from benchmarks import record
from lookalike.training.comparison import compare
from lookalike.training.recipes import recipe

CONTENDERS: dict[str, dict[str, Any]] = {
    "random": {"sampler": "random"},
    "sample4geo": {"method": "sample4geo"},
    "growth, one neighbourhood": {"neighbourhood": None},
    "growth, neighbourhoods of 16": {"neighbourhood": 16},
    "growth, neighbourhoods of 8": {"neighbourhood": 8},
}


def main(
    data: Positional[Annotated[str, arg(help="A data set, or a file of glyphs.")]] = "glyphs",
    seeds: Annotated[int, arg(help="Runs per contender.")] = 5,
    epochs: Annotated[int | None, arg(help="Epochs per run.")] = None,
    jobs: Annotated[int, arg(help="Runs at a time.")] = 1,
    runs: Annotated[Path, arg(help="Folder of the runs.")] = Path("runs/hardness"),
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Train, print the table and write the result."""
    path = record.destination("hardness", out, committed)
    usual = recipe(data)
    settings = replace(usual.settings, epochs=epochs or usual.settings.epochs)
    contenders = {name: replace(settings, **options) for name, options in CONTENDERS.items()}
    table = compare(data, contenders, out=runs, seeds=seeds, jobs=jobs)
    print(table.as_markdown())
    record.finish(path, table.as_json())


if __name__ == "__main__":
    record.run(main)
