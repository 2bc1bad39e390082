"""Everything works without numba, slower, and without a folder for compiled kernels, and warns about it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lookalike
from tests.processes import PATIENCE

WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
import numpy as np, torch
from lookalike import LSHBatchSampler, hamming_topk
x = torch.randn(60, 16)
sampler = LSHBatchSampler(np.arange(60) // 2, 20, bits=64)
for epoch in range(2):
    seen = []
    for ids in sampler:
        sampler.observe(ids, x[ids])
        seen.extend(ids)
    assert sorted(seen) == list(range(60))
codes = torch.randint(0, 256, (5000, 2), dtype=torch.uint8)
assert hamming_topk(codes, codes, 3).indices.shape == (5000, 3)
"""
WITHOUT_CACHE = """
import numpy as np, lookalike
import lookalike.samplers, lookalike.search.cpu  # all kernels: numba looks for a folder before it compiles
from lookalike.utils.jit import kernel
from lookalike.utils.splitmix import splitmix64
mix = kernel(splitmix64)
assert mix(np.uint64(7)) == splitmix64(np.full(1, 7, np.uint64))[0]
assert mix.signatures
assert lookalike.__file__.startswith(FOLDER)
"""


def test_everything_works_without_numba():
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_NUMBA],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "numba is not installed: batches are composed by plain Python" in run.stderr
    assert "numba is not installed: searching by matrix products" in run.stderr


def test_everything_works_where_compiled_kernels_cannot_be_kept(tmp_path):
    """As in a container whose installation is read-only and whose user has no home; root may write to any folder."""
    package = tmp_path / "lookalike"
    shutil.copytree(Path(lookalike.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (package, *(path for path in package.rglob("*") if path.is_dir())):
        (folder / "__pycache__").write_text("a file where numba wants a folder")
    hidden = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "LOOKALIKE_CACHE")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"PYTHONPATH": str(tmp_path), "HOME": os.devnull}
    script = f"FOLDER = {str(tmp_path)!r}\n{WITHOUT_CACHE}"
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("\n") == 1, run.stderr
    assert "compiled kernels cannot be kept" in run.stderr
    assert "NUMBA_CACHE_DIR" in run.stderr
