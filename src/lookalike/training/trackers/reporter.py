"""Report a run to its trackers: a row per step, with the metrics of an epoch in the row of its last step.

A resumed run repeats the steps since its checkpoint, so every step has one row, which a tracker has or lacks as a
whole. The row of the newest step is held back until the next step or the epoch's metrics complete it. A checkpoint in
the middle of an epoch holds the losses of that epoch, and `Reporter.begin` reports them to trackers that lack them.
The rows of an epoch are flushed before a checkpoint forgets its losses.
"""

from __future__ import annotations

import json
import math
import uuid
from typing import TYPE_CHECKING, Any

from lookalike.training.results import best_epoch
from lookalike.training.strategies import schedule
from lookalike.training.trackers import make_tracker
from lookalike.training.trackers.feed import Feed
from lookalike.training.trackers.tracker import Row, Tracked
from lookalike.utils.files import write_text
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lookalike.training.loop import TrainingLoop
    from lookalike.training.results import EpochMetrics
    from lookalike.training.settings import Settings

IDENTITY = "trackers.json"  # in the run's folder
WHOLE = {"seconds": "epoch/seconds", "masked": "train/masked", "temperature": "train/temperature"}  # names in trackers
MINING = ("mining_seconds", "mining_share", "kept_bytes", "bits", "readiness")


class Reporter:
    """Passes what a run measures to its trackers; without any, as on all ranks but the first, it does nothing."""

    def __init__(self) -> None:
        self._feeds: list[Feed] = []
        self._row: Row | None = None  # of the newest step
        self._settings: Settings | None = None
        self._num_steps = 0

    @classmethod
    def begin(cls, names: Sequence[str], out: Path, config: dict[str, Any], loop: TrainingLoop) -> Reporter:
        """Start trackers for a loop that is about to run, and report what its checkpoint knows and they do not.

        Args:
            names: As `tracker_names` returns them.
            out: Folder of the run.
            config: Its configuration.
            loop: In the state to continue from.

        Raises:
            ValueError: A tracker cannot start.
        """
        reporter = cls()
        if not names:
            return reporter
        reporter._settings, reporter._num_steps = loop.settings, loop.num_steps
        first_of_epoch = loop.step - len(loop.losses) + 1
        run = Tracked(out=out, identity=_identity(out), config=config, next_step=first_of_epoch if loop.history else 0)
        try:
            for name in names:
                reporter._feeds.append(_started(name, run))
        except BaseException:
            reporter.close()
            raise
        for epoch in loop.history:
            reporter._add(epoch.step or 0, epoch_values(epoch))
        reporter.steps(first_of_epoch, loop.losses, loop.hardness)
        return reporter

    def steps(self, first: int, losses: Sequence[float], hardness: Sequence[float]) -> None:
        """Report consecutive steps.

        Args:
            first: The number of the first one; a run begins with step 1.
            losses: Their losses.
            hardness: The similarities of the hardest negatives of their batches.
        """
        if self._settings is None:
            return
        for step, (loss, hardest) in enumerate(zip(losses, hardness, strict=True), first):
            part = schedule(step - 1, self._num_steps, self._settings.warmup)
            rate = self._settings.learning_rate * part
            self._add(step, {"train/loss": loss, "mining/hardest_negative": hardest, "train/learning_rate": rate})

    def epoch(self, metrics: EpochMetrics) -> None:
        """Report an epoch with its last step, and let trackers write everything until then."""
        self._add(metrics.step or 0, epoch_values(metrics))
        self._send()
        for feed in self._feeds:
            feed.flush()

    def end(self, epochs: Sequence[EpochMetrics]) -> None:
        """Report the test of the best epoch, if the run has validated its epochs, one step after the last."""
        best = best_epoch(epochs)
        if best is not None:
            values = {f"best/{name}": value for name, value in best.quality.items()}
            self._add((epochs[-1].step or 0) + 1, {"best/epoch": best.epoch, **values})
        self._send()

    def close(self) -> None:
        """End the trackers' runs. A row that is not complete is left to the run that resumes this one."""
        for feed in self._feeds:
            feed.close()
        self._feeds = []

    def _add(self, step: int, values: Mapping[str, float]) -> None:
        if not self._feeds:
            return
        if self._row is not None and self._row.step < step:
            self._send()
        known = {} if self._row is None else self._row.values
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._row = Row(step, {**known, **finite})

    def _send(self) -> None:
        if self._row is not None:
            for feed in self._feeds:
                feed.put(self._row)
        self._row = None


def epoch_values(epoch: EpochMetrics) -> dict[str, float]:
    """Return the metrics of an epoch as trackers name them."""
    values: dict[str, float | None] = {
        "epoch": epoch.epoch,
        "epoch/loss": epoch.loss,
        "epoch/hardest_negative": epoch.hardest_negative,
        **{shown: getattr(epoch, name) for name, shown in WHOLE.items()},
        **{f"mining/{name.removeprefix('mining_')}": getattr(epoch, name) for name in MINING},
        "mining/warm_start": None if epoch.warm_start is None else float(epoch.warm_start == "used"),
    }
    for group, measured in (
        ("test", epoch.quality),
        ("validation", epoch.validation),
        ("overlap", epoch.overlap),
        ("positional_distance", epoch.positional_distance),
    ):
        values |= {f"{group}/{name}": value for name, value in measured.items() if name != "queries"}
    return {name: value for name, value in values.items() if value is not None}


def _identity(out: Path) -> str:
    """Return the identity that the folder keeps, or give it one."""
    path = out / IDENTITY
    if path.exists():
        return str(json.loads(path.read_text(encoding="utf-8"))["identity"])
    identity = uuid.uuid4().hex[:12]
    write_text(path, json.dumps({"identity": identity}) + "\n")
    return identity


def _started(name: str, run: Tracked) -> Feed:
    try:
        tracker = make_tracker(name)
        return Feed(name, tracker, tracker.start(run))
    except Exception as error:
        raise ValueError(
            f"{name} cannot start ({first_line(error)}): put that right, or leave it out of report_to=."
        ) from error
