"""Kill a rank of trainings that `torchrun` started, let it restart them, and compare with an undisturbed run.

    python -m benchmarks.kill_ranks [--kills 60] [--out FILE | --record]

Each launch trains on two or three processes of this machine, of which one is killed with SIGKILL at a random moment.
Exits with 1 if a launch does not end by itself, if a weight or a metric differs, or if no rank was killed in one of the
phases: the start, until the run's folder is begun; the training; and the end, from the first file of the model on.
Needs Linux, whose /proc tells which process has which rank.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import arg

from benchmarks import record
from benchmarks.kill_train import outcome, write_glyphs

WORLD_SIZES = (2, 3)
WHOLE = 60  # kills
PATIENCE = 180  # seconds that a launch may take
PAUSE = 0.005  # seconds between two looks
RESTARTS = 3
EPOCHS = 6
PHASES = ("start", "training", "end")
OPTIONS = ("--epochs", EPOCHS, "--pairs-per-batch", 18, "--bits", 64, "--device", "cpu")  # 18: whole shares on 2 and 3
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def main(
    kills: Annotated[int, arg(help="How many, over all numbers of ranks.")] = WHOLE,
    seed: Annotated[int, arg(help="Of the moments.")] = 0,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Kill, wait, compare, and write the result."""
    path = record.destination("kill_ranks", out, committed, whole=kills >= WHOLE)
    began, moments = time.perf_counter(), random.Random(seed)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        glyphs = write_glyphs(Path(temporary, "glyphs.npz"))
        for number, world_size in enumerate(WORLD_SIZES):
            share = kills * (number + 1) // len(WORLD_SIZES) - kills * number // len(WORLD_SIZES)
            trial = Trial(world_size, glyphs, Path(temporary, str(world_size)), moments)
            rows.append({"ranks": world_size, **trial.kill(share)})
            print(f"{world_size} ranks: {rows[-1]}", flush=True)
    total: Counter[str] = sum((Counter(row["by_phase"]) for row in rows), Counter())
    result = {
        "settings": {"kills": kills, "seed": seed, "epochs": EPOCHS, "restarts": RESTARTS},
        "rows": rows,
        "by_phase": {each: total[each] for each in PHASES},
        **{name: sum(row[name] for row in rows) for name in ("kills", "hangs", "failed", "different")},
        "seconds": round(time.perf_counter() - began),
    }
    record.finish(path, result)
    missed = [each for each in PHASES if not total[each]]
    if missed:
        print(f"no rank was killed in these phases: {', '.join(missed)}", file=sys.stderr)
    sys.exit(1 if missed or any(result[name] for name in ("hangs", "failed", "different")) else 0)


@dataclass
class Launch:
    """One `torchrun`, and what it trains."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    log: Path
    began: float = field(default_factory=time.monotonic)

    @property
    def phase(self) -> str:
        """Phase of the run, from its files."""
        if (self.folder / "model").exists() or (self.folder / "result.json").exists():
            return "end"
        return "training" if (self.folder / "run.json").exists() else "start"

    @property
    def workers(self) -> dict[int, int]:
        """The pids of the ranks that run at this moment."""
        found = {}
        for pid in _children(self.process.pid):
            rank = _variable(pid, "RANK")
            if rank is not None:
                found[int(rank)] = pid
        return found

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        """Wait for something; return whether it happened before the launch ended or took too long."""
        while not condition():
            if self.process.poll() is not None or time.monotonic() > self.began + PATIENCE:
                return condition()
            time.sleep(PAUSE)
        return True

    def ended(self) -> int | None:
        """Wait for the end and return its status, None if it does not end."""
        self.wait_until(lambda: self.process.poll() is not None)
        return self.process.poll()


@dataclass
class Trial:
    """Launches with some number of ranks, of which one is killed."""

    world_size: int
    glyphs: Path
    folder: Path
    moments: random.Random

    def kill(self, kills: int) -> dict[str, Any]:
        """Kill a rank of as many launches, and compare each with the undisturbed one."""
        self.folder.mkdir()
        durations = self._undisturbed()
        whole = outcome(self.folder / "whole")
        seconds: dict[str, list[float]] = {each: [] for each in PHASES}
        counts: Counter[str] = Counter()
        while sum(map(len, seconds.values())) < kills:
            with self._launched(f"killed-{counts['launches']}") as launch:
                counts["launches"] += 1
                died = self._kill_a_rank(launch, durations)
                status = launch.ended()
                problem = _problem(launch, status, whole)
            if died is not None:
                rank, phase, took = died
                seconds[phase].append(took)
                print(
                    f"  rank {rank} of {self.world_size}, {phase}: {took:.2f} s{problem and ', ' + problem}", flush=True
                )
            if problem:
                counts[problem] += 1
                print(launch.log.read_text(errors="replace")[-6000:], file=sys.stderr)
        every = [each for of_phase in seconds.values() for each in of_phase]
        return {
            "kills": len(every),
            **{name: counts[name] for name in ("launches", "hangs", "failed", "different")},
            "by_phase": {phase: len(values) for phase, values in seconds.items()},
            "seconds_until_the_others_ended": _spread(every),
            "by_phase_seconds": {phase: _spread(values) for phase, values in seconds.items()},
        }

    def _undisturbed(self) -> dict[str, float]:
        """Train undisturbed and return how long each phase takes; the first launch fills caches."""
        for name in ("first", "whole"):
            with self._launched(name) as launch:
                launch.wait_until(lambda launch=launch: len(launch.workers) == self.world_size)  # type: ignore[misc]
                began = time.monotonic()
                durations: dict[str, float] = {}
                for phase in PHASES:
                    launch.wait_until(lambda launch=launch, phase=phase: launch.phase != phase)  # type: ignore[misc]
                    durations[phase] = time.monotonic() - began - sum(durations.values())
                if launch.ended() != 0:
                    raise RuntimeError(f"an undisturbed training failed:\n{launch.log.read_text()[-6000:]}")
        return durations

    def _kill_a_rank(self, launch: Launch, durations: dict[str, float]) -> tuple[int, str, float] | None:
        """Kill a rank; return it, the phase, and after how many seconds the others had ended; None if it was too late.

        The moment is random within a random phase.
        """
        target = self.moments.choice(PHASES)
        delay = self.moments.uniform(0, durations[target])
        rank = self.moments.randrange(self.world_size)
        if not launch.wait_until(lambda: len(launch.workers) == self.world_size and launch.phase == target):
            return None
        time.sleep(delay)
        workers, phase = launch.workers, launch.phase
        if len(workers) < self.world_size or _has_ended(workers[rank]):
            return None
        os.kill(workers[rank], signal.SIGKILL)
        began = time.monotonic()
        others = [pid for each, pid in workers.items() if each != rank]
        launch.wait_until(lambda: all(map(_has_ended, others)))
        return rank, phase, time.monotonic() - began

    @contextmanager
    def _launched(self, name: str) -> Iterator[Launch]:
        """Start a training, and kill what is left of it at the end."""
        folder, log = self.folder / name, self.folder / f"{name}.log"
        launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        launcher += ["--nproc-per-node", str(self.world_size), "--max-restarts", str(RESTARTS)]
        command = ["-m", "lookalike", "train", self.glyphs, "--out", folder, *OPTIONS]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *launcher, *map(str, command)],
                env=os.environ | LOOPBACK,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            yield Launch(process, folder, log)
        finally:
            left = [process.pid, *_children(process.pid)] if process.poll() is None else []
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def _problem(launch: Launch, status: int | None, whole: Any) -> str:
    """Name what is wrong with a launch after its end; nothing if all is well."""
    if status is None:
        return "hangs"
    if status != 0:
        return "failed"
    return "" if outcome(launch.folder) == whole else "different"


def _spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    return {"median": round(float(np.median(values)), 2), "most": round(max(values), 2)}


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _variable(pid: int, name: str) -> str | None:
    """Return an environment variable of another process."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((each.partition(b"=")[2].decode() for each in variables if each.startswith(f"{name}=".encode())), None)


def _has_ended(pid: int) -> bool:
    """Return whether a process has ended, even if its parent has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


if __name__ == "__main__":
    record.run(main)
