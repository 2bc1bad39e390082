"""Processes that other tests use: what happens to one is told, and the next test finds a sound pool."""

import os
import signal
import sys
import time

import pytest
import torch
import torch.distributed as dist

from lookalike.utils.locks import FolderInUseError, locked
from tests.processes import LOADED, Child, command_line, held_by_another, program, run_function, wait_until
from tests.ranks import POOL, on_ranks


def test_a_child_prints_and_ends_like_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("COLOUR", "green")
    code = "import os, sys; print(os.getcwd(), sys.argv, os.environ['COLOUR']); sys.exit('no such thing')"
    shown = run_function(program, code, "argument", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (1, "no such thing\n")
    assert shown.stdout == f"{tmp_path} ['-c', 'argument'] green\n"
    assert run_function(program, "1 / 0").stderr.endswith("ZeroDivisionError: division by zero\n")
    assert run_function(command_line, "nonsense").returncode == 2


def test_what_children_need_is_loaded_before_they_start():
    shown = run_function(program, f"import sys; print([name for name in {LOADED!r} if name not in sys.modules])")
    assert shown.stdout == "[]\n"
    code = "import os, torch; print(len(os.listdir('/proc/self/task')), torch.get_num_threads())"
    assert run_function(program, code).stdout == "1 1\n"  # threads would not survive the fork


def test_a_child_that_does_not_end_is_killed():
    with Child(time.sleep, 1000) as child:
        with pytest.raises(AssertionError, match=r"did not end in 0.1 s"):
            child.wait(0.1)
        assert child.returncode == -signal.SIGKILL
    with Child(time.sleep, 1000) as child:
        assert child.poll() is None
    assert child.returncode == -signal.SIGKILL


def test_waiting_ends():
    assert wait_until(lambda: 3) == 3
    with pytest.raises(AssertionError, match=r"did not happen in 0.1 s"):
        wait_until(lambda: False, patience=0.1)
    with (
        Child(sys.exit, 4) as child,
        pytest.raises(AssertionError, match="ended with status 4"),
    ):
        wait_until(lambda: False, child)


def test_a_folder_can_be_held(tmp_path):
    with held_by_another(tmp_path) as holder, pytest.raises(FolderInUseError, match=str(holder.pid)), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def add(rank, summand):
    total = torch.tensor(rank + summand)
    dist.all_reduce(total)
    return os.getpid(), dist.get_world_size(), int(total), os.environ["RANK"]


def fail(rank):
    if rank == 1:
        os.environ["RANK"] = "changed"
        raise ValueError("no such thing")
    dist.barrier()


def die(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def hang(rank):
    if rank == 0:
        time.sleep(1000)


def test_ranks_are_used_again_in_groups_of_any_size():
    two, three, again = (on_ranks(world_size, add, 10) for world_size in (2, 3, 2))
    assert [result[1:] for result in two] == [(2, 21, "0"), (2, 21, "1")]
    assert [result[1:] for result in three] == [(3, 33, "0"), (3, 33, "1"), (3, 33, "2")]
    assert two == again
    assert [result[0] for result in three[:2]] == [result[0] for result in two]
    assert os.getpid() not in [result[0] for result in three]


@pytest.mark.parametrize(
    ("task", "deadline", "message"),
    [
        (fail, 60, r"rank 1 of 2 failed:(?s:.*)ValueError: no such thing"),
        (die, 60, r"rank 1 of 2 ended with status -9"),
        (hang, 1, r"rank 0 of 2 has no result in time:(?s:.*)in hang\n"),
    ],
)
def test_ranks_of_which_one_fails_are_replaced(task, deadline, message):
    before = {result[0] for result in on_ranks(2, add, 0)}
    with pytest.raises(AssertionError, match=message):
        on_ranks(2, task, deadline=deadline)
    after = {result[0] for result in on_ranks(2, add, 0)}
    assert not before & after
    assert len(POOL.ranks) <= 3
