"""Processes that die at any moment, alone and in twos, spoil nothing; `benchmarks.kill_mine` kills a hundred."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sentence_transformers")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")
def test_killed_and_resumed_the_output_is_that_of_an_undisturbed_run(tmp_path):
    record = tmp_path / "kills.json"
    command = [sys.executable, "-m", "benchmarks.kill_mine", "--kills", "4", "--pairs", "2500", "--out", str(record)]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2], timeout=600
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    result = json.loads(record.read_text())
    assert result["kills"]["total"] == 4
    assert result["outputs"]["equal"] >= 2
    assert result["outputs"]["unequal"] == 0
