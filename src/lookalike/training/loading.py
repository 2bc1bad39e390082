"""Read samples ahead of the step that needs them, and embed many of them without gradients."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from lookalike.training.errors import UnreadableSampleError
from lookalike.training.team import Team
from lookalike.utils import ranks
from lookalike.utils.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

T = TypeVar("T")
AHEAD = 3  # batches
BATCH = 256  # samples to embed at a time
SORTED = 16  # batches of texts that are sorted by length together


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


def preparation(model: nn.Module, tower: str | None = None) -> Callable[[Any], Any]:
    """Return what a model does to its inputs ahead of the step: for texts of a tower, with the prompt of that tower."""
    prepare: Callable[..., Any] = getattr(model, "prepare", lambda x: x)
    prompt = getattr(model, "tower_prompts", {}).get(tower)
    return partial(prepare, prompt=prompt) if prompt else prepare


def embed(
    model: nn.Module, view: Callable[[Tensor], Any], n: int, *, tower: str | None = None, **options: Any
) -> Tensor:
    """Embed samples 0 to n - 1, float32 `[n, dim]`, on the model's device, with the arguments of `embedded`."""
    embeddings = torch.empty(0)
    for ids, (part,) in embedded(model, {tower: view}, torch.arange(n), **options):
        if len(embeddings) == 0:
            embeddings = torch.empty((n, *part.shape[1:]), device=part.device)
        embeddings[int(ids[0]) : int(ids[-1]) + 1] = part
    return embeddings


@torch.no_grad()
def embedded(
    model: nn.Module,
    views: Mapping[str | None, Callable[[Tensor], Any]],
    ids: Tensor,
    *,
    batch_size: int = BATCH,
    precision: torch.dtype = torch.float32,
    check: Callable[[], None] | None = None,
    team: Team | None = None,
    progress: bool = False,
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Embed samples, some at a time and in order: yield ids and, for each view, float32 `[len(ids), dim]`.

    Embeddings are on the model's device, which is left in evaluation mode. They do not depend on the number of ranks,
    because samples that are embedded together by one process are embedded together by one rank.

    Args:
        model: The model.
        views: By tower, "query" or "reference", what returns the model's input for some ids; None for inputs of
            neither tower.
        ids: The samples.
        batch_size: Samples at a time.
        precision: Precision of the computation.
        check: Called between batches; may raise to stop.
        team: The ranks that share the work. All of them call this, and all get all embeddings; by default this process
            works alone.
        progress: Draw a progress bar if stderr is a terminal.

    Raises:
        UnreadableSampleError: A sample cannot be read.
    """
    team = team or Team.alone()
    model.eval()
    device = next(model.parameters()).device
    steps = [(preparation(model, tower), view) for tower, view in views.items()]
    is_text = team.together(lambda: len(ids) > 0 and isinstance(read(steps[0][1], ids[:1]), list))

    def job(some: Tensor) -> list[list[tuple[Tensor, Any]]]:
        return [_prepared(prepare, read(view, some), batch_size) for prepare, view in steps]

    def embed_next(reading: Iterator[list[list[tuple[Tensor, Any]]]]) -> list[Tensor]:
        found = []
        for batches in next(reading, []):
            parts = []
            for _, x in batches:
                with torch.autocast(device.type, precision, enabled=precision != torch.float32):
                    parts.append(model(moved(x, device)).float())
                if check is not None:
                    check()
            rows = torch.cat(parts)
            places = torch.cat([places for places, _ in batches]).to(rows.device)
            found.append(torch.empty_like(rows).index_copy_(0, places, rows))
        return found

    stretches = torch.split(ids, batch_size * (SORTED if is_text else 1))
    with progress_bar(f"embedding {len(ids):,} samples", len(ids), shown=progress) as bar:
        reading = read_ahead((partial(job, s) for s in stretches[team.rank :: team.world_size]), batches_ahead(device))
        for first in range(0, len(stretches), team.world_size):
            found = team.together(partial(embed_next, reading))
            for some, towers in _of_everyone(
                stretches[first : first + team.world_size], found, len(views), team, device
            ):
                yield some, towers
                bar.advance(len(some))


def _of_everyone(
    stretches: Sequence[Tensor], found: list[Tensor], num_views: int, team: Team, device: torch.device
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield what each rank has embedded: one stretch of samples each, the last ranks perhaps none."""
    if team.world_size == 1:
        yield stretches[0], found
        return
    lengths = [len(some) for some in stretches] + [0] * (team.world_size - len(stretches))
    dim = int(ranks.largest(found[0].shape[1] if found else 0))  # a rank without samples does not know it
    mine = torch.cat(found, dim=1) if found else torch.empty(0, num_views * dim, device=device)
    everyone = torch.split(ranks.concatenated(mine, lengths), lengths)
    for some, rows in zip(stretches, everyone, strict=False):
        yield some, list(torch.split(rows, dim, dim=1))


def _prepared(prepare: Callable[[Any], Any], x: Any, batch_size: int) -> list[tuple[Tensor, Any]]:
    """Split samples into batches, ready for the model, with their places; texts by length, so that few are padded."""
    if not isinstance(x, list):
        return [(torch.arange(len(x)), prepare(x))]
    order = torch.tensor(sorted(range(len(x)), key=lambda i: len(x[i])))
    return [(places, prepare([x[i] for i in places.tolist()])) for places in torch.split(order, batch_size)]
