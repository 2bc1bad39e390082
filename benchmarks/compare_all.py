"""Run the comparisons of docs/results.md side by side on one machine, and write the results that its tables show.

python -m benchmarks.compare_all INPUTS [--only medquad,debian] [--out FOLDER | --record] [--limit SECONDS]
python -m benchmarks.compare_all INPUTS [--out FOLDER] -- --seeds 1

INPUTS holds what `benchmarks.prepare` makes, or what it makes that from. A comparison that fails or is stopped does not
affect the others; run the same command again to resume it. Options after `--` are added to every command; such results
cannot be recorded.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from tyro.conf import Positional, arg

import lookalike
from benchmarks import record
from benchmarks.mps import shared_gpu
from benchmarks.prepare.inputs import make_from_folder
from lookalike.samplers.warmup import compile_kernels
from lookalike.utils.files import write_text

MINILM = "--model sentence-transformers:all-MiniLM-L6-v2 --model-option max_length=128 --evaluate-every 0"
EFFICIENTNET = (
    "--data-option size=128 --model timm:tf_efficientnet_lite0 "
    "--model-option weights=tf_efficientnet_lite0.safetensors --evaluate-every 0"
)
ALL_SAMPLERS = "random,batchhard,full,incremental,lsh:128,lsh:512,lsh:auto"
BETWEEN_LOOKS = 0.2  # seconds
GRACE = 15  # seconds between asking a comparison to stop and killing it
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
PACKAGE = Path(lookalike.__file__).parents[1]  # where children import it from, whatever folder they run in


class Comparison(NamedTuple):
    """A comparison of the documentation."""

    arguments: str
    """Arguments of `lookalike compare`, run in the folder of inputs."""
    needs: tuple[str, ...] = ()
    """Inputs that must be there."""


COMPARISONS = {
    "medquad": Comparison(
        f"msmarco --root medquad --data-option split=test {MINILM} --samplers {ALL_SAMPLERS} "
        "--epochs 4 --pairs-per-batch 64 --learning-rate 5e-5 --seeds 3",
        ("medquad", "minilm"),
    ),
    "debian": Comparison(
        f"texts --root debian_descriptions.tsv --data-option test_share=0.5 {MINILM} --epochs 3 --pairs-per-batch 64 "
        "--learning-rate 5e-5 --seeds 3",
        ("debian", "minilm"),
    ),
    "emoji": Comparison(
        f"sop --root emoji_sop {EFFICIENTNET} --epochs 10 --pairs-per-batch 32 --learning-rate 3e-4 --seeds 3",
        ("emoji", "efficientnet"),
    ),
    "grocery": Comparison(
        f"folder --root grocery128 {EFFICIENTNET} --epochs 8 --pairs-per-batch 16 --learning-rate 1e-4 --seeds 3",
        ("grocery", "efficientnet"),
    ),
    "glyphs": Comparison("glyphs --seeds 5"),
    "cjk": Comparison("cjk_glyphs32.npz --seeds 5", ("cjk",)),
}


def main(
    inputs: Positional[Annotated[Path, arg(help="The folder of inputs.")]],
    added: Positional[Annotated[tuple[str, ...], arg(help="After `--`: options added to every command.")]] = (),
    only: Annotated[str, arg(help="Comparisons to run, comma-separated.")] = ",".join(COMPARISONS),
    runs: Annotated[Path, arg(help="The folder of the runs.")] = Path("runs/compare_all"),
    jobs: Annotated[int, arg(help="Runs at a time, over all comparisons.")] = os.cpu_count() or 1,
    limit: Annotated[float | None, arg(help="Seconds after which everything is stopped and kept.")] = None,
    out: record.OutFolder = None,
    committed: record.Record = False,
) -> None:
    """Run the comparisons of the documentation side by side; exit with 1 if one of them does not finish."""
    began = time.monotonic()
    names = only.split(",")
    if unknown := [name for name in names if name not in COMPARISONS]:
        raise ValueError(f"there is no comparison {unknown[0]!r}; there are {', '.join(COMPARISONS)}.")
    results = record.destination_folder(out, committed, whole=not added).resolve()
    inputs, runs = inputs.resolve(), runs.resolve()
    runs.mkdir(parents=True, exist_ok=True)
    for need in dict.fromkeys(need for name in names for need in COMPARISONS[name].needs):
        print(f"input: {make_from_folder(need, inputs).name}", flush=True)
    compile_kernels()  # once, rather than in every run
    finished = []
    with shared_gpu() as environment:
        options = [*added, "--jobs", str(max(1, jobs // len(names)))]
        started = {name: start(name, options, inputs, runs, environment) for name in names}
        try:
            for name, code in ended(started, None if limit is None else began + limit):
                if code == 0:
                    finished.append(name)
                    write_text(results / f"compare_{name}.json", (runs / name / "compare.json").read_text())
                    print((runs / name / "compare.md").read_text(), flush=True)
                said = ending(code, runs / f"{name}.log")
                print(f"{name}, after {time.monotonic() - began:.0f} s: {said}", flush=True)
        finally:
            stop(list(started.values()))
    if finished:
        print(f"Written: {results}")
    if len(finished) < len(names):
        sys.exit(1)


def command(name: str) -> list[str]:
    """Return the command of a comparison, without its folder and the number of runs at a time."""
    return ["lookalike", "compare", *shlex.split(COMPARISONS[name].arguments)]


def start(
    name: str, added: list[str], inputs: Path, runs: Path, environment: dict[str, str]
) -> "subprocess.Popen[bytes]":
    """Start a comparison in a process group of its own, with its output in a log."""
    line = [sys.executable, "-c", "from lookalike.cli import main; main()", *command(name)[1:]]
    line += ["--out", str(runs / name), *added]
    print(f"$ {shlex.join([*command(name), *added])}", flush=True)
    path = os.pathsep.join([str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with (runs / f"{name}.log").open("a") as log:
        return subprocess.Popen(
            line,
            cwd=inputs,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
            env={**os.environ, **ONE_THREAD, **offline, "PYTHONPATH": path, **environment},
        )


def ended(started: dict[str, "subprocess.Popen[bytes]"], deadline: float | None) -> Iterator[tuple[str, int | None]]:
    """Yield comparisons with their exit codes as they end, and with None at the deadline."""
    waiting = dict(started)
    while waiting:
        is_over = deadline is not None and time.monotonic() > deadline
        for name, process in list(waiting.items()):
            if process.poll() is not None or is_over:
                del waiting[name]
                yield name, process.returncode
        time.sleep(BETWEEN_LOOKS)


def stop(processes: list["subprocess.Popen[bytes]"]) -> None:
    """Ask processes and their workers to save and stop, and kill those that do not."""
    for request in (signal.SIGTERM, signal.SIGKILL):
        left = [process for process in processes if _reaches_group(process, request)]
        end = time.monotonic() + GRACE
        while left and time.monotonic() < end:
            time.sleep(BETWEEN_LOOKS)
            left = [process for process in left if _reaches_group(process, 0)]


def _reaches_group(process: "subprocess.Popen[bytes]", request: int) -> bool:
    """Send a signal to a process and its workers, and return whether any of them is left."""
    process.poll()  # or a process that has ended would still count
    try:
        os.killpg(process.pid, request)
    except ProcessLookupError:
        return False
    return True


def ending(code: int | None, log: Path) -> str:
    """Describe how a comparison ended."""
    if code == 0:
        return "finished"
    if code is None:
        return "out of time; the same command resumes it"
    return f"failed with status {code}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:]) + "\n"


if __name__ == "__main__":
    record.run(main)
