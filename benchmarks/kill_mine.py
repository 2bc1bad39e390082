"""Kill `lookalike mine` at random moments, alone and beside a second process, and compare the outputs.

python -m benchmarks.kill_mine [--kills 100] [--pairs 8000] [--out FILE | --record]

Every process is a real one and dies of SIGKILL. They are forked from this one, which has imported everything, so that
kills hit the work and not the imports. A trial resumes and kills the same command several times, lets it finish, and
compares the output byte for byte with that of an undisturbed run.
"""

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from tyro.conf import arg

from benchmarks import record

WHOLE = 100  # kills
PAIRS, BLOCK = 8000, 1000  # of the full problem, and of a cell
DEADLINE = 120.0  # seconds that a process may take
POLL = 0.0005  # seconds between looks at a process or its files
WORDS = [f"{a}{b}" for a in ("ba", "ce", "di", "fo", "gu", "ha") for b in ("l", "m", "n", "r", "s", "t", "x")]
ANY_TIME, CHUNK_WRITTEN, CELL_DONE = "any time", "a chunk is written", "a cell is done"
OUTPUT_WRITTEN = "the output is written"
MOMENTS = (ANY_TIME, CHUNK_WRITTEN, CELL_DONE, OUTPUT_WRITTEN)
ALONE, ONE_OUTPUT, ONE_CACHE = "alone", "two processes, one output", "two processes, one cache folder"


def save_model(folder: Path) -> Path:
    """Save a sentence-transformers model of a few thousand random weights that knows `WORDS`; return its folder."""
    import sentence_transformers
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=5 + len(WORDS),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=40,
        initializer_range=0.6,
    )
    transformers.BertModel(config).save_pretrained(folder / "bert")
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder / "bert")
    model = sentence_transformers.SentenceTransformer(
        str(folder / "bert"), prompts={"ask": "bal "}, device="cpu"
    )  # adds mean pooling
    model.max_seq_length = 32
    model.save(str(folder / "model"))
    return folder / "model"


def write_pairs(path: Path, number: int) -> Path:
    """Write pairs of random words; return the path."""
    rng = random.Random(0)
    with path.open("w") as file:
        for i in range(number):
            query, answer = (" ".join(rng.choices(WORDS, k=k)) for k in (4, 9))
            file.write(json.dumps({"query": f"{query} {i}", "answer": f"{answer} {i}"}) + "\n")
    return path


@dataclass
class Process:
    """A forked `lookalike mine`: what it prints, and how it ends."""

    arguments: list[str]
    screen: Path
    pid: int = 0
    status: int | None = None

    def __post_init__(self) -> None:
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run()

    def _run(self) -> None:
        """Run the command, in the child; never return."""
        code = 70
        try:
            handle = os.open(self.screen, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            sys.argv = ["lookalike", *self.arguments]
            from lookalike.cli import main

            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        finally:
            sys.stdout.flush()
            os._exit(code)

    def ended(self) -> bool:
        """Tell whether it has ended, without waiting."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    def wait(self) -> None:
        """Wait for its end, until the deadline."""
        deadline = time.monotonic() + DEADLINE
        while not self.ended():
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                raise TimeoutError(f"{self.arguments} did not end within {DEADLINE:.0f} seconds.")
            time.sleep(POLL)

    def kill(self) -> bool:
        """Kill it; tell whether it was still running."""
        if self.ended():
            return False
        os.kill(self.pid, signal.SIGKILL)
        self.wait()
        return os.WIFSIGNALED(self.status or 0)

    @property
    def code(self) -> int:
        """Its exit code, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(self.status or 0)

    def said(self) -> str:
        """Return what it has printed."""
        return " ".join(self.screen.read_text(errors="replace").split())


@dataclass
class Outcome:
    """Counts over all trials."""

    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    outputs: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    trials: int = 0

    def note_end(self, process: Process, others: list[int]) -> None:
        """Count how a process ended that was not killed."""
        said = process.said()
        if process.code == 0:
            return
        if "is in use by" in said:
            named = any(f"is in use by process {pid} (" in said for pid in others)
            self.refusals["named the holder" if named else "said: another process"] += 1
        elif process.code == 2 and "exists; --force overwrites it" in said:
            self.refusals["the output was there"] += 1
        else:
            self.unexpected.append(f"exit {process.code}: {said[-400:]}")

    @property
    def failed(self) -> bool:
        """Whether something went wrong."""
        return bool(self.unexpected or self.leftovers or self.outputs["unequal"])


@dataclass
class Trials:
    """Repeated trials with one model and one file of pairs."""

    model: Path
    pairs: Path
    folder: Path
    seed: int = 0
    expected: bytes = b""
    duration: float = 0.0
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        work = self._new_folder("undisturbed")
        began = time.monotonic()
        process = self._start(work, "out.jsonl")
        process.wait()
        if process.code:
            raise RuntimeError(f"an undisturbed run failed: {process.said()}")
        self.duration = time.monotonic() - began
        self.expected = (work / "out.jsonl").read_bytes()

    def run(self, kills: int) -> Outcome:
        """Run trials until this many processes were killed, half of them beside another one."""
        half = kills // 2
        while self._killed(ALONE) < kills - half:
            self._trial(ALONE, kills - half - self._killed(ALONE))
        modes = (ONE_OUTPUT, ONE_CACHE)
        while (done := sum(map(self._killed, modes))) < half:
            self._trial(modes[self.outcome.trials % 2], half - done)
        return self.outcome

    def _killed(self, mode: str) -> int:
        return self.outcome.kills[mode]

    def _trial(self, mode: str, most: int) -> None:
        """Kill and resume a few times, let the command finish, and check its output."""
        self.outcome.trials += 1
        work = self._new_folder(f"trial-{self.outcome.trials}")
        names = ["out.jsonl", "out.jsonl" if mode == ONE_OUTPUT else "second.jsonl"][: 1 if mode == ALONE else 2]
        shared = work / "cache" if mode == ONE_CACHE else None
        for _ in range(self.rng.randint(1, 5)):
            if all((work / name).exists() for name in names) or most <= 0:
                break
            processes: list[Process] = []
            for name in [name for name in names if not (work / name).exists()]:
                if processes:
                    time.sleep(self.rng.random() * self.duration / 2)  # the second meets the first at work
                processes.append(self._start(work, name, shared))
            most -= self._disturb(mode, work, processes, most)
        for name in dict.fromkeys(names):
            self._finish(work, name, shared)
        if shared is not None:  # the cache must be right for later runs as well
            self._finish(work, "later.jsonl", shared)

    def _disturb(self, mode: str, work: Path, processes: list[Process], most: int) -> int:
        """Kill one of the processes, sometimes the other one too; return how many were killed."""
        killed = 0
        pids = [process.pid for process in processes]
        for process in self.rng.sample(processes, len(processes)):
            last_one = killed > 0 and self.rng.random() < 0.5
            if killed < most and not last_one:
                moment = self._wait_for(self.rng.choice(MOMENTS), process, work)
                if process.kill():
                    killed += 1
                    self.outcome.kills[mode] += 1
                    self.outcome.moments[moment] += 1
                    continue
            process.wait()
            self.outcome.note_end(process, [pid for pid in pids if pid != process.pid])
        return killed

    def _wait_for(self, moment: str, process: Process, work: Path) -> str:
        """Wait until the process ends, the moment comes, or it can no longer come; return the moment."""
        happened: dict[str, Callable[[], bool]] = {
            ANY_TIME: lambda: False,
            CHUNK_WRITTEN: _changes(lambda: _row_sizes(work)),
            CELL_DONE: _changes(lambda: _cells(work)),
            OUTPUT_WRITTEN: lambda: any(work.glob("*.jsonl.*.tmp")),
        }
        end = time.monotonic() + self.duration * 1.1 * (self.rng.random() if moment == ANY_TIME else 1.0)
        while not process.ended() and time.monotonic() < end:
            if happened[moment]():
                time.sleep(self.rng.random() * 0.01)  # a little into it, or after it
                return moment
            time.sleep(POLL)
        return ANY_TIME

    def _finish(self, work: Path, name: str, shared: Path | None) -> None:
        """Let the command finish, and compare its output."""
        output = work / name
        if not output.exists():
            process = self._start(work, name, shared)
            process.wait()
            self.outcome.note_end(process, [])
        equal = output.exists() and output.read_bytes() == self.expected
        self.outcome.outputs["equal" if equal else "unequal"] += 1
        self.outcome.leftovers += [path.name for path in work.glob(f"{output.stem}.*.tmp")]

    def _start(self, work: Path, name: str, shared: Path | None = None) -> Process:
        more = [] if shared is None else ["--cache-folder", str(shared)]
        arguments = [
            "mine",
            self.pairs,
            "--model",
            self.model,
            "--output",
            work / name,
            "--device",
            "cpu",
            "--bits",
            64,
            "--block",
            BLOCK,
        ]
        screen = work / f"screen-{time.monotonic_ns()}.txt"
        return Process([*map(str, [*arguments, "--batch-size", 128]), *more], screen)

    def _new_folder(self, name: str) -> Path:
        (self.folder / name).mkdir()
        return self.folder / name


def _row_sizes(folder: Path) -> list[int]:
    try:
        return [path.stat().st_size for path in folder.glob("**/rows.bin")]
    except FileNotFoundError:  # a process has just removed them
        return []


def _cells(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.glob("*/cells-*/*"))
    except FileNotFoundError:  # a process has just removed them
        return 0


def _changes(look: Callable[[], Any]) -> Callable[[], bool]:
    """Return a function that tells whether something has changed since now."""
    before = look()
    return lambda: bool(look() != before)


@contextmanager
def everything_imported() -> Iterator[None]:
    """Import what the command needs, once for all forked processes, and keep to one thread, as forks must."""
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    import sentence_transformers  # noqa: F401 - loaded before the forks
    import tqdm
    import transformers

    import lookalike.cli.mine
    import lookalike.mining.texts  # noqa: F401 - loaded before the forks
    from lookalike.samplers.warmup import compile_kernels

    transformers.utils.logging.disable_progress_bar()
    # tqdm's own lock is one semaphore for all forked processes: one that is killed with it would stop all others.
    tqdm.tqdm.set_lock(threading.RLock())
    tqdm.tqdm.monitor_interval = 0  # no thread that may hold the lock in the moment of a fork
    compile_kernels()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def kill_and_compare(folder: Path, kills: int, pairs: int, seed: int) -> tuple[dict[str, Any], bool]:
    """Kill this many processes; return what happened, and whether something went wrong."""
    with everything_imported():
        began = time.monotonic()
        trials = Trials(save_model(folder / "model"), write_pairs(folder / "pairs.jsonl", pairs), folder, seed)
        outcome = trials.run(kills)
        seconds = time.monotonic() - began
    result = {
        "settings": {"kills": kills, "pairs": pairs, "seed": seed, "undisturbed_s": round(trials.duration, 2)},
        "kills": {"total": outcome.kills.total(), **outcome.kills},
        "moments": dict(outcome.moments),
        "trials": outcome.trials,
        "second_processes": dict(outcome.refusals),
        "outputs": {"equal": 0, "unequal": 0, **outcome.outputs},
        "temporary_files_left": outcome.leftovers,
        "unexpected": outcome.unexpected,
        "seconds": round(seconds),
    }
    return result, outcome.failed


def main(
    kills: Annotated[int, arg(help="Processes to kill, half of them beside another one.")] = WHOLE,
    pairs: Annotated[int, arg(help="Pairs to mine; a chunk is 2,048 texts.")] = PAIRS,
    seed: Annotated[int, arg(help="Seed of the moments.")] = 0,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Kill, resume and compare; fail if an output differs from that of an undisturbed run."""
    path = record.destination("kill_mine", out, committed, whole=kills >= WHOLE and pairs >= PAIRS)
    with tempfile.TemporaryDirectory() as name:
        result, failed = kill_and_compare(Path(name), kills, pairs, seed)
    print(json.dumps(result, indent=1))
    if failed:
        sys.exit(1)
    record.finish(path, result)


if __name__ == "__main__":
    record.run(main)
