"""The folder of a run that a team trains: rank 0 alone reads and writes it, and everybody hears how that went.

Ranks on other machines need not see the folder.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from lookalike.training.results import RunResult
from lookalike.training.trackers import check_trackers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch import nn

    from lookalike.training.loop import TrainingLoop
    from lookalike.training.run_folder import RunFolder
    from lookalike.training.team import Team

T = TypeVar("T")


class TeamFolder:
    """A `RunFolder` in the hands of rank 0. Every rank calls every method; what fails on rank 0 fails on all of them.

    Args:
        folder: The folder.
        team: Who trains.
    """

    def __init__(self, folder: RunFolder, team: Team) -> None:
        self._folder, self._team = folder, team
        self._name = str(folder.path.resolve())

    @property
    def path(self) -> Path:
        """Where it is, for rank 0."""
        return self._folder.path

    def after_restart(self, *, resume: bool, force: bool) -> tuple[bool, bool]:
        """Return `resume` and `force`: a launcher that restarts its processes repeats a command that begins a run."""
        return (True, False) if self._team.has_begun(self._name) else (resume, force)

    def check(self, config: dict[str, Any], *, resume: bool, force: bool) -> None:
        """Check whether a run may begin or continue here, as `RunFolder.check` does."""
        resume, force = self.after_restart(resume=resume, force=force)
        self._on_first(lambda: self._folder.check(config, resume=resume, force=force))

    def check_trackers(self, names: Sequence[str]) -> None:
        """Check that trackers can log the run in this folder; rank 0 alone needs their libraries."""
        if names:
            self._on_first(lambda: check_trackers(names, self._folder.path))

    def finished_result(
        self, config: Callable[[], dict[str, Any]], known: dict[str, Any], *, keep_checkpoint: bool
    ) -> RunResult | None:
        """Return the result of a finished run with this configuration; None if there is none.

        Args:
            config: Loads what is missing in `known`.
            known: What is known of the configuration without loading anything.
            keep_checkpoint: Keep checkpoints of a process that was killed before it removed them.

        Raises:
            ValueError: It is the run of another configuration, or damaged.
        """

        def read() -> dict[str, Any] | None:
            if not self._folder.is_finished:
                return None
            self._folder.check(known, resume=True, force=False)
            self._folder.check_unchanged(config())
            result = self._folder.read_result()
            if not keep_checkpoint:
                self._folder.remove_checkpoints()
            return result.as_json()

        return self._result(read)

    def just_finished(self) -> RunResult | None:
        """Return the result that another process left while this one waited for the folder."""
        return self._result(lambda: self._folder.read_result().as_json() if self._folder.is_finished else None)

    @contextmanager
    def held(self, config: dict[str, Any], *, resume: bool, force: bool) -> Iterator[None]:
        """Hold the folder, as `RunFolder.held` does."""
        with ExitStack() as stack:
            self._on_first(lambda: stack.enter_context(self._folder.held(config, resume=resume, force=force)))
            yield

    def begin(self, config: dict[str, Any], *, resume: bool, force: bool) -> dict[str, Any] | None:
        """Write the configuration, and return the state to continue from, if there is one, on every rank."""
        state = self._team.from_first(lambda: self._folder.begin(config, resume=resume, force=force))
        if self._team.is_first:
            self._team.note_begun(self._name)
        return state

    def save(self, loop: TrainingLoop) -> None:
        """Save a checkpoint; the state of any rank is that of all."""
        state = loop.state_dict()
        self._on_first(lambda: self._folder.save(state))

    def save_alone(self, loop: TrainingLoop) -> None:
        """Save a checkpoint on rank 0 without a word to the others, which may be gone."""
        self._team.begin_to_end()
        if self._team.is_first:
            self._folder.save(loop.state_dict())

    def finish(self, result: RunResult, model: nn.Module, *, keep_checkpoint: bool) -> None:
        """Write the model and the result."""
        self._on_first(lambda: self._folder.finish(result, model, keep_checkpoint=keep_checkpoint))

    def _on_first(self, job: Callable[[], None]) -> None:
        self._team.together(lambda: job() if self._team.is_first else None)

    def _result(self, read: Callable[[], dict[str, Any] | None]) -> RunResult | None:
        found = self._team.from_first(read)
        return None if found is None else RunResult.from_json(found)
