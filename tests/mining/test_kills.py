"""Processes that die at any moment, alone and in twos, spoil nothing; `benchmarks.kill_mine` kills a hundred."""

import json
import os

import pytest

from lookalike.mining.store import Store
from tests.processes import run_function

pytest.importorskip("sentence_transformers")


def kill_four(folder):
    from benchmarks.kill_mine import kill_and_compare

    Store.CHUNK = 128
    result, failed = kill_and_compare(folder, kills=4, pairs=400, seed=0)
    (folder / "result.json").write_text(json.dumps([result, failed]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")
def test_killed_and_resumed_the_output_is_that_of_an_undisturbed_run(tmp_path):
    run = run_function(kill_four, tmp_path)
    assert run.returncode == 0, run.stderr
    result, failed = json.loads((tmp_path / "result.json").read_text())
    assert not failed, result
    assert result["kills"]["total"] == 4
    assert result["outputs"]["equal"] >= 2
    assert result["outputs"]["unequal"] == 0
