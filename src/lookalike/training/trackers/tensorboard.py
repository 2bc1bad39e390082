"""TensorBoard: event files in the folder `tensorboard` of a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lookalike.utils.imports import optional_import

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.training.trackers.tracker import Row, Tracked

FOLDER, EVENTS = "tensorboard", "events.out.tfevents.*"
COMPARED = ("test/recall@1", "test/mrr@10", "mining/share")  # beside the hyperparameters of a run
KINDS = (bool, int, float, str)  # that TensorBoard's table of hyperparameters knows


class Adapter:
    """Writes events. What a resumed run repeats is purged from the files that the killed one left."""

    def __init__(self) -> None:
        optional_import("tensorboard", "report_to=tensorboard", "'lookalike[tensorboard]'")
        self._writer: Any = None

    def folder(self, out: Path) -> Path:
        """Return where it writes."""
        return out / FOLDER

    def start(self, run: Tracked) -> int:
        """Begin a file of events; TensorBoard skips events from `next_step` on in the files before it."""
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - needs tensorboard
        from torch.utils.tensorboard.summary import hparams  # noqa: PLC0415 - as above

        folder = self.folder(run.out)
        is_new = not any(folder.glob(EVENTS))
        _wait_for_a_later_name(folder)
        self._writer = SummaryWriter(str(folder), purge_step=None if is_new else run.next_step)
        config = {name: each if isinstance(each, KINDS) else str(each) for name, each in run.flat_config().items()}
        experiment, session, _ = hparams(config, dict.fromkeys(COMPARED, 0.0))  # type: ignore[no-untyped-call]
        for summary in (experiment, session):
            self._writer.file_writer.add_summary(summary)
        return 0 if is_new else run.next_step

    def log(self, row: Row) -> None:
        """Write a scalar per value."""
        for name, value in row.values.items():
            self._writer.add_scalar(name, value, row.step)

    def flush(self) -> None:
        """Write what is buffered."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def _wait_for_a_later_name(folder: Path) -> None:
    """Wait for the next second, if need be: names begin with it, and TensorBoard reads files in their order."""
    seconds = [int(each) for path in folder.glob(EVENTS) if (each := path.name.split(".")[3]).isdigit()]
    time.sleep(min(max(max(seconds, default=0) + 1 - time.time(), 0.0), 1.0))
