"""The adapter of wandb, against a small stand-in for the part of its interface that it uses."""

import sys
from types import SimpleNamespace

import pytest

from lookalike.training.trackers import make_tracker
from lookalike.training.trackers.tracker import Row, Tracked
from tests.training.runs import trained


class Wandb:
    """`wandb.init`, `wandb.Settings`, and what a server keeps: rows by the id of a run."""

    def __init__(self, *, offline):
        self.offline, self.server, self.given = offline, {}, []

    class Settings:
        model_fields = ("console",)

        def __init__(self, *, console):
            self.console = console

    def init(self, **given):
        self.given.append(given)
        rows = self.server.setdefault(given["id"], [])
        return Run(rows, 0 if self.offline or not rows else rows[-1][0] + 1)


class Run:
    def __init__(self, rows, step):
        self.rows, self.step, self.finished = rows, step, False

    def log(self, values, *, step, commit):
        assert commit
        assert step >= self.step
        self.step = step + 1
        self.rows.append((step, values))

    def finish(self):
        self.finished = True


@pytest.fixture(params=[False, True], ids=["online", "offline"])
def wandb(request, monkeypatch):
    found = Wandb(offline=request.param)
    monkeypatch.setitem(sys.modules, "wandb", found)
    for name in ("WANDB_PROJECT", "WANDB_NAME", "WANDB_RUN_GROUP"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_a_run_is_named_after_its_folder(tmp_path, wandb):
    trained(tmp_path / "mine", report_to="wandb")
    (given,) = wandb.given
    assert (given["project"], given["name"], given["group"]) == ("lookalike", "mine", tmp_path.name)
    assert (given["resume"], given["settings"].console, given["dir"]) == ("allow", "off", str(tmp_path / "mine"))
    assert given["config"]["sampler"] == "lsh"
    (rows,) = wandb.server.values()
    assert [step for step, _ in rows] == list(range(9))


def test_a_killed_run_continues_after_the_last_row(tmp_path, wandb):
    run = Tracked(out=tmp_path, identity="abc", config={}, next_step=1)
    killed = make_tracker("wandb")
    assert killed.start(run) == 0
    for step in (0, 1, 12):
        killed.log(Row(step, {"loss": 1.0}))
    resumed = make_tracker("wandb")
    assert resumed.start(run) == 13
    resumed.log(Row(13, {"loss": 0.5}))
    resumed.flush()
    resumed.close()
    assert [step for step, _ in wandb.server["abc"]] == [0, 1, 12, 13]
    killed.close()


def test_projects_and_names_from_the_environment(tmp_path, wandb, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "birds")
    monkeypatch.setenv("WANDB_NAME", "third")
    tracker = make_tracker("wandb")
    tracker.start(SimpleNamespace(out=tmp_path, identity="abc", config={}, name="x", group="y"))
    tracker.close()
    assert (wandb.given[0]["project"], wandb.given[0]["name"]) == ("birds", "third")
