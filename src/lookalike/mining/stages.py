"""Take a run through its stages, with any engine, from wherever it is; and fit codes before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lookalike.mining import UnfinishedError
from lookalike.mining.cells import STAGES
from lookalike.mining.engines import InProcess, Merge, Shard
from lookalike.utils.progress import steady_bar

if TYPE_CHECKING:
    from lookalike.hashing import ScalarHasher
    from lookalike.mining.cells import Cell, Stage
    from lookalike.mining.engines import Engine
    from lookalike.mining.fitting import Fitting
    from lookalike.mining.run import Run

SAID = {
    "encode": "encoding {:,} rows",
    "hash": "hashing {:,} rows",
    "search": "searching {:,} pairs",
    "finish": "mining {:,} queries",
}


def complete(run: Run, engine: Engine, *, progress: bool = False) -> None:
    """Do all cells that are not done, stage by stage.

    With a `Shard`, do its share of what can be done now.

    Args:
        run: The run.
        engine: What does the cells.
        progress: Show progress.

    Raises:
        UnfinishedError: This shard, or the merge, needs cells of other shards that are missing.
    """
    with engine.connected():
        for stage in STAGES:
            _complete_stage(run, engine, stage, progress=progress)


def fitted(fitting: Fitting, engine: Engine, *, progress: bool = False) -> ScalarHasher:
    """Return a hasher that is fitted once for all processes: the first one fits it, shards that start with it wait.

    Raises:
        UnfinishedError: A merge finds that no shard has begun.
    """
    if (there := fitting.fitted()) is not None:
        return there
    if isinstance(engine, Merge):
        raise UnfinishedError(_unfinished(engine, "encode", [fitting.cell], 1))
    own = InProcess() if isinstance(engine, Shard) else engine
    with steady_bar(f"fitting codes to {fitting.number:,} rows", fitting.number, 1, shown=progress) as bar:
        for _ in own.each(fitting, [fitting.cell], bar.advance):
            bar.count()
    if (there := fitting.fitted()) is None:
        raise RuntimeError(f"what was fitted cannot be read back from {fitting.folder}; check the disk.")
    return there


def _complete_stage(run: Run, engine: Engine, stage: Stage, *, progress: bool) -> None:
    missing = run.missing(stage)
    ready = [cell for cell in missing if engine.owns(run, cell)]
    if stage == "finish":
        ready = [cell for cell in ready if not any(map(run.lacks, run.grid.searches(cell.rows)))]
    total = sum(cell.size for cell in ready)
    with steady_bar(SAID[stage].format(total), total, len(ready), shown=progress and bool(ready)) as bar:
        for _ in engine.each(run, ready, bar.advance):
            bar.count()
    if isinstance(engine, Shard) and stage == "hash":  # cheap, so nobody waits for the others
        for cell in filter(run.lacks, missing):
            run.do(cell)
    left = [cell for cell in missing if run.lacks(cell)]
    if left and not (isinstance(engine, Shard) and stage in ("search", "finish")):  # which others do in their own time
        raise UnfinishedError(_unfinished(engine, stage, left, len(run.grid.cells(stage))))


def _unfinished(engine: Engine, stage: str, left: list[Cell], total: int) -> str:
    if isinstance(engine, Merge):
        return (
            f"{len(left):,} of {total:,} cells ({stage}) are missing: start the shards again, and merge when they have "
            "ended."
        )
    return (
        f"Shard {engine} has done its share of this stage ({stage}), but {len(left):,} of {total:,} cells are left to "
        "other shards. Start it again when they have ended."
    )
