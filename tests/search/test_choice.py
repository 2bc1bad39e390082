"""The fastest backend that is loaded answers; small searches do not wait for the compiled kernel to load."""

import os
import subprocess
import sys

import pytest
import torch

from lookalike import hamming_topk
from lookalike.search import cpu, load_kernel, search_backend
from tests.processes import PATIENCE

FRESH = """
import sys
import torch
from lookalike import hamming_topk
from lookalike.search import load_kernel, search_backend
codes = torch.randint(256, (5000, 2), dtype=torch.uint8)
few = codes[:100].clone()
assert search_backend(few, codes, 5) == "matmul"
hamming_topk(few, codes, 5)
assert "numba" not in sys.modules
assert search_backend(codes, codes, 5) == "cpu"  # large enough to be worth loading
"""


LOADS = {
    "by a large search": "hamming_topk(codes, codes, 5)",
    "by many small ones": "for _ in range(40): hamming_topk(few, codes, 5)",
    "when asked to": "load_kernel()",
}
FORKED = f"""
import os
for way, code in {LOADS!r}.items():  # three times from here, for the imports take longer than the rest
    if os.fork() == 0:
        exec(code)
        assert search_backend(few[:1], few, 5) == "cpu", way
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, way
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")
def test_the_compiled_kernel_answers_once_it_is_loaded():
    command = [sys.executable, "-c", f"{FRESH}\n{FORKED}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads would not survive the fork
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert run.returncode == 0, run.stderr


def test_small_searches_use_the_loaded_kernel(monkeypatch):
    load_kernel()
    codes = torch.randint(256, (50, 2), dtype=torch.uint8, generator=torch.manual_seed(0))
    answered = []
    search = cpu.topk
    monkeypatch.setattr(cpu, "topk", lambda request: answered.append(request) or search(request))
    found = hamming_topk(codes, codes, 3)
    assert len(answered) == 1
    assert torch.equal(found.indices, hamming_topk(codes, codes, 3, backend="plain").indices)


def test_the_choice_is_checked_like_a_search():
    codes = torch.zeros(3, 2, dtype=torch.uint8)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        search_backend(codes, codes, 0)
