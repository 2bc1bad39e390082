"""The training loop of cells: it evaluates equal untrained models once, and notes what a warm start did."""

import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch

from lookalike.training.loop import TrainingLoop
from lookalike.training.results import EpochMetrics
from lookalike.utils.files import write_text


class ObservedLoop(TrainingLoop):
    """A `TrainingLoop` for many runs of one process, whose class keeps what the last of them showed."""

    known: ClassVar[Path]
    """Folder of evaluations before training, by data and weights."""
    notes: ClassVar[dict[str, Any]] = {}
    """What the last run showed."""
    check_earlier: ClassVar[Callable[[], None]] = staticmethod(lambda: None)
    """Raises if the process was asked to stop before the run began, where a compiler may swallow the exception."""

    def run(self, save: Callable[[], None], on_epoch: Callable[[EpochMetrics], None]) -> None:
        """Train to the end; the evaluation before training is read if another run began with the same weights."""
        check_now = self.check

        def check() -> None:
            check_now()
            ObservedLoop.check_earlier()

        self.check = check
        before = None if self.history else self.known / f"{self.data.checksum}-{self._checksum():08x}.json"
        if before is not None and before.exists():
            self.history.append(EpochMetrics.from_json(json.loads(before.read_text())))
            save()
            on_epoch(self.history[0])

        def noted(epoch: EpochMetrics) -> None:
            if epoch.epoch == 0 and before is not None:
                before.parent.mkdir(exist_ok=True)
                write_text(before, json.dumps(epoch.as_json()))
            self._note()
            on_epoch(epoch)

        super().run(save, noted)

    def warm_start(self) -> None:
        """Warm the sampler up, and note the time."""
        began = time.perf_counter()
        super().warm_start()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.notes["warm_start_seconds"] = time.perf_counter() - began

    def _note(self) -> None:
        """Note what the sampler's rule saw."""
        rule = self.sampler.warm_start
        if rule.readiness is not None:
            self.notes["beats"] = {str(rank): float(share) for rank, share in rule.readiness.beats.items()}
        self.notes.update(is_used=rule.is_used, flips=list(rule.flips))

    def _checksum(self) -> int:
        """Compute a checksum of the model's weights."""
        value = 0
        for tensor in self.model.state_dict().values():
            value = zlib.crc32(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy(), value)
        return value
