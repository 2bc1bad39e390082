"""The first signal asks to stop, the next one stops at once, and the launcher's echo of the first does not."""

import signal

import pytest

from lookalike.training import interruptions
from lookalike.training.errors import Interrupted
from lookalike.training.interruptions import stop_requests


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when the test says so."""
    now = [100.0]
    monkeypatch.setattr(interruptions, "monotonic", lambda: now[0])
    return now


@pytest.fixture(autouse=True)
def _python_handles_signals():
    """Let signals that nobody catches raise errors, which a test survives; in the background, SIGINT is ignored."""

    def stop(number, _):
        raise SystemExit(number)

    before = signal.signal(signal.SIGTERM, stop), signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
        signal.signal(number, handler)


def test_the_first_signal_is_noted_and_the_second_stops_at_once():
    before = signal.getsignal(signal.SIGINT)
    with stop_requests() as request:
        request.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted, match="SIGINT"):
            request.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_echo_is_the_first_signal_again(clock):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_requests(echo=5.0) as request:
        signal.raise_signal(signal.SIGINT)
        clock[0] += 4.9
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert request.number == signal.SIGINT
        clock[0] += 0.2
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
