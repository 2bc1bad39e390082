"""Tasks in several processes: they stop together, and nothing else stops with them."""

import os
from functools import partial

import pytest

from lookalike.training.interruptions import stop_requests
from lookalike.training.jobs import in_processes
from tests.processes import held_by_another, start_server, wait_until


@pytest.fixture(autouse=True)
def _forked(monkeypatch):
    """Fork workers from the server of the tests, which saves their imports."""
    monkeypatch.setattr("lookalike.training.jobs.START_METHOD", "forkserver")
    start_server()


def save_when_asked(folder):
    with stop_requests() as request:
        (folder / "begun").touch()
        wait_until(lambda: request.number)
        (folder / "saved").touch()
        request.check()


def fail_meanwhile(folder):
    wait_until((folder / "begun").exists)
    raise ValueError("no more")


def test_results_come_with_their_names():
    pids = dict(in_processes(dict.fromkeys(("a", "b", "c"), os.getpid), 2))
    assert set(pids) == {"a", "b", "c"}
    assert os.getpid() not in pids.values()
    assert dict(in_processes({}, 2)) == {}


def test_a_failure_stops_the_others_and_lets_them_save(tmp_path):
    tasks = {"patient": partial(save_when_asked, tmp_path), "failing": partial(fail_meanwhile, tmp_path)}
    with held_by_another(tmp_path / "elsewhere") as bystander:
        with pytest.raises(ValueError, match="no more"):
            list(in_processes(tasks, 2))
        assert (tmp_path / "saved").exists()
        assert bystander.poll() is None  # a child of the caller's is none of ours
