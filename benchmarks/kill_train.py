"""Kill trainings with SIGKILL at random moments, resume them, and compare the outcome with an undisturbed run.

    python -m benchmarks.kill_train [--kills 200] [--out FILE | --record]

Exits with 1 if a weight or a metric differs, or if no run was killed in one of the phases: the start, training steps,
the change of an epoch, evaluations, saves and the end. This process imports and compiles everything once and forks the
trainings.
"""

import json
import mmap
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import nn
from tyro.conf import arg

from benchmarks import record
from lookalike.data.glyphs import load_glyphs
from lookalike.data.retrieval import RetrievalData
from lookalike.data.scans import glyph_scans
from lookalike.samplers.epochs import EpochBatchSampler
from lookalike.training import loop, run_folder
from lookalike.training.encoders import ConvNet
from lookalike.training.evaluating import Evaluator
from lookalike.training.run import train
from lookalike.training.settings import Settings
from lookalike.training.strategies import compile_ahead
from lookalike.training.whole_parts import PartEmbedder

CLASSES = 90  # characters
EPOCHS = 5
KILLS_PER_RUN = 12  # at most, so that a run ends at some point
PATIENCE = 300  # seconds that a process may take
SMALL = Settings(epochs=EPOCHS, pairs_per_batch=16, bits=64)
WHOLE = 200  # kills
CONFIGURATIONS: dict[str, tuple[bool, Settings]] = {  # paired, how
    "lsh": (False, SMALL),
    "lsh, pairs": (True, SMALL),
    "lsh:auto, guard": (False, replace(SMALL, bits="auto", guard=0.95)),
    "scalar, pairs": (True, replace(SMALL, code="scalar")),
    "scalar:auto": (False, replace(SMALL, bits="auto", code="auto")),
    "incremental": (False, replace(SMALL, sampler="incremental")),
    "full": (True, replace(SMALL, sampler="full")),
    "random": (False, replace(SMALL, sampler="random")),
}
PHASES = ("start", "warm start", "training step", "epoch change", "evaluation", "save", "end")
IN_AN_EPOCH = ("training step", "epoch change")
WATCHED: tuple[tuple[type, str, str], ...] = (  # a class, its method, and the phase that the method is
    (loop.TrainingLoop, "warm_start", "warm start"),
    (loop.TrainingLoop, "train_epoch", "training step"),
    (EpochBatchSampler, "__iter__", "epoch change"),
    (PartEmbedder, "refresh", "epoch change"),
    (Evaluator, "test", "evaluation"),
    (run_folder.RunFolder, "save", "save"),
    (run_folder.RunFolder, "finish", "end"),
)
TIMES = ("seconds", "mining_seconds", "mining_share", "mining_seconds_per_epoch")


class Phase:
    """The phase of a training, in memory that it shares with the process that kills it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2 + 4 * len(PHASES))

    def reset(self) -> None:
        """Forget the last process."""
        self._memory[:] = bytes(len(self._memory))

    @property
    def now(self) -> str:
        """Phase of the training, or in which it was killed."""
        return PHASES[self._memory[0]]

    def entered(self, phase: str) -> int:
        """Return how often the training has entered a phase."""
        place = 2 + 4 * PHASES.index(phase)
        return int.from_bytes(self._memory[place : place + 4], "little")

    @contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Enter a phase, and return to the one before at the end."""
        before, number = self._memory[0], PHASES.index(phase)
        place = 2 + 4 * number
        self._memory[place : place + 4] = (self.entered(phase) + 1).to_bytes(4, "little")
        self._memory[0] = number
        try:
            yield
        finally:
            self._memory[0] = before or PHASES.index("epoch change")  # the start is over in any case


@dataclass
class Watched:
    """Watches the methods of a training that are phases, and measures how long each takes."""

    phase: Phase
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def install(self) -> None:
        """Wrap the methods in this process."""
        for owner, name, phase in WATCHED:
            self._wrap(owner, name, phase)

    def _wrap(self, owner: type, name: str, phase: str) -> None:
        method = getattr(owner, name)

        @wraps(method)
        def watched(this: Any, *arguments: Any, **options: Any) -> Any:
            if phase == "training step" and _is_over(this):
                return method(this, *arguments, **options)
            began = time.perf_counter()
            with self.phase.of(phase):
                result = method(this, *arguments, **options)
            self.seconds.setdefault(phase, []).append(time.perf_counter() - began)
            return result

        setattr(owner, name, watched)


def _is_over(training: loop.TrainingLoop) -> bool:
    """Return whether the epoch was trained to its end before the run was killed."""
    return len(training.losses) == len(training.sampler)


def main(
    kills: Annotated[int, arg(help="How many, over all configurations.")] = 200,
    seed: Annotated[int, arg(help="Of the moments.")] = 0,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Kill, resume, compare, and write the result."""
    path = record.destination("kill_train", out, committed, whole=kills >= WHOLE)
    torch.set_num_threads(1)
    began = time.perf_counter()
    moments, phase = random.Random(seed), Phase()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        file = write_glyphs(folder / "glyphs.npz")
        data = {paired: glyph_scans(file, paired=paired) for paired in (False, True)}
        for paired, settings in CONFIGURATIONS.values():
            compile_ahead(data[paired].train, settings, None, torch.device("cpu"))
        for number, (name, (paired, settings)) in enumerate(CONFIGURATIONS.items()):
            share = kills * (number + 1) // len(CONFIGURATIONS) - kills * number // len(CONFIGURATIONS)
            trial = Trial(data[paired], settings, folder / str(number), phase, moments)
            rows.append({"configuration": name, **trial.kill(share)})
            print(f"{name}: {rows[-1]}", flush=True)
    total: Counter[str] = sum((Counter(row["by_phase"]) for row in rows), Counter())
    result = {
        "settings": {"kills": kills, "seed": seed, "epochs": EPOCHS, "classes": CLASSES},
        "rows": rows,
        "by_phase": {each: total[each] for each in PHASES},
        "kills": sum(row["kills"] for row in rows),
        "runs": sum(row["runs"] for row in rows),
        "different": sum(row["different"] for row in rows),
        "seconds": round(time.perf_counter() - began),
    }
    record.finish(path, result)
    missed = [each for each in PHASES if not total[each]]
    if missed:
        print(f"no run was killed in these phases: {', '.join(missed)}", file=sys.stderr)
    sys.exit(1 if result["different"] or missed else 0)


@dataclass
class Trial:
    """A configuration whose runs are killed."""

    data: RetrievalData
    settings: Settings
    folder: Path
    phase: Phase
    moments: random.Random

    def kill(self, kills: int) -> dict[str, Any]:
        """Kill runs, resume each until it is finished, and compare it; `kills` counts over all runs."""
        durations = self._undisturbed()
        by_phase: Counter[str] = Counter()
        done = different = pairs = runs_done = 0
        while done < kills:
            folder = self.folder / f"killed-{runs_done}"
            deaths: list[str] = []
            # Every first run is killed in its first epoch's evaluation and then in its second epoch.
            plan = [("evaluation", 2), ("training step", 1)] if runs_done == 0 else []
            while True:
                may_die = done + len(deaths) < kills and len(deaths) < KILLS_PER_RUN
                planned = len(deaths) < len(plan)
                target = (plan[len(deaths)] if planned else self._target(durations)) if may_die else None
                died = self._live(folder, target, durations, latest=0.3 if planned else 1.0)
                if died is None:
                    break
                deaths.append(died)
            runs_done += 1
            done += len(deaths)
            by_phase.update(deaths)
            pairs += sum(a == "evaluation" and b in IN_AN_EPOCH for a, b in pairwise(deaths))
            if outcome(folder) != outcome(self.folder / "whole"):
                different += 1
                print(f"{folder.name} differs after {deaths}", file=sys.stderr)
        return {
            "kills": done,
            "runs": runs_done,
            "different": different,
            "by_phase": dict(by_phase),
            "in_an_evaluation_then_in_the_next_epoch": pairs,
        }

    def _target(self, durations: dict[str, float]) -> tuple[str, int]:
        """Choose a phase to die in, and how often to enter it before."""
        phase = self.moments.choice([each for each in PHASES if each in durations] + ["save"])  # short, easily missed
        most = {"start": 1, "warm start": 1, "end": 1, "save": 4}.get(phase, 2)
        return phase, self.moments.randint(1, most)

    def _undisturbed(self) -> dict[str, float]:
        """Train undisturbed and return how long each phase takes."""
        self.folder.mkdir()
        file = self.folder / "seconds.json"
        self.phase.reset()
        child = self._fork(self.folder / "whole", file)
        self._ended(child)
        durations = {name: float(np.mean(values)) for name, values in json.loads(file.read_text()).items()}
        return {"start": 0.1, **durations}

    def _live(
        self, folder: Path, target: tuple[str, int] | None, durations: dict[str, float], *, latest: float
    ) -> str | None:
        """Train until a moment in the target phase; return the phase that was hit, or None if the run ended before.

        The moment is random, at most `latest` of the phase's usual duration after its beginning.
        """
        self.phase.reset()
        child = self._fork(folder, None)
        if target is not None:
            name, times = target
            until = time.monotonic() + PATIENCE
            while name != "start" and self.phase.entered(name) < times and time.monotonic() < until:
                if os.waitpid(child, os.WNOHANG) != (0, 0):  # it has ended
                    return None
                time.sleep(0.0002)
            time.sleep(self.moments.uniform(0, latest * durations.get(name, 0.1)))
            os.kill(child, signal.SIGKILL)
        return self.phase.now if self._ended(child) else None

    def _ended(self, child: int) -> bool:
        """Wait for a process to end, and return whether it was killed."""
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"a training failed with {code}; its traceback is above")
        return code != 0

    def _fork(self, folder: Path, seconds: Path | None) -> int:
        child = os.fork()
        if child:
            return child
        try:
            watched = Watched(self.phase)
            watched.install()
            train(self.data, self.settings, out=folder, model=model(), device="cpu", resume=True, progress=False)
            if seconds is not None:
                seconds.write_text(json.dumps(watched.seconds))
        except Exception:  # noqa: BLE001 - the process ends here, whatever happens
            traceback.print_exc()
            os._exit(1)
        os._exit(0)


def model() -> nn.Module:
    """Build a small network with dropout, whose random numbers a checkpoint must keep."""
    torch.manual_seed(0)
    return nn.Sequential(ConvNet(width=8, dim=32), nn.Dropout(0.1))


def outcome(folder: Path) -> tuple[list[dict[str, Any]], bytes, list[str]]:
    """Return everything that a run leaves, except times."""
    texts = [*(folder / "metrics.jsonl").read_text().splitlines(), (folder / "result.json").read_text()]
    metrics = [{k: v for k, v in json.loads(text).items() if k not in TIMES} for text in texts]
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    return metrics, (folder / "model" / "model.safetensors").read_bytes(), names


def write_glyphs(path: Path) -> Path:
    """Write some characters in all faces as a file of glyphs."""
    glyphs = load_glyphs()
    points, counts = np.unique(glyphs.codepoints, return_counts=True)
    chosen = np.isin(glyphs.codepoints, points[counts == counts.max()][:CLASSES])
    images = glyphs.images[chosen].reshape(-1, 512, 2)
    np.savez(
        path,
        packed=(images[..., 0] << 4 | images[..., 1]).astype(np.uint8),
        codepoint=glyphs.codepoints[chosen],
        face=glyphs.faces[chosen],
        faces=np.array(glyphs.face_names),
    )
    return path


if __name__ == "__main__":
    record.run(main)
