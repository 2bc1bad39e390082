"""Read samples ahead of the step that needs them, and embed many of them without gradients."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from lookalike.training.errors import UnreadableSampleError
from lookalike.utils.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

T = TypeVar("T")
AHEAD = 3  # batches
BATCH = 256  # samples to embed at a time


def batches_ahead(device: torch.device) -> int:
    """Return how many batches to read ahead; none on a CPU, where reading would take cores from the computation."""
    return AHEAD if device.type == "cuda" else 0


def read(view: Callable[..., Any], *arguments: Any) -> Any:
    """Call a view of a data set.

    Raises:
        UnreadableSampleError: A sample cannot be read.
    """
    try:
        return view(*arguments)
    except (ValueError, OSError) as error:
        raise UnreadableSampleError(str(error)) from error


def read_ahead(jobs: Iterable[Callable[[], T]], ahead: int = AHEAD) -> Iterator[T]:
    """Yield the results of jobs in order, computed in a thread up to `ahead` jobs before they are asked for.

    One thread is enough: decoding has threads of its own, and tokenising happens outside the interpreter.

    Examples:
        >>> list(read_ahead([lambda: 1, lambda: 2]))
        [1, 2]
    """
    if ahead == 0:
        for job in jobs:
            yield job()
        return
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(1, "lookalike-reading") as thread:
        try:
            for job in jobs:
                waiting.append(thread.submit(job))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def moved(x: Any, device: torch.device) -> Any:
    """Move a tensor, or a dictionary of tensors, to a device; return texts unchanged."""
    if isinstance(x, dict):
        return {name: moved(value, device) for name, value in x.items()}
    return x.to(device, non_blocking=True) if isinstance(x, Tensor) else x


def embed(model: nn.Module, view: Callable[[Tensor], Any], n: int, **options: Any) -> Tensor:
    """Embed samples 0 to n - 1, float32 `[n, dim]`, on the model's device, with the arguments of `embedded`."""
    embeddings = torch.empty(0)
    for ids, part in embedded(model, view, n, **options):
        if len(embeddings) == 0:
            embeddings = torch.empty((n, *part.shape[1:]), device=part.device)
        embeddings[ids.to(part.device)] = part
    return embeddings


@torch.no_grad()
def embedded(
    model: nn.Module,
    view: Callable[[Tensor], Any],
    n: int,
    *,
    batch_size: int = BATCH,
    precision: torch.dtype = torch.float32,
    check: Callable[[], None] | None = None,
    progress: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Embed samples 0 to n - 1 some at a time: yield ids and float32 `[len(ids), dim]`, on the model's device.

    Leaves the model in evaluation mode.

    Args:
        model: The model.
        view: Returns the model's input for some ids.
        n: Number of samples.
        batch_size: Samples at a time.
        precision: Precision of the computation.
        check: Called between batches; may raise to stop.
        progress: Draw a progress bar if stderr is a terminal.

    Raises:
        UnreadableSampleError: A sample cannot be read.
    """
    model.eval()
    device = next(model.parameters()).device
    prepare = getattr(model, "prepare", lambda x: x)
    jobs = (
        partial(lambda ids: (ids, prepare(read(view, ids))), ids) for ids in torch.split(torch.arange(n), batch_size)
    )
    with progress_bar(f"embedding {n:,} samples", n, shown=progress) as bar:
        for ids, x in read_ahead(jobs, batches_ahead(device)):
            with torch.autocast(device.type, precision, enabled=precision != torch.float32):
                part = model(moved(x, device)).float()
            yield ids, part
            bar.advance(len(part))
            if check is not None:
                check()
