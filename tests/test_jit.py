"""Without numba everything works, slower, and says so."""

import subprocess
import sys

SCRIPT = """
import sys
sys.modules["numba"] = None
import numpy as np, torch
from lookalike import LSHBatchSampler, hamming_topk
x = torch.randn(120, 16)
sampler = LSHBatchSampler(np.arange(120) // 2, 20, bits=64)
for epoch in range(2):
    seen = []
    for ids in sampler:
        sampler.observe(ids, x[ids])
        seen.extend(ids)
    assert sorted(seen) == list(range(120))
codes = torch.randint(0, 256, (2500, 2), dtype=torch.uint8)
assert hamming_topk(codes, codes, 3).indices.shape == (2500, 3)
"""


def test_everything_works_without_numba():
    run = subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "numba is not installed: batches are composed by plain Python" in run.stderr
    assert "numba is not installed: searching by matrix products" in run.stderr
