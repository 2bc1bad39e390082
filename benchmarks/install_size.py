"""Measure what an installation takes on disk, and what the command line takes to answer, in bare environments.

python -m benchmarks.install_size [--out FILE | --record]

Needs git, the history of the repository and a package index; takes minutes.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import record

ROOT = Path(__file__).parents[1]
STATES = {  # what is installed, and the commit it is in
    "with matplotlib and fonttools": "b78870c~1",
    "now": "HEAD",
}
OTHERS = ("pip", "setuptools", "wheel")  # what an environment is born with
SIZES = """
import importlib.metadata, json
sizes = {}
for each in importlib.metadata.distributions():
    files = [each.locate_file(file) for file in each.files or [] if file.suffix != ".pyc"]
    sizes[each.metadata["Name"].lower()] = sum(file.stat().st_size for file in files if file.exists())
print(json.dumps(sizes))
"""
COMMANDS = {
    "lookalike --help": ("-m", "lookalike", "--help"),
    "lookalike train --help": ("-m", "lookalike", "train", "--help"),
    "lookalike completion bash": ("-m", "lookalike", "completion", "bash"),
    "python -c 'import torch'": ("-c", "import torch"),
}
REPEATS = 5


def main(out: record.Out = None, committed: record.Record = False) -> None:
    """Install every state into an environment of its own, and write the result."""
    path = record.destination("install_size", out, committed)
    steps = record.Steps()
    states = []
    with tempfile.TemporaryDirectory() as folder:
        for name, commit in STATES.items():
            steps(f"installing the state {name}")
            python = _installed(Path(folder) / name.replace(" ", "-"), commit)
            sizes = _sizes(python)
            states.append({"state": name, "packages": dict(sorted(sizes.items(), key=lambda each: -each[1]))})
        steps("timing commands")
        times = {command: _seconds(python, args) for command, args in COMMANDS.items()}
    record.finish(path, {"states": states, "commands": times, "repeats": REPEATS})


def _installed(folder: Path, commit: str) -> Path:
    """Return the interpreter of a bare environment with the wheel of a commit."""
    source = folder / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "x"], cwd=source, input=archive, check=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", source],
        check=True,
        env=environment,
        cwd=folder,
    )
    return python


def _sizes(python: Path) -> dict[str, int]:
    """Return the bytes of each installed distribution, without byte code."""
    run = subprocess.run([python, "-I", "-c", SIZES], capture_output=True, text=True, check=True)
    sizes: dict[str, Any] = json.loads(run.stdout)
    return {name: int(size) for name, size in sizes.items() if name not in OTHERS}


def _seconds(python: Path, args: tuple[str, ...]) -> float:
    """Return the least processor time of a command, once Python has compiled what it imports."""
    return round(min([_once(python, args) for _ in range(REPEATS + 1)][1:]), 3)


def _once(python: Path, args: tuple[str, ...]) -> float:
    before = os.times()
    with tempfile.TemporaryDirectory() as elsewhere:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, *args], capture_output=True, check=True, cwd=elsewhere, env=environment)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    record.run(main)
