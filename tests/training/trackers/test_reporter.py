"""What a run reports: a row per step, once, whenever the run is stopped, with the epoch's metrics in its last row."""

import contextlib
import json

import pytest

from lookalike.training.errors import DivergenceError, Interrupted
from lookalike.training.results import EpochMetrics
from lookalike.training.run import train
from lookalike.training.trackers import reporter
from tests.toys import toy_data, toy_model
from tests.training.runs import Killed, brief, dying_in, stopped, stopping_in, trained, weights
from tests.training.trackers.fakes import Failing, Memory


@pytest.fixture
def remember(monkeypatch):
    """Return a function that puts a tracker in the place of TensorBoard's."""

    def put(tracker):
        monkeypatch.setattr(reporter, "make_tracker", lambda _: tracker)
        return tracker

    return put


def reported(out, model=None, settings=None, **options):
    return train(
        toy_data(),
        settings or brief(),
        out=out,
        model=model or toy_model(),
        resume=True,
        progress=False,
        report_to="tensorboard",
        **options,
    )


def test_every_step_and_every_metric_of_an_epoch(tmp_path, remember):
    tracker = remember(Memory())
    reported(tmp_path / "run", settings=brief(mask_above=0.9))
    assert tracker.steps == list(range(9))
    assert tracker.closed == 1
    epochs = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert tracker.column("epoch") == {0: 0, 4: 1, 8: 2}
    assert tracker.column("test/recall@1") == {epoch["step"]: epoch["recall@1"] for epoch in epochs}
    for name, shown in {
        "loss": "epoch/loss",
        "hardest_negative": "epoch/hardest_negative",
        "masked": "train/masked",
        "temperature": "train/temperature",
        "mining_seconds": "mining/seconds",
        "mining_share": "mining/share",
        "kept_bytes": "mining/kept_bytes",
        "bits": "mining/bits",
        "readiness": "mining/readiness",
    }.items():
        assert tracker.column(shown) == {epoch["step"]: epoch[name] for epoch in epochs if name in epoch}
    losses = tracker.column("train/loss")
    assert list(losses) == list(tracker.column("mining/hardest_negative")) == list(range(1, 9))
    assert sum(losses[step] for step in range(1, 5)) / 4 == pytest.approx(epochs[1]["loss"])
    assert max(tracker.column("train/learning_rate").values()) <= brief().learning_rate
    (run,) = tracker.runs
    assert run.name == "run"
    assert run.config == json.loads((tmp_path / "run" / "run.json").read_text())


def test_measures_by_bits_have_a_curve_each():
    epoch = EpochMetrics(epoch=1, step=4, overlap={"64": 0.25}, positional_distance={"64": 9.5}, warm_start="used")
    values = {"epoch": 1, "mining/warm_start": 1.0, "overlap/64": 0.25, "positional_distance/64": 9.5}
    assert reporter.epoch_values(epoch) == values


def test_the_best_epoch_is_reported_at_the_end(tmp_path, remember):
    tracker = remember(Memory())
    result = reported(tmp_path / "run", settings=brief(validation_share=0.2))
    assert "validation/mrr@10" in tracker.rows[0].values
    assert tracker.rows[-1].values["best/epoch"] == result.best_epoch
    assert tracker.rows[-1].values["best/recall@1"] == result.metrics["recall@1"]


@pytest.mark.parametrize("end", [stopping_in, lambda step: dying_in("training", step)])
def test_stopped_or_dead_in_any_step_it_continues_the_same_curves(tmp_path, remember, end):
    whole = remember(Memory())
    reported(tmp_path / "whole")
    parts = remember(Memory())
    for step in (2, 3, 4, 1, 2):
        with contextlib.suppress(Interrupted, Killed):
            reported(tmp_path / "parts", end(step))
    reported(tmp_path / "parts", toy_model(seed=9))
    assert parts.steps == whole.steps
    assert parts.column("train/loss") == whole.column("train/loss")
    assert parts.column("test/recall@1") == whole.column("test/recall@1")
    assert len({run.identity for run in parts.runs}) == 1


@pytest.mark.parametrize("passes", [2, 3, 4, 5])
def test_dead_in_an_evaluation_it_continues_the_same_curves(tmp_path, remember, passes):
    tracker = remember(Memory())
    with pytest.raises(Killed):
        reported(tmp_path / "run", dying_in("evaluation", passes))
    reported(tmp_path / "run", toy_model(seed=9))
    assert tracker.steps == list(range(9))
    assert tracker.column("epoch") == {0: 0, 4: 1, 8: 2}


def test_a_tracker_that_is_added_later_receives_what_the_checkpoint_knows(tmp_path, remember):
    tracker = remember(Memory())
    stopped(tmp_path / "run", 6)
    reported(tmp_path / "run", toy_model(seed=9))
    assert tracker.steps == [0, 4, 5, 6, 7, 8]


def test_a_run_that_begins_again_is_another_run(tmp_path, remember):
    tracker = remember(Memory())
    reported(tmp_path / "run")
    trained(tmp_path / "run", force=True, report_to="tensorboard")
    assert len({run.identity for run in tracker.runs}) == 2


def test_a_failing_tracker_changes_nothing(tmp_path, remember, caplog):
    trained(tmp_path / "without")
    tracker = remember(Failing(3))
    reported(tmp_path / "run")
    assert tracker.steps == [0, 1, 2]
    assert [message for message in caplog.messages if "logs no more" in message] == [
        "tensorboard logs no more (no space left on device); the run goes on without it."
    ]
    assert weights(tmp_path / "run") == weights(tmp_path / "without")


def test_a_tracker_that_cannot_start_stops_the_run_before_its_first_step(tmp_path, remember, monkeypatch):
    tracker = remember(Memory())
    monkeypatch.setattr(tracker, "start", lambda _: 1 / 0)
    with pytest.raises(ValueError, match=r"tensorboard cannot start \(division by zero\): .* report_to="):
        reported(tmp_path / "run")


def test_a_loss_that_is_not_finite_is_left_out(tmp_path, remember):
    tracker = remember(Memory())
    with pytest.raises(DivergenceError):
        reported(tmp_path / "run", settings=brief(learning_rate=1e30, clip=0))
    assert all(value == value and abs(value) != float("inf") for row in tracker.rows for value in row.values.values())
