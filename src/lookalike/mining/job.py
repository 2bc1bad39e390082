"""The folder of a mining job: locked while in use, resumed after a stop, removed once the output is there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookalike.mining.engines import Shard
from lookalike.mining.estimating import DryRun
from lookalike.mining.outputs import output_version, refuse_existing, scores_path, summary_path, work_folder
from lookalike.mining.store import remove_stores
from lookalike.utils.files import remove_leftovers, writable, write_text
from lookalike.utils.locks import FolderInUseError, locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lookalike.mining.engines import Engine
    from lookalike.mining.pipeline import Pipeline

NOTE = "job.json"
CELLS, SHARDS, PAIRS, FLOATS = "cells-*", "shards", "pairs-*", "floats"
NEW_PAIRS = "pairs.new"  # while they are read
KEPT = ("document-", "query-", "statistics-")  # how the names of what a model made of texts begin
DONE = ("hash-", "search-", "finish-")  # how the names of cells begin that are not encoded texts
PAUSE = 0.5  # seconds between two looks at a lock that is only held for a while


@dataclass(frozen=True)
class Job:
    """Where a job keeps what it has done.

    Args:
        folder: Everything below.
        output: What the job writes; None if nothing.
        engine: What does its cells.
        force: Begin anew if the folder holds another job.
    """

    folder: Path
    output: Path | None
    engine: Engine
    force: bool

    def pairs(self, name: str) -> Path:
        """Return the folder of the texts that have this name; other texts never take their place."""
        return self.folder / PAIRS.replace("*", name)

    def keep_pairs(self, folder: Path) -> None:
        """Remove texts that were read before these, as when files change between two runs; shards may still need them.

        Args:
            folder: Where the texts are that are mined now.
        """
        if isinstance(self.engine, Shard | DryRun):
            return
        for each in self.folder.glob(PAIRS):
            if each.name != folder.name:
                shutil.rmtree(each, ignore_errors=True)

    def check_same(self, about: Mapping[str, Any]) -> None:
        """Remember what is mined with which model, or refuse to continue a job that was begun with others.

        Args:
            about: What must not change, by the name that an error gives it.

        Raises:
            ValueError: Something changed; names it.
        """
        now = json.loads(json.dumps(dict(about), default=str))
        with waiting_for(self.folder / "checking"):  # shards that start together must not clear each other's cells
            self._check_same(now)

    def _check_same(self, now: dict[str, Any]) -> None:
        path = self.folder / NOTE
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            before = None
        if isinstance(before, dict) and not self.force:
            changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
            if changed:
                raise ValueError(
                    f"{self.folder} holds an unfinished job with different {_listed(changed)} "
                    f"({_difference(before, now, changed)}); give the same as then to resume it, begin anew with "
                    "force=True, or choose another output."
                )
        if before != now and not isinstance(self.engine, DryRun):  # which leaves what others have done
            self._clear_cells()
            write_text(path, json.dumps(now, indent=1) + "\n")

    def cells(self, *depends_on: Any) -> Path:
        """Return the folder of cells that depend on all this, and on what `check_same` was given."""
        digest = hashlib.sha256(repr(depends_on).encode()).hexdigest()[:16]
        folder = self.folder / CELLS.replace("*", digest)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def kept(self) -> int:
        """Count the cells whose files are there, encoded texts apart, which stores count."""
        return sum(each.name.startswith(DONE) for each in self.folder.glob(f"{CELLS}/*"))

    def _clear_cells(self) -> None:
        for each in self.folder.glob(CELLS):
            shutil.rmtree(each, ignore_errors=True)


@contextlib.contextmanager
def held_job(output: Path | None, engine: Engine, *, force: bool) -> Iterator[Job]:
    """Hold the folder of a job for this process, or for one of its shards.

    It is removed once the output is there, and also if there is nothing in it to resume from.

    Args:
        output: What the job writes; without an output the folder is a temporary one.
        engine: What does the cells.
        force: Overwrite the output, and begin anew if the folder holds another job.

    Raises:
        FolderInUseError: Another process works on it; the message names it.
        UnwritableError: The folder of the output cannot be written to.
        ValueError: The output exists.
    """
    if output is None:
        with folder_or_temporary(None) as folder:
            yield Job(folder, None, engine, force)
        return
    folder, before = work_folder(output), output_version(output)
    with _held(folder, engine):
        here = Job(folder, output, engine, force)
        try:
            refuse_existing(output, force=force)
            remove_leftovers(output, scores_path(output), summary_path(output))
            yield here
        finally:
            if not isinstance(engine, Shard):
                with contextlib.suppress(OSError):  # someone else has tidied up
                    _tidy(here, done=output_version(output) not in (None, before))


@contextlib.contextmanager
def waiting_for(folder: Path) -> Iterator[None]:
    """Hold a folder that other processes of the same job hold for a while, one after another.

    It ends when they do, or when they die: the system releases their locks.
    """
    while True:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(locked(folder, remove_empty=True))
            except FolderInUseError:
                time.sleep(PAUSE)
                continue
            yield
            return


@contextlib.contextmanager
def folder_or_temporary(folder: str | Path | None) -> Iterator[Path]:
    """Yield the folder, created if needed, or by default a temporary one that is removed afterwards.

    Raises:
        UnwritableError: The folder cannot be created.
    """
    if folder is not None:
        with writable(Path(folder)):
            Path(folder).mkdir(parents=True, exist_ok=True)
        yield Path(folder)
        return
    temporary = Path(tempfile.mkdtemp(prefix="lookalike-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def settings_of(pipeline: Pipeline) -> str:
    """Describe everything that decides which neighbours become negatives."""
    filters = {each.name: getattr(pipeline.filters, each.name) for each in fields(pipeline.filters)}
    filters.pop("exclude")  # data, not a setting
    return repr((asdict(pipeline.selection), filters, pipeline.search.settings(), pipeline.most_positives))


@contextlib.contextmanager
def _held(folder: Path, engine: Engine) -> Iterator[None]:
    """Lock the folder: alone, or together with other shards."""
    with contextlib.ExitStack() as stack:
        if isinstance(engine, Shard):
            stack.enter_context(locked(folder, shared=True))
            stack.enter_context(locked(folder / SHARDS / f"{engine.number}-of-{engine.of}"))
        else:
            stack.enter_context(locked(folder, remove_empty=True))
        yield


def _tidy(job: Job, *, done: bool) -> None:
    """Remove what a finished job leaves behind, or what is of no use to the next run."""
    remove_stores(job.folder, only_empty=not done)
    left = [each for each in job.folder.iterdir() if each.name.startswith(KEPT)]
    if done or not (left or job.kept()):
        job._clear_cells()  # noqa: SLF001 - of this module
        names = (NEW_PAIRS, SHARDS, *([FLOATS] if done else []))
        for each in (*job.folder.glob(PAIRS), *(job.folder / name for name in names)):
            shutil.rmtree(each, ignore_errors=True)
        (job.folder / NOTE).unlink(missing_ok=True)
        remove_leftovers(job.folder / NOTE, job.folder / NEW_PAIRS)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _difference(before: dict[str, Any], now: dict[str, Any], changed: list[str]) -> str:
    """Say what changed from what to what, where that can be said."""
    said = []
    for name in changed:
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            said += [
                f"{key}: {old.get(key)}, now {new.get(key)}" for key in {**old, **new} if old.get(key) != new.get(key)
            ]
        else:
            said.append(f"{old}, now {new}")
    return "; ".join(said)
