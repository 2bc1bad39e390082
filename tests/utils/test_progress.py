"""What long work says where no terminal is: a line a minute, and nothing otherwise."""

import io
import sys
import threading

import pytest

from lookalike.utils import progress
from lookalike.utils.progress import steady_bar


class Clock:
    """A clock that is set by hand."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(progress, "LOOKS", 1e6)  # so that nothing but `advance` looks at it
    return Clock()


def test_a_line_a_minute(clock, capsys):
    with steady_bar("searching 600 pairs", 600, 6, shown=True, clock=clock) as bar:
        for _ in range(6):  # a cell of 100 pairs in 45 seconds
            for _ in range(5):
                clock.now += 9
                bar.advance(20)
            bar.count()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "searching 600 pairs: 23%, 1 of 6 cells, about 3 min left",
        "searching 600 pairs: 47%, 2 of 6 cells, about 2 min left",
        "searching 600 pairs: 70%, 4 of 6 cells, about 1 min left",
        "searching 600 pairs: 93%, 5 of 6 cells, about 1 min left",
    ]


def test_work_of_days_says_hours(clock, capsys):
    with steady_bar("encoding", 1000, 10, shown=True, clock=clock) as bar:
        bar.advance(0)
        clock.now += 3600
        bar.advance(10)
        bar.describe("encoding texts")
        clock.now += 60
        bar.advance(0)
    assert capsys.readouterr().err.splitlines() == [
        "encoding: 1%, 0 of 10 cells, about 99 h left",
        "encoding texts: 1%, 0 of 10 cells, about 101 h left",
    ]


def test_what_is_done_before_says_nothing_and_no_other_rank_speaks(clock, capsys, monkeypatch):
    with steady_bar("hashing", 10, 1, shown=True, clock=clock) as bar:
        clock.now += 59
        bar.advance(10)
        bar.count()
    monkeypatch.setenv("RANK", "1")
    for shown in (True, False):
        with steady_bar("hashing", 10, 1, shown=shown, clock=clock) as bar:
            clock.now += 1000
            bar.advance(10)
            bar.count()
    monkeypatch.setenv("RANK", "0")
    with steady_bar("hashing", 10, 1, shown=False, clock=clock) as bar:
        clock.now += 1000
        bar.advance(10)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_bar_with_cells(monkeypatch):
    said = []

    class Screen:
        def isatty(self):
            return True

        def write(self, text):
            said.append(text)
            return len(text)

        def flush(self):
            pass

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Screen())
    with steady_bar("hashing", 4, 4, shown=True) as bar:
        for _ in range(4):
            bar.advance(1)
            bar.count()
    assert "4 of 4" in "".join(said)


def test_work_that_does_not_advance_speaks_as_well(monkeypatch):
    spoken = threading.Event()

    class Log(io.StringIO):
        def flush(self):
            spoken.set()

    clock = Clock()
    monkeypatch.setattr(progress, "LOOKS", 0.001)
    monkeypatch.setattr(sys, "stderr", Log())
    with steady_bar("encoding 10 rows", 10, 2, shown=True, clock=clock):
        clock.now += 61
        assert spoken.wait(60)
        assert sys.stderr.getvalue().startswith("encoding 10 rows: 0%, 0 of 2 cells, no estimate yet\n")
