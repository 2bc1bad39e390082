"""Exchange data between the processes of `torch.distributed`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lookalike.utils.arrays import Array
from lookalike.utils.errors import RankFailedError

RunJobs = Callable[[int, Callable[[int], Array], int], list[Array]]

PIECE_BYTES = 1 << 26  # that are sent at a time
FAILED_ON_ALL = "The other ranks were told and have stopped, too."


def is_distributed() -> bool:
    """Return whether there is more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def world() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    return (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)


def _device() -> torch.device:
    has_gpus = "nccl" in dist.get_backend_config()
    return torch.device("cuda", torch.cuda.current_device()) if has_gpus else torch.device("cpu")


@contextmanager
def failing_together() -> Iterator[None]:
    """Run a block on every rank; if it fails on one of them, it fails on all, and none waits for the others forever.

    Functions of this module that wait for other ranks first ask all of them whether they have come that far. A rank
    whose block has failed answers the next such question, wherever the others ask it.
    """
    try:
        yield
    except RankFailedError:
        raise
    except Exception as error:
        if FAILED_ON_ALL not in getattr(error, "__notes__", ()):
            _meet(error)
        raise
    _meet()


def _meet(error: Exception | None = None) -> None:
    """Wait until every rank has come here or has failed; raise an error if another one has."""
    if not is_distributed():
        return
    rank, world_size = world()
    failed = torch.tensor(world_size if error is None else rank, device=_device())
    dist.all_reduce(failed, op=dist.ReduceOp.MIN)
    first = int(failed)
    if first == world_size:
        return
    message = [f"{type(error).__name__}: {error}"]
    dist.broadcast_object_list(message, src=first, device=_device())
    if error is None:
        raise RankFailedError(f"composing batches failed on rank {first}: {message[0]}")
    error.add_note(FAILED_ON_ALL)


def _broadcast(tensor: Tensor, source: int) -> None:
    """Broadcast a contiguous tensor on the host into its place, in pieces: a device never holds more than one."""
    device = _device()
    for piece in torch.split(tensor.view(-1), PIECE_BYTES // tensor.element_size()):
        part = piece if device.type == "cpu" else piece.to(device)
        dist.broadcast(part, src=source)
        if part is not piece and dist.get_rank() != source:
            piece.copy_(part)


def gather_rows(ids: Tensor, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield every rank's ids, int64 [m], and rows, [m, width], on the host: rank after rank, some at a time."""
    rank, world_size = world()
    numbers = torch.zeros(world_size, dtype=torch.int64)
    numbers[rank] = len(ids)
    most = max(1, PIECE_BYTES // (rows.element_size() * rows.shape[1:].numel()))
    for source, number in enumerate(add_up(numbers).tolist()):
        for first in range(0, number, most):
            if source == rank:
                parts = ids[first : first + most].cpu(), rows[first : first + most].cpu().contiguous()
            else:
                size = min(most, number - first)
                parts = torch.empty(size, dtype=torch.int64), torch.empty(size, *rows.shape[1:], dtype=rows.dtype)
            _meet()
            for part in parts:
                _broadcast(part, source)
            yield parts


def slices(n: int) -> list[int]:
    """Cut 0..n into one slice per rank, as even as possible: rank r has slices(n)[r] to slices(n)[r + 1] - 1."""
    world_size = world()[1]
    return [n * rank // world_size for rank in range(world_size + 1)]


def gather_slices(whole: Tensor, edges: list[int]) -> None:
    """Complete a tensor on the host, of which rank r has filled rows edges[r] to edges[r + 1] - 1, on all ranks."""
    _meet()
    for rank, (first, last) in enumerate(pairwise(edges)):
        if is_distributed() and last > first:
            _broadcast(whole[first:last], rank)


def gather_arrays(own: list[Array], edges: list[int]) -> list[Array]:
    """Return the int32 arrays of all ranks in order; rank r has made those numbered edges[r] to edges[r + 1] - 1."""
    first, last = edges[world()[0] :][:2]
    lengths = torch.zeros(edges[-1], dtype=torch.int64)
    lengths[first:last] = torch.tensor([len(array) for array in own], dtype=torch.int64)
    gather_slices(lengths, edges)
    offsets = [0, *lengths.cumsum(0).tolist()]
    whole = torch.empty(offsets[-1], dtype=torch.int32)
    for array, (start, end) in zip(own, pairwise(offsets[first : last + 1]), strict=True):
        whole[start:end] = torch.from_numpy(array)
    gather_slices(whole, [offsets[edge] for edge in edges])
    return [whole[start:end].numpy() for start, end in pairwise(offsets)]


def share_jobs(num_jobs: int, job: Callable[[int], Array], checksum: int, run: RunJobs) -> list[Array]:
    """Return [job(0), ..., job(num_jobs - 1)], int32 arrays, of which every rank makes its share.

    Args:
        num_jobs: The same on all ranks, as everything that the jobs depend on must be.
        job: Makes one of the arrays.
        checksum: Of what the jobs depend on.
        run: Called with a number of jobs, a job and the checksum, makes the arrays of this rank.

    Raises:
        ValueError: The checksums differ; raised on all ranks.
    """
    check_same(
        checksum,
        "the ranks are about to compose batches from different data: build the sampler with the same arguments on "
        "every rank, and use the same versions of NumPy, numba and lookalike on all machines.",
    )
    edges = slices(num_jobs)
    first, last = edges[world()[0] :][:2]
    with failing_together():
        own = run(last - first, lambda number: job(first + number), checksum)
    return gather_arrays(own, edges)


def concatenated(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return the rows `[m, width]` of all ranks, one rank after another; `lengths` says how many each of them has."""
    padded = x.new_zeros(max(lengths), x.shape[1])
    padded[: len(x)] = x
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded)
    return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])


def sum_in_place(values: Tensor) -> Tensor:
    """Sum values over all ranks, in place and on their device, without waiting for it; return them."""
    dist.all_reduce(values)
    return values


def add_up(values: Tensor) -> Tensor:
    """Sum values over all ranks."""
    total = values.to(_device(), copy=True)
    _meet()
    dist.all_reduce(total)
    return total.to(values.device)


def from_first(make: Callable[[], list[Tensor]]) -> list[Tensor]:
    """Call `make` on rank 0 and return its tensors on every rank. If it fails there, it fails on all ranks."""
    if not is_distributed():
        return make()
    made: list[Tensor] = []
    with failing_together():
        if dist.get_rank() == 0:
            made = [part.cpu().contiguous() for part in make()]
    shapes: list[Any] = [[(part.shape, part.dtype) for part in made]]
    dist.broadcast_object_list(shapes, src=0, device=_device())
    received = made or [torch.empty(shape, dtype=dtype) for shape, dtype in shapes[0]]
    for part in received:
        _broadcast(part, 0)
    return received


def largest(value: float) -> float:
    """Return the largest of all ranks' numbers."""
    most = torch.tensor(float(value), device=_device())
    _meet()
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return float(most)


def check_same(value: int, difference: str) -> None:
    """Raise a ValueError that says `difference` on all ranks, unless the number is the same on all of them."""
    if not is_distributed():
        return
    mine = torch.tensor([value, -value], device=_device())
    _meet()
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    if int(mine[0]) != -int(mine[1]):
        raise ValueError(difference)


def share(order: Tensor, offsets: Tensor, rank: int, world_size: int, width: int) -> tuple[Tensor, Tensor]:
    """Return this rank's part of every batch: as many batches on every rank, sizes that differ by at most one pair."""
    pairs = offsets.diff() // width
    first = offsets[:-1] + pairs * rank // world_size * width
    last = offsets[:-1] + pairs * (rank + 1) // world_size * width
    lengths = last - first
    own = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    positions = torch.arange(int(own[-1])) + torch.repeat_interleave(first - own[:-1], lengths)
    return order[positions], own


def check_agreement(notes: dict[str, Any], dim: int | None) -> None:
    """Check that all ranks agree, before ranks that differ wait for each other forever or mix their data.

    Args:
        notes: Values that must be the same on every rank, by name.
        dim: Dimension of this rank's embeddings, None if it has seen none.

    Raises:
        ValueError: The ranks differ; raised on all of them, naming the difference.
    """
    everyone: list[Any] = [None] * dist.get_world_size()
    _meet()
    dist.all_gather_object(everyone, (notes, dim))
    all_notes, dims = zip(*everyone, strict=True)
    if len({each for each in dims if each is not None}) > 1:
        shown = ["unknown" if each is None else each for each in dims]
        all_notes = tuple(each | {"the embeddings' dimension": dim} for each, dim in zip(all_notes, shown, strict=True))
    if found := differences(all_notes):
        raise ValueError(
            f"the ranks' samplers differ: {found}. Build the sampler with the same arguments on every rank, including "
            "the seed, and load its state on every rank or on none."
        )


def differences(notes: Sequence[dict[str, Any]]) -> str:
    """Say in which values the notes of the ranks differ; nothing if they agree.

    Examples:
        >>> differences([{"seed": 0, "bits": 64}, {"seed": 1, "bits": 64}, {"seed": 1, "bits": 64}])
        'seed is 0 on rank 0, 1 on ranks 1, 2'
    """
    names = dict.fromkeys(name for each in notes for name in each)
    values = {name: [each.get(name, "absent") for each in notes] for name in names}
    differing = {name: found for name, found in values.items() if any(value != found[0] for value in found)}
    return "; ".join(f"{name} is {_by_rank(found)}" for name, found in differing.items())


def _by_rank(values: list[Any]) -> str:
    """Group the ranks by value: 0 on rank 0, 1 on ranks 1, 2."""
    parts = []
    for value in (each for i, each in enumerate(values) if each not in values[:i]):  # lists have no hash
        ranks = [str(rank) for rank, each in enumerate(values) if each == value]
        parts.append(f"{value} on rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}")
    return ", ".join(parts)
