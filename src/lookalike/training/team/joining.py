"""Join the other processes of a launcher: environment variables -> a store, a process group, a group for votes."""

from __future__ import annotations

import atexit
import os
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist

from lookalike.training.team.heartbeat import FIRST_BEAT, Heartbeat, Meeting, Store, below, connected

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_LIMIT = timedelta(days=7)  # for a collective: an evaluation may take hours, and the heartbeat notices lost ranks
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
QUIET_END = 5.0  # seconds that destroying a group at the end may take; it may wait for lost ranks


@dataclass
class Membership:
    """What a process has in common with the others."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    votes: Any = None
    """A group on the CPU for votes and plain values."""
    group: Any = None
    """The default group at the time of joining."""
    meeting: Meeting | None = None
    store: Store | None = None
    """Kept, because the store ends with the object that hosts it."""
    launch: Store | None = None
    """What outlives the processes if the launcher restarts them."""
    attempt: str = "0"
    """How often it has restarted them."""
    is_broken: bool = False
    """Whether ranks were lost or failed on their own, so that the group cannot be destroyed in peace."""

    @property
    def is_current(self) -> bool:
        """Whether this is how things are: the user may have initialised or destroyed a process group since."""
        if not (dist.is_available() and dist.is_initialized()):
            return self.world_size == 1 and os.environ.get("WORLD_SIZE", "1") == "1"
        return self.group is dist.group.WORLD

    def heartbeat(self, name: str) -> Heartbeat:
        """Make the heartbeat of a stretch of common work, which has the same name on all ranks."""
        meeting = cast("Meeting", self.meeting)  # which only a membership of one does not have
        return Heartbeat(replace(meeting, prefix=f"{meeting.prefix}/{name}"), self.rank, self.world_size)


def join(device_type: str) -> Membership:
    """Join the other processes; return a membership of one if there are none.

    Raises:
        ValueError: Some of the environment variables are missing or impossible.
    """
    if dist.is_available() and dist.is_initialized():
        return _join_group() if dist.get_world_size() > 1 else Membership(group=dist.group.WORLD)
    if os.environ.get("WORLD_SIZE", "1") == "1" and os.environ.get("RANK", "0") == "0":
        return Membership()
    rank, world_size, local_rank, host, port = _variables()
    has_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    launch = f"lookalike/{os.environ.get('TORCHELASTIC_RUN_ID', '')}"
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    meeting = Meeting(host, port, f"{launch}/attempt_{attempt}", hosted_by_first=not has_agent)
    try:
        store = connected(host, port, FIRST_BEAT, hosting=rank == 0 and not has_agent)
    except RuntimeError as error:  # as the errors of the store are
        raise ConnectionError(
            f"rank {rank} cannot reach the store of the other ranks at {host}:{port}: check MASTER_ADDR and "
            "MASTER_PORT, and that rank 0 was started."
        ) from error
    member = Membership(rank, world_size, local_rank, meeting=meeting, store=store)
    member.launch, member.attempt = below(launch, store) if has_agent else None, attempt
    with _alive(member):
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo",
            store=below(f"{meeting.prefix}/group", store),
            rank=rank,
            world_size=world_size,
            timeout=NO_LIMIT,
        )
        member.group = dist.group.WORLD
        member.votes = dist.new_group(backend="gloo", timeout=NO_LIMIT)
    atexit.register(_end, member)
    return member


def _join_group() -> Membership:
    """Join the group that the user has initialised; its store is not public, so rank 0 hosts another one."""
    rank = dist.get_rank()
    member = Membership(rank, dist.get_world_size(), _local_rank(rank), group=dist.group.WORLD)
    member.votes = dist.new_group(backend="gloo", timeout=NO_LIMIT)
    address: list[Any] = [None]
    if rank == 0:
        member.store = store = connected("127.0.0.1", 0, FIRST_BEAT, hosting=True)
        address = [(socket.gethostname(), os.environ.get("MASTER_ADDR", socket.getfqdn()), store.port)]
    dist.broadcast_object_list(address, src=0, group=member.votes)
    machine, name, port = address[0]
    host = "127.0.0.1" if machine == socket.gethostname() else name
    member.meeting = Meeting(host, port, "lookalike", hosted_by_first=True)
    return member


@contextmanager
def _alive(member: Membership) -> Iterator[None]:
    """Beat while the processes connect to each other."""
    heartbeat = member.heartbeat("join")
    heartbeat.start()
    try:
        yield
    finally:
        heartbeat.stop()


def _variables() -> tuple[int, int, int, str, int]:
    """Read what launchers set."""
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        raise ValueError(
            f"the environment has {', '.join(each for each in VARIABLES if each not in missing)} but not "
            f"{', '.join(missing)}: start the processes with torchrun or accelerate launch, which set all of them, or "
            "unset WORLD_SIZE and RANK to train in one process."
        )
    try:
        rank, world_size, local_rank, port = (int(os.environ[name]) for name in VARIABLES if name != "MASTER_ADDR")
        is_possible = 0 <= rank < world_size and local_rank >= 0 and 0 < port < 2**16
    except ValueError:
        is_possible = False
    if not is_possible:
        shown = ", ".join(f"{name}={os.environ[name]}" for name in VARIABLES)
        raise ValueError(f"the environment variables of the launcher make no sense together: {shown}.")
    return rank, world_size, local_rank, os.environ["MASTER_ADDR"], port


def _local_rank(rank: int) -> int:
    """Return which device of its machine a rank uses, where the launcher may not say it."""
    return int(os.environ.get("LOCAL_RANK") or rank % max(1, torch.cuda.device_count()))


def _end(member: Membership) -> None:
    """Destroy the group when the interpreter ends; if ranks were lost, that might wait for them for ever."""
    if dist.is_initialized() and member.group is dist.group.WORLD:
        thread = threading.Thread(target=dist.destroy_process_group, daemon=True)
        thread.start()
        thread.join(QUIET_END)
        if thread.is_alive() and member.is_broken:
            os._exit(1)
