"""A pool of processes that talk to each other over gloo: started once, used by every test that needs ranks."""

import contextlib
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.processes import PATIENCE, Child, wait_until

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
PATIENCE_OF_GLOO = timedelta(seconds=PATIENCE)
DEADLINE = 2 * PATIENCE  # later than gloo, which says what it waited for
GRACE = 5  # seconds for the other ranks once one has failed
SHOWN = 4000  # characters of what a rank wrote, when it fails


def on_ranks(world_size, task, *arguments, deadline=DEADLINE):
    """Return the results of `task(rank, *arguments)` on ranks 0, 1, ..., in which torch.distributed is initialised.

    The task is a function of a module. When it raises on one rank, or a rank dies, or has no result after `deadline`
    seconds, the test fails with that rank's traceback, and the ranks are replaced by new ones.
    """
    return POOL.run(world_size, task, arguments, deadline)


class Pool:
    """Processes that wait for tasks; there are as many as some task has needed."""

    def __init__(self):
        self.ranks = []

    def run(self, world_size, task, arguments, deadline):
        while len(self.ranks) < world_size:
            self.ranks.append(Rank())
        ranks = self.ranks[:world_size]
        with tempfile.TemporaryDirectory() as folder:
            try:
                for number, rank in enumerate(ranks):
                    rank.send((number, world_size, f"file://{folder}/ranks", task, arguments))
                return _collect(ranks, time.monotonic() + deadline)
            except BaseException:
                self.close(ranks)
                raise

    def close(self, ranks=None):
        for rank in list(self.ranks if ranks is None else ranks):
            rank.close()
            self.ranks.remove(rank)


POOL = Pool()


def _collect(ranks, until):
    """The results of all ranks. Once one has failed, the others get a moment to say what they know of it."""
    results, failures = {}, {}
    while waiting := {rank.connection: number for number, rank in enumerate(ranks) if number not in results | failures}:
        ready = multiprocessing.connection.wait(list(waiting), max(0, until - time.monotonic()))
        if not ready:
            failures |= {number: f"has no result in time:\n{ranks[number].stack()}" for number in waiting.values()}
        for connection in ready:
            number = waiting[connection]
            try:
                is_done, answer = pickle.loads(connection.recv_bytes())
            except (EOFError, ConnectionError):
                failures[number] = ranks[number].end()
            else:
                (results if is_done else failures)[number] = answer
        if failures:
            until = min(until, time.monotonic() + GRACE)
    assert not failures, "\n".join(f"rank {number} of {len(ranks)} {how}" for number, how in failures.items())
    return [results[number] for number in range(len(ranks))]


class Rank:
    """One process of the pool, as seen from this one."""

    def __init__(self):
        self.connection, theirs = multiprocessing.Pipe()
        with theirs:
            self._child = Child(_serve, theirs)
        self.pid = self._child.pid

    def send(self, message):
        with contextlib.suppress(ConnectionError):  # it is dead, as `_collect` notices and says
            self.connection.send_bytes(pickle.dumps(message))

    def stack(self):
        """What it does at this moment."""
        before = len(self._child.errors)
        self._child.send_signal(signal.SIGUSR1)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: len(self._child.errors) > before, self._child, patience=5)
        return self._child.errors[-SHOWN:]

    def end(self):
        """How it ended, and the last that it wrote."""
        _, errors = self._child.communicate()
        return f"ended with status {self._child.returncode}:\n{errors[-SHOWN:]}"

    def close(self):
        self.connection.close()  # idle, it ends by itself
        self._child.kill()
        self._child.communicate()


def _serve(connection):
    """Run one task after the other until nobody asks for more."""
    faulthandler.register(signal.SIGUSR1)
    torch.set_num_threads(1)
    environment = dict(os.environ)
    with connection, contextlib.suppress(EOFError):
        while True:
            number, world_size, meeting_point, task, arguments = pickle.loads(connection.recv_bytes())
            os.environ.update(RANK=str(number), WORLD_SIZE=str(world_size), GLOO_SOCKET_IFNAME=LOOPBACK)
            os.environ.update(LOCAL_RANK=str(number), LOCAL_WORLD_SIZE=str(world_size))
            _forget_accelerate()
            try:
                dist.init_process_group("gloo", meeting_point, PATIENCE_OF_GLOO, rank=number, world_size=world_size)
                result = task(number, *arguments)
                dist.barrier()  # whoever leaves first would end the group for those who still talk
                answer = pickle.dumps((True, result))
            except BaseException:  # noqa: BLE001 - whatever it is, the test is told
                answer = pickle.dumps((False, f"failed:\n{traceback.format_exc()}"))
            connection.send_bytes(answer)
            dist.destroy_process_group()
            os.environ.clear()
            os.environ.update(environment)


def _forget_accelerate():
    """Let accelerate look at its ranks anew; it does so once per process."""
    if "accelerate.state" in sys.modules:
        state = sys.modules["accelerate.state"]
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
