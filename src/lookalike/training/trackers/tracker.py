"""What a run tells a tracker, and what it asks of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Row(NamedTuple):
    """All values of one step, by name. Rows come in the order of their steps, and each step has one row."""

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """A run, as trackers know it."""

    out: Path
    """Its folder."""
    identity: str
    """A few characters that no other run has; the same when it resumes."""
    config: dict[str, Any]
    """Its hyperparameters: plain values, some of them in dictionaries."""
    next_step: int
    """The first step whose row a resumed run can still repeat; what was logged from there on does not count."""

    @property
    def name(self) -> str:
        """Its name on the screen."""
        return self.out.resolve().name

    @property
    def group(self) -> str:
        """The folder beside whose other runs it stands, such as that of a comparison."""
        return self.out.resolve().parent.name

    def flat_config(self) -> dict[str, Any]:
        """Return the hyperparameters without inner dictionaries: `model_options.encoder`."""
        flat: dict[str, Any] = {}
        for name, value in self.config.items():
            inner = {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
            flat.update(inner)
        return flat


class Tracker(Protocol):
    """A thin adapter of one library. After `start`, one thread of its own calls it; any error ends its use."""

    def folder(self, out: Path) -> Path:
        """Return where it writes for the run in `out`; the folder need not exist."""

    def start(self, run: Tracked) -> int:
        """Begin or continue a run, and return the first step whose row it lacks."""

    def log(self, row: Row) -> None:
        """Add a row."""

    def flush(self) -> None:
        """Return once rows survive the end of this process, as far as the library can promise that."""

    def close(self) -> None:
        """End the run."""
