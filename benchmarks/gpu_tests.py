"""Run the tests that need a GPU, and keep what pytest printed.

python -m benchmarks.gpu_tests [--out FILE | --record]
"""

import shlex
import subprocess
import sys
from pathlib import Path

from benchmarks import record
from lookalike.utils.files import write_text
from lookalike.utils.machine import checked_device, machine, versions

COMMAND = (
    "pytest",
    "-m",
    "gpu",
    "-v",
    "-p",
    "no:cacheprovider",
    "tests/test_gpu.py",
    "tests/search",
)
ROOT = Path(__file__).parents[1]


def main(out: record.Out = None, committed: record.Record = False) -> None:
    """Run the tests that need a GPU; fails if one of them does."""
    checked_device("cuda")
    path = record.destination("gpu_tests", out, committed).with_suffix(".txt")
    with subprocess.Popen(
        [sys.executable, "-m", *COMMAND], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as tests:
        printed = [f"$ {shlex.join(COMMAND)}\n", f"{machine('cuda')}\n", f"{versions()}\n"]
        for line in tests.stdout or ():
            print(line, end="", flush=True)
            printed.append(line.replace(str(ROOT), "."))
    write_text(path, "".join(printed))
    print(f"Written: {path}")
    sys.exit(tests.returncode)


if __name__ == "__main__":
    record.run(main)
