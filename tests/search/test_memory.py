"""The CUDA kernels stay within the memory that they are given: the emulator under the address sanitizer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.search import emulator

ROOT = Path(__file__).parents[2]
LIMIT = 900  # seconds; each takes about ten on a quiet machine, and many times as long on a busy one
pytestmark = pytest.mark.timeout(LIMIT)
BEYOND_THE_END = """
import sys, torch
from lookalike.search import cuda
from tests.search.emulator import emulated_kernels
codes, weights, wide = torch.zeros(256, 4, dtype=torch.int32), *(torch.zeros(n, dtype=torch.int32) for n in (200, 1))
kernels = emulated_kernels(cuda.macros_of(4, None), sys.argv[1])
kernels.launch("prepare", (1, 1), 256, codes, None, weights, None, None, wide, 256, 256)
"""


def run(*arguments):
    """Run Python with the sanitizer, which has to be there before anything else."""
    found = [
        subprocess.run(
            [emulator.COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    if not all(Path(path).is_absolute() for path in found):
        pytest.skip("needs libasan")
    environment = {
        "LD_PRELOAD": ":".join(os.path.realpath(path) for path in found),
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path]),
    }
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=os.environ | environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT - 20, check=False
    )


@pytest.fixture(autouse=True)
def _needs_compiler():
    if emulator.COMPILER is None or sys.platform != "linux":
        pytest.skip("needs g++ and Linux")


def test_a_write_beyond_the_end_is_noticed(tmp_path):
    done = run("-c", BEYOND_THE_END, str(tmp_path))
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr


AWKWARD = ("labels", "limits", "exclude, in tiles")
SIGNS = [f"test_cuda.py::test_emulated_kernels_are_exact[{name}-capability{i}]" for name in AWKWARD for i in range(2)]
VALUES = [f"test_cuda_values.py::test_emulated_kernels_are_exact[{name}]" for name in AWKWARD]
EDGES = "test_cuda_values.py::test_emulated_tiles_at_their_edges"


@pytest.mark.parametrize("tests", [SIGNS, [*VALUES, EDGES]], ids=["signs", "values"])
def test_kernels_stay_within_their_memory(tests):
    done = run("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *(f"tests/search/{name}" for name in tests))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
