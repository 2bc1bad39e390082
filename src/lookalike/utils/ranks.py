"""Exchange data between the processes of `torch.distributed`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def is_distributed() -> bool:
    """Return whether there is more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def world() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    return (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if "nccl" in dist.get_backend_config() else torch.device("cpu")


def gather_rows(ids: Tensor, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return every rank's (ids int64 [m], rows uint8 [m, width]), by rank; m may differ between ranks."""
    device = _device()
    number = torch.tensor([len(ids)], device=device)
    numbers = [torch.zeros_like(number) for _ in range(dist.get_world_size())]
    dist.all_gather(numbers, number)
    most = max(int(each) for each in numbers)
    gathered = []
    for part in (ids, rows):
        padded = torch.zeros(most, *part.shape[1:], dtype=part.dtype, device=device)
        padded[: len(part)] = part.to(device)
        everyone = [torch.empty_like(padded) for _ in numbers]
        dist.all_gather(everyone, padded)
        gathered.append([each[: int(number)].cpu() for each, number in zip(everyone, numbers, strict=True)])
    return list(zip(*gathered, strict=True))


def concatenated(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return the rows `[m, width]` of all ranks, one rank after another, if `lengths` says how many each of them has."""
    padded = x.new_zeros(max(lengths), x.shape[1])
    padded[: len(x)] = x
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded)
    return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])


def add_up(values: Tensor) -> Tensor:
    """Sum values over all ranks."""
    total = values.to(_device(), copy=True)
    dist.all_reduce(total)
    return total.to(values.device)


def from_first(make: Callable[[], list[Tensor]]) -> list[Tensor]:
    """Call `make` on rank 0 and return its tensors on every rank. If it fails there, it fails on all ranks."""
    if not is_distributed():
        return make()
    device, first = _device(), dist.get_rank() == 0
    made: list[Tensor] = []
    message: list[Any] = [None]
    if first:
        try:
            made = make()
            message = [[(part.shape, part.dtype) for part in made]]
        except Exception as error:  # noqa: BLE001 - the other ranks must hear of any error
            failure, message = error, [f"{type(error).__name__}: {error}"]
    dist.broadcast_object_list(message, src=0, device=device)
    if isinstance(message[0], str):
        raise failure if first else RuntimeError(f"composing batches failed on rank 0: {message[0]}")
    received = []
    for i, (shape, dtype) in enumerate(message[0]):
        part = made[i].to(device) if first else torch.empty(shape, dtype=dtype, device=device)
        dist.broadcast(part, src=0)
        received.append(part.cpu())
    return received


def largest(value: float) -> float:
    """Return the largest of all ranks' numbers."""
    most = torch.tensor(float(value), device=_device())
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return float(most)


def check_same(value: int, difference: str) -> None:
    """Raise a ValueError that says `difference` on all ranks, unless the number is the same on all of them."""
    if not is_distributed():
        return
    mine = torch.tensor([value, -value], device=_device())
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
