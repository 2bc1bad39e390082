"""Embed the training set before a trainer's first epoch, and leave everything else as it was."""

from __future__ import annotations

import copy
import logging
import random
import time
from typing import TYPE_CHECKING, Any

from lookalike.utils import ranks
from lookalike.utils.progress import progress_bar
from lookalike.utils.undisturbed import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import nn
    from torch.utils.data import DataLoader

    from lookalike.samplers import EpochBatchSampler

logger = logging.getLogger("lookalike")

SMALLEST, LARGEST = 64, 256  # samples embedded at a time; losses that cache gradients train on batches of any size


def embedding_batch(batch_size: int) -> int:
    """Return how many samples to embed at a time where training takes `batch_size`: without gradients, more fit."""
    return min(max(4 * batch_size, SMALLEST), LARGEST)


def own_batches(order: Sequence[int], batch_size: int) -> list[list[int]]:
    """Cut this rank's share of the samples into batches; every rank gets the same number of them.

    The batches are shuffled, because the first codes are centred by the mean of what was observed until then.
    """
    rank, world_size = ranks.world()
    count = -(-len(order) // world_size)
    own = [*order[rank::world_size], order[0]][:count]  # models that are sharded over ranks must embed in step
    batches = [own[start : start + batch_size] for start in range(0, count, batch_size)]
    random.Random(0).shuffle(batches)  # noqa: S311 - not for cryptography
    return batches


def observe_all(
    sampler: EpochBatchSampler,
    loader: DataLoader[Any],
    embed: Callable[[Any], dict[str, Any]],
    modules: Iterable[nn.Module],
    *,
    shown: bool = True,
    name: str = "",
) -> None:
    """Let a sampler observe its whole training set before the first epoch.

    If that is interrupted, the sampler forgets what it has observed, so that no epoch is composed from a part of it.

    Args:
        sampler: One that wants a warm start.
        loader: Reads this rank's share of the training set.
        embed: Turns what the loader yields into the arguments of `observe`.
        modules: What it embeds with.
        shown: Draw a progress bar, if there is a terminal.
        name: The data set's, if there are several.
    """
    began, before = time.perf_counter(), copy.deepcopy(sampler.state_dict())
    try:
        with sampler.mining_time, undisturbed(modules), progress_bar("warm start", len(loader), shown=shown) as bar:
            for batch in loader:
                sampler.observe(**embed(batch))
                bar.advance(1)
    except BaseException:
        sampler.load_state_dict(before)
        raise
    if ranks.world()[0] == 0:
        logger.info(
            "warm start: embedded %d samples%s in %.1f s; %s.",
            sampler.num_samples,
            f" of {name}" if name else "",
            time.perf_counter() - began,
            "the first epoch is composed from them"
            if sampler.warm_start.mode is True
            else "their codes decide whether the first epoch is composed from them",
        )
