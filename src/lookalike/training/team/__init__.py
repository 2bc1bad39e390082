"""The processes of a launcher as a team: they decide together, fail together, and never wait for one that is gone.

    team = Team.join("cuda")
    with team.guarded():
        state = team.from_first(read_checkpoint)
        for batch in batches:
            inputs = team.together(lambda: read(batch))
            ...  # collectives: everybody takes part, because nobody has failed before

`torchrun` and `accelerate launch` start such processes. Collectives have no time limit of their own, since a search may
take an hour; `lookalike.training.team.heartbeat` notices that a rank is gone.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from lookalike.training.errors import Interrupted, LostRankError
from lookalike.training.team.heartbeat import Failure, Heartbeat
from lookalike.training.team.joining import Membership, join
from lookalike.utils.errors import RankFailedError
from lookalike.utils.messages import first_line
from lookalike.utils.ranks import FAILED_ON_ALL, differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

T = TypeVar("T")

FINE, STOP, FAILED = range(3)  # what a rank votes; the largest counts
PIECE = 2**29  # bytes that are sent at a time


class Team:
    """The processes that train one model together; alone, if there is one. `Team.join` makes it."""

    _joined: Team | None = None

    def __init__(self, membership: Membership) -> None:
        self.rank, self.world_size, self.local_rank = membership.rank, membership.world_size, membership.local_rank
        self._membership = membership
        self._heartbeat: Heartbeat | None = None
        self._runs = 0
        self._told: BaseException | None = None  # what this rank raised last that all the others know of
        self._posted: BaseException | None = None  # its own error that it has posted, and would find there itself

    @classmethod
    def join(cls, device_type: str) -> Team:
        """Find the other processes by the environment variables that launchers set; a second call finds the same team.

        A process group that is initialised already is used as it is.

        Args:
            device_type: Type of the device to train on, as in `torch.device`.

        Raises:
            ValueError: Some of the environment variables are missing or impossible.
        """
        joined = cls._joined
        if joined is None or not joined._membership.is_current:  # noqa: SLF001 - of this class
            joined = cls._joined = cls(join(device_type))
        return joined

    @classmethod
    def alone(cls) -> Team:
        """Return a team of one, whatever started this process."""
        return cls(Membership())

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes what is written once."""
        return self.rank == 0

    def together(self, job: Callable[[], T]) -> T:
        """Do a job on all ranks, and go on only if it succeeded on all of them; return its result on this rank.

        Args:
            job: What to do. It may fail on any rank, or raise `Interrupted` where it was asked to stop.

        Raises:
            RankFailedError: The job failed on another rank only; a rank on which it failed raises its own error.
            Interrupted: Somebody was asked to stop; raised on all ranks.
        """
        if self.world_size == 1:
            return job()
        error: Exception | None = None
        stop: int | None = None
        try:
            result = job()
        except Interrupted as asked:
            stop = asked.number
        except Exception as failure:  # noqa: BLE001 - the other ranks must hear of any error
            error = failure
        if self._vote(FINE if error is None and stop is None else STOP if error is None else FAILED) == FINE:
            return result
        raise self._verdict(error, stop)

    def from_first(self, make: Callable[[], T]) -> T:
        """Call `make` on rank 0 and return its value on all ranks: tensors and plain values, in dictionaries and lists.

        Raises:
            RankFailedError: It failed on rank 0, which raises its own error.
        """
        if self.world_size == 1:
            return make()
        made: list[T] = []
        content = io.BytesIO()

        def write() -> None:
            if self.is_first:
                made.append(make())
                torch.save(made[0], content)

        self.together(write)
        size = torch.tensor([content.getbuffer().nbytes])
        dist.broadcast(size, src=0, group=self._membership.votes)
        memory = content.getbuffer() if self.is_first else bytearray(int(size))
        for piece in torch.split(torch.frombuffer(memory, dtype=torch.uint8), PIECE):
            dist.broadcast(piece, src=0, group=self._membership.votes)
        return self.together(
            lambda: made[0] if self.is_first else torch.load(io.BytesIO(memory), map_location="cpu", weights_only=True)
        )

    def copy_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers of rank 0's model, such as the statistics of batch normalisation."""
        if self.world_size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)

    def agree(self, notes: dict[str, Any], what: str) -> None:
        """Check that all ranks were started alike.

        Args:
            notes: Plain values that must be the same on every rank, by name.
            what: What to do about a difference, for the message: "start all of them with the same arguments and data".

        Raises:
            ValueError: They differ; raised on all ranks, with the same words.
        """
        if self.world_size > 1 and (found := differences(self._gather(notes))):
            self._told = ValueError(f"the ranks differ: {found}: {what}.")
            raise self._told

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Let all ranks end within seconds if one of them fails or is lost, and let none leave before the others.

        Within another one, it leaves everything to that.

        Raises:
            RankFailedError: Another rank failed.
            LostRankError: Another rank is gone.
        """
        if self.world_size == 1 or self._heartbeat is not None:
            yield
            return
        self._runs += 1
        heartbeat = self._heartbeat = self._membership.heartbeat(f"run_{self._runs}")
        heartbeat.start()
        try:
            yield
            self._vote(FINE)
        except BaseException as error:
            heartbeat.is_ending = True
            self._membership.is_broken = not self._is_voted(error)
            reason = self._reason(error)
            if reason is None:
                raise
            raise reason from error
        finally:
            heartbeat.stop()
            self._heartbeat = self._told = self._posted = None

    def explained(self, error: RuntimeError) -> Exception | None:
        """Return what an error of a collective means, if its reason is on another rank.

        Returns:
            LostRankError or RankFailedError; None if it was this rank's own error.
        """
        if self._heartbeat is None:
            return None
        self._heartbeat.is_ending = True
        return error if isinstance(error, LostRankError) else self._reason(error)

    def begin_to_end(self) -> None:
        """Ask for the time to save what there is; otherwise a process that knows of a failure soon ends by force."""
        if self._heartbeat is not None:
            self._heartbeat.is_ending = True

    def has_begun(self, name: str) -> bool:
        """Return whether `note_begun` was called with this name before the launcher restarted these processes."""
        store, key = self._membership.launch, f"begun/{name}"
        return store is not None and store.check([key]) and store.get(key).decode() != self._membership.attempt

    def note_begun(self, name: str) -> None:
        """Note for processes that are restarted by the launcher that they are not the first ones."""
        if self._membership.launch is not None:
            self._membership.launch.set(f"begun/{name}", self._membership.attempt)

    def _vote(self, vote: int) -> int:
        """Return the largest vote of all ranks."""
        if self._heartbeat is not None and self._heartbeat.failure is not None:  # somebody will not vote any more
            raise _as_error(self._heartbeat.failure)
        votes = torch.tensor([vote], dtype=torch.int32)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=self._membership.votes)
        return int(votes)

    def _gather(self, value: Any) -> list[Any]:
        everyone: list[Any] = [None] * self.world_size
        dist.all_gather_object(everyone, value, group=self._membership.votes)
        return everyone

    def _verdict(self, error: Exception | None, stop: int | None) -> Exception:
        """Return what to raise after a vote against going on."""
        everyone = self._gather((None if error is None else _told_as(error), stop))
        failures = [(rank, text) for rank, (text, _) in enumerate(everyone) if text is not None]
        if error is not None:
            self._told = error
        elif failures:
            self._told = RankFailedError("; ".join(f"rank {rank} failed: {text}" for rank, text in failures))
        else:
            self._told = Interrupted(next(number for _, number in everyone if number is not None))
        return self._told

    def _is_known(self, error: BaseException) -> bool:
        """Return whether the other ranks know of an error, or of the one that it was raised from, and end as well."""
        return isinstance(error, RankFailedError | LostRankError) or self._is_voted(error)

    def _is_voted(self, error: BaseException) -> bool:
        """Return whether all ranks are alive and raise an error, or the one that it was raised from, together."""
        if error is self._told or FAILED_ON_ALL in getattr(error, "__notes__", ()):
            return True
        before = error.__cause__ or error.__context__
        return before is not None and self._is_voted(before)

    def _reason(self, error: BaseException) -> Exception | None:
        """Return what to raise instead of an error that has its reason on another rank; tell the others of any other.

        A collective fails where another rank is gone, but nothing in its error says so for certain.
        """
        heartbeat = self._heartbeat
        if heartbeat is None or error is self._posted or self._is_known(error):
            return None
        found = heartbeat.find_failure() if _may_come_from_others(error) else None
        heartbeat.post(found or Failure(f"rank {self.rank} failed: {_told_as(error)}"))
        if found is None:
            self._posted = error
            return None
        return _as_error(found)


def _may_come_from_others(error: BaseException | None) -> bool:
    """Return whether a collective may have raised an error, or the one that it was raised from."""
    if error is None or isinstance(error, torch.OutOfMemoryError):
        return False
    return isinstance(error, RuntimeError) or _may_come_from_others(error.__cause__ or error.__context__)


def _as_error(failure: Failure) -> Exception:
    if failure.lost:
        return LostRankError(f"{failure.sentence}: resume=True continues the run from its last checkpoint.")
    return RankFailedError(failure.sentence)


def _told_as(error: BaseException) -> str:
    """Describe an error to the other ranks in a line."""
    return f"{type(error).__name__}: {first_line(error)}"
