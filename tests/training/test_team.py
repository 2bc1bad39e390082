"""The processes of a launcher decide together, fail together, and never wait for one that is gone."""

import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from lookalike.training.errors import Interrupted, LostRankError
from lookalike.training.team import Team, heartbeat
from lookalike.utils.errors import RankFailedError
from tests.processes import Child, wait_until
from tests.ranks import LOOPBACK, on_ranks

SOON = 60  # seconds: far below the limits that must not be needed, far above what a busy machine takes
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture
def alone(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    return Team.join("cpu")


@contextlib.contextmanager
def started(world_size, task, *arguments, port=None, attempt=None, **patches):
    """Ranks as a launcher starts them: processes that have never met, with a port to meet at.

    A launcher that restarts them, and hosts the store, counts its attempts.
    """
    elastic = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(attempt)}
    port = free_port() if port is None else port
    with contextlib.ExitStack() as stack:
        children = []
        for rank in range(world_size):
            names = dict(zip(NAMES, map(str, (rank, world_size, rank, "127.0.0.1", port)), strict=True))
            env = dict(os.environ) | names | {"GLOO_SOCKET_IFNAME": LOOPBACK} | (elastic if attempt is not None else {})
            children.append(stack.enter_context(Child(patched, patches, task, *arguments, env=env)))
        yield children


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def patched(patches, task, *arguments):
    """Do a task with other limits than the usual ones."""
    for name, value in patches.items():
        setattr(heartbeat, name, value)
    torch.set_num_threads(1)
    task(*arguments)


@contextlib.contextmanager
def run():
    """A run of a team, which prints what it ended with."""
    team = Team.join("cpu")
    try:
        with team.guarded():
            team.together(nothing)
            yield team
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        raise
    print("done", flush=True)


def ends(children):
    """How each rank ended, in a line of its standard output, after it ended by itself."""
    return [child.communicate(SOON)[0].splitlines()[-1:] for child in children]


def wait_for_all(children):
    for child in children:
        wait_until(lambda child=child: child.printed, child)


# What ranks do


def wait_in_a_collective(absent):
    """Wait in a collective for a rank that will never take part."""
    with run() as team:
        print("waiting", flush=True)
        if team.rank == absent:
            threading.Event().wait(SOON)
        dist.all_reduce(torch.zeros(1))


def fail_on(failing):
    with run() as team:
        if team.rank == failing:
            raise ValueError("no more.\nMuch more is said here.")
        dist.all_reduce(torch.zeros(1))


def fail_but_stay(failing):
    """Fail outside of a vote while the process, and so its connections, live on."""
    with contextlib.suppress(ValueError):
        fail_on(failing)
    threading.Event().wait(SOON)


def fail_in_a_run():
    """Fail as a collective does, ask what that means, as a run does before it saves, and pass the error on."""
    with run() as team:
        if team.rank == 1:
            error = RuntimeError("shapes differ")
            assert team.explained(error) is None
            time.sleep(2 * heartbeat.BEAT)  # a save takes that long
            raise error
        dist.all_reduce(torch.zeros(1))


def be_busy(seconds):
    """Work on one rank for longer than a rank may be silent, without the interpreter's lock."""
    with run() as team:
        until = time.monotonic() + seconds
        while team.is_first and time.monotonic() < until:
            torch.ones(400, 400) @ torch.ones(400, 400)
        team.together(nothing)


def run_twice():
    with contextlib.suppress(Interrupted), run() as team:
        team.together(asking(signal.SIGINT))
    with run() as again, again.guarded():
        assert again is team
        again.together(nothing)


def begin():
    with run() as team:
        print(team.has_begun("runs/a"), team.has_begun("runs/b"), flush=True)
        team.together(nothing)
        team.note_begun("runs/a")
        assert not team.has_begun("runs/a")  # it may begin again in these processes, as force=True asks for
        if team.is_first and not Path("restarted").exists():
            Path("restarted").touch()
            os.kill(os.getpid(), signal.SIGKILL)


def fail_together():
    def fail():
        if team.rank == 1:
            raise OSError("no room")

    with run() as team:
        team.together(fail)


def nothing():
    """A job that always succeeds."""


def asking(number):
    """A job that was asked to stop by a signal, if there was one."""

    def job():
        if number is not None:
            raise Interrupted(number)

    return job


def outcome(call, *arguments):
    try:
        return call(*arguments)
    except Exception as error:  # noqa: BLE001 - which one, the test says
        return f"{type(error).__name__}: {error}"


def failing(team, ranks):
    def job():
        if team.rank in ranks:
            raise ValueError(f"no {team.rank}\nand so on")
        return team.rank

    return outcome(team.together, job)


def votes(rank):
    team = Team.join("cpu")
    with team.guarded():
        return {
            "place": (team.rank, team.world_size, team.local_rank, team.is_first, team is Team.join("cpu")),
            "fine": outcome(team.together, lambda: rank * 10),
            "one": failing(team, [1]),
            "all": failing(team, [0, 1, 2]),
            "stop": outcome(team.together, asking(signal.SIGTERM if rank == 2 else None)),
            "both": outcome(team.together, failing_job(fails=rank == 0) if rank != 1 else asking(signal.SIGINT)),
            "alike": outcome(team.agree, {"seed": 0, "bits": [1, 2]}, "start anew"),
            "different": outcome(team.agree, {"seed": int(rank > 0), "bits": [1, rank], "epochs": 3}, "start anew"),
            "begun": (team.note_begun("runs/a"), team.has_begun("runs/a")),
        }


def failing_job(*, fails):
    return (lambda: {}[0]) if fails else (lambda: None)


def states(rank):
    team = Team.join("cpu")
    made = []

    def make():
        made.append(rank)
        return {"rows": torch.arange(6).view(2, 3), "names": ["a", None, 0.5], "half": torch.ones(2).bfloat16()}

    def fail():
        raise ValueError("no state")

    with pytest.MonkeyPatch.context() as patch, team.guarded():
        patch.setattr("lookalike.training.team.PIECE", 100)
        state = team.from_first(make)
        failed = outcome(team.from_first, fail)
        foreign = outcome(team.from_first, lambda: {"file": os.stat_result(range(10))})
    return (
        made,
        {name: value.tolist() if torch.is_tensor(value) else value for name, value in state.items()},
        (
            failed,
            foreign,
        ),
    )


@pytest.fixture(scope="module")
def voted():
    return on_ranks(3, votes)


def test_all_fine(voted):
    assert [each["place"] for each in voted] == [(r, 3, r, r == 0, True) for r in range(3)]
    assert [each["fine"] for each in voted] == [0, 10, 20]


def test_a_rank_that_fails_raises_its_own_error_and_the_others_name_it(voted):
    told = "RankFailedError: rank 1 failed: ValueError: no 1"
    assert [each["one"] for each in voted] == [told, "ValueError: no 1\nand so on", told]
    assert [each["all"] for each in voted] == [f"ValueError: no {r}\nand so on" for r in range(3)]


def test_a_signal_stops_all_ranks_unless_one_has_failed(voted):
    assert [each["stop"] for each in voted] == ["Interrupted: stopped by SIGTERM"] * 3
    told = "RankFailedError: rank 0 failed: KeyError: 0"
    assert [each["both"] for each in voted] == ["KeyError: 0", told, told]


def test_ranks_that_differ_say_so_alike(voted):
    assert [each["alike"] for each in voted] == [None] * 3
    told = (
        "ValueError: the ranks differ: seed is 0 on rank 0, 1 on ranks 1, 2; "
        "bits is [1, 0] on rank 0, [1, 1] on rank 1, [1, 2] on rank 2: start anew."
    )
    assert [each["different"] for each in voted] == [told] * 3


def test_nothing_has_begun_without_a_launcher_that_restarts(voted):
    assert [each["begun"] for each in voted] == [(None, False)] * 3


def test_the_state_of_the_first():
    (made, state, (failed, foreign)), (made_by_second, same, told) = on_ranks(2, states)
    assert (made, made_by_second) == ([0], [])
    assert state == same == {"rows": [[0, 1, 2], [3, 4, 5]], "names": ["a", None, 0.5], "half": [1.0, 1.0]}
    assert (failed, told[0]) == ("ValueError: no state", "RankFailedError: rank 0 failed: ValueError: no state")
    assert foreign.startswith("RankFailedError: rank 1 failed: UnpicklingError")
    assert told[1].startswith("UnpicklingError")


def test_alone_there_are_no_threads(alone):
    before = threading.enumerate()
    with alone.guarded():
        assert (alone.rank, alone.world_size, alone.local_rank, alone.is_first) == (0, 1, 0, True)
        assert alone.together(lambda: 3) == 3
        assert alone.from_first(lambda: [3]) == [3]
        alone.together(nothing)
        alone.agree({"seed": 0}, "start anew")
        alone.note_begun("run")
        assert not alone.has_begun("run")
        with pytest.raises(Interrupted, match="SIGINT"):
            alone.together(asking(signal.SIGINT))
        assert threading.enumerate() == before
    assert not dist.is_initialized()
    assert Team.join("cpu") is alone


@pytest.mark.usefixtures("alone")
def test_variables_that_are_missing_or_impossible_are_named(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match=r"has RANK, WORLD_SIZE but not LOCAL_RANK, MASTER_ADDR, MASTER_PORT: start"):
        Team.join("cpu")
    for name, value in (("LOCAL_RANK", "1"), ("MASTER_ADDR", "here"), ("MASTER_PORT", "none")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"make no sense together: RANK=1, .* MASTER_PORT=none\."):
        Team.join("cpu")


@pytest.mark.parametrize(("world_size", "killed"), [(2, 1), (3, 1), (3, 0)], ids=str)
def test_a_killed_rank_is_named_by_those_who_wait_for_it(world_size, killed):
    with started(world_size, wait_in_a_collective, killed) as children:
        wait_for_all(children)
        children[killed].kill()
        left = [child for rank, child in enumerate(children) if rank != killed]
        for [end] in ends(left):
            assert end.startswith(f"{LostRankError.__name__}: rank {killed} was lost (")
            assert end.endswith("resume=True continues the run from its last checkpoint.")


@pytest.mark.parametrize("stopped", [0, 1], ids=str)
def test_a_silent_rank_ends_those_who_are_blocked(stopped):
    with started(3, wait_in_a_collective, stopped, SILENCE=3.0, GRACE=1.0) as children:
        wait_for_all(children)
        children[stopped].send_signal(signal.SIGSTOP)
        for rank in {0, 1, 2} - {stopped}:
            assert children[rank].wait(SOON) == 1
            assert children[rank].printed == "waiting\n"
            assert f"rank {rank} ends: rank {stopped} " in children[rank].errors
            assert "3 s" in children[rank].errors


def test_an_error_outside_a_vote_ends_the_others_with_its_text():
    with started(3, fail_on, 1) as children:
        told = [f"{RankFailedError.__name__}: rank 1 failed: ValueError: no more"]
        first, second, third = ends(children)
        assert first == third == told
        assert second == ["Much more is said here."]


def test_an_error_ends_those_who_are_blocked_while_its_process_lives_on():
    with started(2, fail_but_stay, 1, GRACE=1.0) as children:
        assert children[0].wait(SOON) == 1
        assert "rank 0 ends: rank 1 failed: ValueError: no more.\n" in children[0].errors


def test_a_rank_does_not_take_the_error_that_it_has_posted_for_that_of_another():
    with started(2, fail_in_a_run) as children:
        assert ends(children) == [
            ["RankFailedError: rank 1 failed: RuntimeError: shapes differ"],
            ["RuntimeError: shapes differ"],
        ]


def test_a_busy_rank_is_not_lost():
    with started(2, be_busy, 4.0, SILENCE=2.0, GRACE=0.5) as children:
        assert ends(children) == [["done"], ["done"]]
        assert [child.returncode for child in children] == [0, 0]


def test_an_error_of_all_ranks_passes_at_once_and_quietly():
    with started(2, fail_together) as children:
        assert ends(children) == [["RankFailedError: rank 1 failed: OSError: no room"], ["OSError: no room"]]


def test_restarted_processes_know_that_they_have_begun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    launcher = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with started(2, begin, port=launcher.port, attempt=0) as children:
        [[lost]] = ends(children[1:])
        assert lost.startswith("LostRankError: rank 0 was lost (it stopped responding)")
        assert children[1].stdout.startswith("False False\n")
    with started(2, begin, port=launcher.port, attempt=1) as children:
        assert ends(children) == [["done"], ["done"]]
        assert [child.stdout for child in children] == ["True False\ndone\n"] * 2


def test_a_second_run_in_the_same_processes_and_a_quiet_end():
    with started(2, run_twice) as children:
        assert ends(children) == [["done"], ["done"]]
        assert [child.stderr for child in children] == ["", ""]
