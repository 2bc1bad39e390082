"""The fastest backend that is loaded answers; small searches do not wait for the compiled kernel to load."""

import subprocess
import sys

import pytest
import torch

from lookalike import hamming_topk
from lookalike.search import cpu, load_kernel, search_backend
from tests.processes import PATIENCE

FRESH = """
import os, sys
import torch
from lookalike import hamming_topk
from lookalike.search import load_kernel, search_backend


def check(load):
    codes = torch.randint(256, (5000, 2), dtype=torch.uint8)
    few = codes[:100].clone()
    assert search_backend(few, codes, 5) == "matmul"
    hamming_topk(few, codes, 5)
    assert "numba" not in sys.modules
    assert search_backend(codes, codes, 5) == "cpu"  # large enough to be worth loading
    load(few, codes)
    assert search_backend(few[:1], few, 5) == "cpu"


def many_small_searches(few, codes):
    for _ in range(40):
        hamming_topk(few, codes, 5)


for load in (lambda few, codes: hamming_topk(codes, codes, 5), many_small_searches, lambda *_: load_kernel()):
    if os.fork() == 0:
        check(load)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def test_the_compiled_kernel_answers_once_it_is_loaded():
    """By a large search, by many small ones, or when asked to; each in a process that has not loaded it."""
    command = [sys.executable, "-c", FRESH]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
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


def test_codes_too_long_for_the_compiled_kernel():
    load_kernel()
    codes = torch.randint(256, (20, 4100), dtype=torch.uint8, generator=torch.manual_seed(0))
    assert search_backend(codes, codes, 3) == "matmul"
    with pytest.raises(ValueError, match="codes of up to 32760 bits, got 32800; use 'matmul' or 'auto'"):
        hamming_topk(codes, codes, 3, backend="cpu")
    longest = codes[:, :4095].contiguous()
    found, expected = (hamming_topk(longest, ~longest, 20, backend=name) for name in ("cpu", "plain"))
    assert torch.equal(found.distances, expected.distances)
    assert found.distances.max() == 32760
