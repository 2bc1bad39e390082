"""The adapter of trackio, against a small stand-in for the part of its interface that it uses."""

import sys
from contextvars import ContextVar

import pytest

from lookalike.training.trackers import make_tracker
from tests.training.runs import stopped, trained


class Trackio:
    """`trackio.init`, and rows by the name of a run."""

    def __init__(self):
        self.rows, self.given, self.current = {}, [], ContextVar("current run", default=None)

    def init(self, **given):
        assert given["resume"] == "allow"
        assert given["embed"] is False
        self.given.append(given)
        self.current.set(given["name"])
        return Run(self.rows.setdefault(given["name"], []))


class Run:
    def __init__(self, rows):
        self.rows, self._next_step, self.finished = rows, rows[-1][0] + 1 if rows else 0, False

    def log(self, values, step):
        self.rows.append((step, values))

    def finish(self):
        self.finished = True


@pytest.fixture
def trackio(monkeypatch, tmp_path):
    found = Trackio()
    monkeypatch.setitem(sys.modules, "trackio", found)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("TRACKIO_PROJECT", raising=False)
    return found


def test_a_resumed_run_is_found_by_its_name_and_repeats_nothing(tmp_path, trackio):
    stopped(tmp_path / "mine", 6, report_to="trackio")
    trained(tmp_path / "mine", resume=True, report_to="trackio")
    (name,) = trackio.rows
    assert name.startswith("mine-")
    assert [step for step, _ in trackio.rows[name]] == list(range(9))
    assert [given["project"] for given in trackio.given] == ["lookalike", "lookalike"]


def test_two_folders_of_one_name_are_two_runs(tmp_path, trackio):
    for parent in ("a", "b"):
        trained(tmp_path / parent / "mine", report_to="trackio")
    assert len(trackio.rows) == 2


def test_a_run_of_the_script_stays_its_current_one(tmp_path, trackio):
    """trackio finishes the current run when the process ends, and a run that has finished must not be that one."""
    trackio.current.set("of the script")
    trained(tmp_path / "mine", report_to="trackio")
    assert len(trackio.rows) == 1
    assert trackio.current.get() == "of the script"


@pytest.mark.usefixtures("trackio")
def test_where_it_writes(tmp_path):
    assert make_tracker("trackio").folder(tmp_path / "run") == tmp_path / "data"
