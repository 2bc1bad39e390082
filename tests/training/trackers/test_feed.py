"""A tracker that fails or hangs is left alone, with one warning."""

import time

import pytest

from lookalike.training.trackers import feed as feeds
from lookalike.training.trackers.feed import Feed
from lookalike.training.trackers.tracker import Row
from tests.training.trackers.fakes import Failing, Hanging, Memory


def rows(*steps):
    return [Row(step, {"x": float(step)}) for step in steps]


def test_rows_arrive_in_order_and_only_those_that_are_lacking():
    tracker = Memory()
    feed = Feed("memory", tracker, 2)
    for row in rows(0, 1, 2, 3, 4):
        feed.put(row)
    feed.flush()
    assert tracker.rows == rows(2, 3, 4)
    feed.close()
    assert tracker.closed == 1


def test_one_that_fails_is_not_tried_again(caplog):
    tracker = Failing(2)
    feed = Feed("wandb", tracker, 0)
    for row in rows(1, 2, 3, 4):
        feed.put(row)
    feed.flush()
    feed.put(rows(5)[0])
    feed.flush()
    feed.close()
    assert tracker.steps == [1, 2]
    assert caplog.messages == ["wandb logs no more (no space left on device); the run goes on without it."]


def test_nobody_goes_on_before_the_warning_is_out(monkeypatch):
    said = []

    def warn(*_):
        time.sleep(0.2)  # a process that ends meanwhile would take the warning with it
        said.append("warned")

    monkeypatch.setattr(feeds.logger, "warning", warn)
    feed = Feed("wandb", Failing(0), 0)
    feed.put(rows(1)[0])
    feed.flush()
    feed.close()
    assert said == ["warned"]


@pytest.mark.parametrize("when", ["flush", "close", "put"])
def test_one_that_hangs_is_not_waited_for(caplog, monkeypatch, when):
    for name, value in (("FLUSH_SECONDS", 0.02), ("CLOSE_SECONDS", 0.02), ("MOST_ROWS", 3)):
        monkeypatch.setattr(feeds, name, value)
    tracker = Hanging()
    feed = Feed("trackio", tracker, 0)
    for row in rows(*range(10 if when == "put" else 1)):
        feed.put(row)
    if when != "put":
        getattr(feed, when)()
    feed.close()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("trackio logs no more (")
    tracker.released.set()
    feed._thread.join(10)
    assert not feed._thread.is_alive()
