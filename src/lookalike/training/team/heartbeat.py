"""Signs of life between processes, so that none of them waits for ever for one that is gone.

A thread beats, reads whether a failure was posted, and watches the beats of the next rank, so that the store gets as
few requests from each of a thousand ranks as from each of two. A second thread, which never touches the store, notices
that the store itself is silent, and ends the process if a failure is known and the main thread, which may be blocked in
a collective where no exception reaches it, does not end by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from dataclasses import asdict, dataclass
from datetime import timedelta
from time import monotonic, sleep
from typing import Any, Protocol

import torch.distributed as dist

BEAT = 0.5  # seconds between two beats
SILENCE = 30.0  # seconds without a beat after which a rank, or the store, is lost
FIRST_BEAT = 600.0  # seconds that processes may begin apart
GRACE = 10.0  # seconds that the main thread gets to begin to end by itself
ENDING = 600.0  # seconds that it may then take, to save what there is
LINGER = 5.0  # seconds that the store's host waits for the others to have read the last news
RECONNECTING = 3.0  # seconds of refused connections after which the store's host is gone
ROUNDS = 6  # of beats in which a rank that lives beats at least
AT_LEAST = 2  # times; one beat may still have been on its way when a rank was lost
LEFT = 10**12  # more beats than anybody lives for: a rank has left on purpose


class Store(Protocol):
    """What is needed of a store of `torch.distributed`; no call waits for another rank if keys are checked before."""

    def add(self, key: str, number: int, /) -> int:
        """Add to a number, 0 if there is none, and return it."""

    def check(self, keys: list[str], /) -> bool:
        """Return whether there are such keys."""

    def get(self, key: str, /) -> bytes:
        """Return a value."""

    def set(self, key: str, value: str, /) -> None:
        """Set a value."""

    def compare_set(self, key: str, expected: str, value: str, /) -> bytes:
        """Set a value if it is the expected one, or if none is expected and there is none."""


def connected(host: str, port: int, patience: float, *, hosting: bool = False) -> Any:
    """Connect to a store, or host it; a connection must not be shared with a thread that may block in it."""
    limit = timedelta(seconds=patience)
    return dist.TCPStore(host, port, is_master=hosting, timeout=limit, wait_for_workers=False)  # type: ignore[attr-defined]


def below(prefix: str, store: Any) -> Any:
    """Return the part of a store whose keys begin with a prefix."""
    return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Failure:
    """Why a run cannot go on."""

    sentence: str
    lost: tuple[int, ...] = ()
    """Ranks that are gone; none if a rank failed and could still say so."""


@dataclass(frozen=True)
class Meeting:
    """Where the ranks meet: a store, and who hosts it."""

    host: str
    port: int
    prefix: str
    hosted_by_first: bool
    """Whether the store lives and dies with rank 0; otherwise the launcher hosts it."""

    def connect(self, patience: float) -> Store:
        """Connect to the part of the store that the prefix names."""
        store: Store = below(self.prefix, connected(self.host, self.port, patience))
        return store

    def is_reachable(self) -> bool:
        """Return whether somebody listens; quietly, while the store's own attempts fill the screen."""
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), timeout=RECONNECTING):
            return True
        return False


class Unchanged:
    """Seconds that a number has not changed; time in which this process was stopped itself does not count."""

    def __init__(self) -> None:
        self.value, self.seconds, self._looked = -1, 0.0, monotonic()

    def look(self, value: int) -> float:
        """Look at the number and return for how long it has been the same."""
        now = monotonic()
        self.seconds = 0.0 if value != self.value else self.seconds + min(now - self._looked, 2 * BEAT)
        self.value, self._looked = value, now
        return self.seconds


class Heartbeat:
    """Beat for a rank, and watch the others.

    Args:
        meeting: Where they meet; nobody else uses its prefix.
        rank: This rank.
        world_size: How many there are.
    """

    def __init__(self, meeting: Meeting, rank: int, world_size: int) -> None:
        self.meeting, self.rank, self.world_size = meeting, rank, world_size
        self.is_ending = False  # set by the main thread, which then gets more time
        self.failure: Failure | None = None
        self._to_post: Failure | None = None
        self._has_read_news = False
        self._survey: list[list[int]] | None = None
        self._rounds = 0
        self._neighbour = Unchanged()
        self._over, self._news = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._live, self._watch)]

    def start(self) -> None:
        """Begin to beat."""
        for thread in self._threads:
            thread.start()

    def post(self, failure: Failure) -> None:
        """Tell all ranks of a failure; the first one that is posted counts."""
        self._to_post = failure
        self._news.set()

    def stop(self) -> None:
        """Say that this rank leaves on purpose, deliver what is to be posted, and end the threads."""
        self.is_ending = True
        self._over.set()
        self._news.set()
        for thread in self._threads:
            thread.join(LINGER + RECONNECTING)  # one that is blocked in the store is left to itself

    def find_failure(self) -> Failure | None:
        """Find out what became of the others: what was posted, who is silent; None if all are alive."""
        self._survey = []
        while self.failure is None and self._threads[0].is_alive():
            looks = list(self._survey)
            if looks and all(b - a >= AT_LEAST for a, b in zip(looks[0], looks[-1], strict=True)):
                return None
            if len(looks) > ROUNDS:
                silent = [r for r, (a, b) in enumerate(zip(looks[0], looks[-1], strict=True)) if b - a < AT_LEAST]
                return Failure(_lost(silent, "stopped responding"), tuple(silent))
            sleep(BEAT / 10)
        return self.failure

    def _live(self) -> None:
        """Beat until the end; the only thread that uses the store."""
        store: Store | None = None
        while not self._over.is_set():
            try:
                if store is None and self.failure is None:
                    store = self.meeting.connect(SILENCE)
                if store is not None:
                    self._beat(store)
                    self._rounds += 1
            except (RuntimeError, OSError):  # as the errors of the store are
                store = None
                if self.failure is None and not self._comes_back():
                    self._note(self._without_store("is gone"))
            self._news.wait(BEAT)
            self._news.clear()
        with contextlib.suppress(RuntimeError, OSError):
            if store is not None:
                self._leave(store)

    def _beat(self, store: Store) -> None:
        store.add(f"beat/{self.rank}", 1)
        self._exchange_news(store)
        if self._survey is not None:
            beats = [store.add(f"beat/{rank}", 0) for rank in range(self.world_size)]
            self._survey.append([LEFT * (1 + len(self._survey)) if beat >= LEFT else beat for beat in beats])
        neighbour = (self.rank + 1) % self.world_size
        beats_of_next = store.add(f"beat/{neighbour}", 0)
        limit = SILENCE if beats_of_next else FIRST_BEAT
        if self._neighbour.look(beats_of_next) > limit and beats_of_next < LEFT and self.failure is None:
            self.post(Failure(f"rank {neighbour} has shown no sign of life for {limit:g} s", (neighbour,)))

    def _exchange_news(self, store: Store) -> None:
        """Post what is to be posted, and read what somebody has posted."""
        if self._to_post is not None:
            store.compare_set("failure", "", json.dumps(asdict(self._to_post)))
            self._to_post = None
        if not self._has_read_news and store.check(["failure"]):
            posted = json.loads(store.get("failure"))
            self._note(Failure(posted["sentence"], tuple(posted["lost"])))
            self._has_read_news = True
            store.add("informed", 1)

    def _leave(self, store: Store) -> None:
        self._exchange_news(store)
        store.add(f"beat/{self.rank}", LEFT)
        if not self._has_read_news:
            store.add("informed", 1)
        if not (self.meeting.hosted_by_first and self.rank == 0):
            return
        others = self.world_size - (len(self.failure.lost) if self.failure else 0)
        until = monotonic() + LINGER
        while store.add("informed", 0) < others and monotonic() < until:
            sleep(BEAT / 10)

    def _comes_back(self) -> bool:
        until = monotonic() + RECONNECTING
        while monotonic() < until and not self._over.is_set():
            if self.meeting.is_reachable():
                return True
            self._over.wait(BEAT / 5)
        return False

    def _without_store(self, what: str) -> Failure:
        if self.meeting.hosted_by_first:
            return Failure(f"rank 0 was lost (the store that it hosts {what})", (0,))
        return Failure(f"the launcher's store at {self.meeting.host}:{self.meeting.port} {what}")

    def _note(self, failure: Failure) -> None:
        self.failure = self.failure or failure

    def _watch(self) -> None:
        """End the process if it has to end and the main thread does not; never blocked by the store."""
        store, failed = Unchanged(), Unchanged()
        while not self._over.wait(BEAT):
            limit = SILENCE if self._rounds else FIRST_BEAT
            if store.look(self._rounds) > limit:
                self._note(self._without_store(f"has not answered for {limit:g} s"))
            since = failed.look(self.failure is not None)
            if self.failure is not None and since > (ENDING if self.is_ending else GRACE):
                _die(f"rank {self.rank} ends: {self.failure.sentence}.")


def _lost(ranks: list[int], how: str) -> str:
    names = ", ".join(map(str, ranks))
    return f"ranks {names} were lost (they {how})" if len(ranks) > 1 else f"rank {names} was lost (it {how})"


def _die(sentence: str) -> None:
    """End the process though its main thread is blocked; what was printed is printed, unless that is blocked too."""
    flush = threading.Thread(target=sys.stdout.flush, daemon=True)
    flush.start()
    flush.join(1)
    os.write(2, f"{sentence}\n".encode())
    os._exit(1)
