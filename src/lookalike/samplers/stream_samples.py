"""The samples of a stream: dealt to the ranks, labelled, and enough to fill a batch, or why not."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from lookalike.batches.plan import plan_batches
from lookalike.samplers.pairing import count_pairs
from lookalike.utils import ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from lookalike.utils.arrays import Array

    Label = Callable[[Any], Hashable] | str | int | None


def dealt(stream: Iterable[Any], shard: bool | None) -> Iterator[Any]:
    """Iterate over the samples of this rank.

    With `shard=True` every rank gets as many, so up to `ranks - 1` samples at the end of the stream are left out.

    Raises:
        ValueError: There are several ranks, and nothing says whether the stream is this rank's own.
    """
    rank, world_size = ranks.world()
    if world_size > 1 and shard is None:
        raise ValueError(
            f"{world_size} ranks read this stream: give shard=True to deal its samples to them, or shard=False if "
            "each rank reads its own part already, as after datasets.distributed.split_dataset_by_node."
        )
    return every(iter(stream), rank, world_size) if world_size > 1 and shard else iter(stream)


def every(source: Iterator[Any], rank: int, world_size: int) -> Iterator[Any]:
    """Deal samples to the ranks in turns, as long as there is one for each; yield those of one rank.

    Examples:
        >>> list(every(iter("abcdefg"), 1, 3))
        ['b', 'e']
    """
    while len(turn := list(islice(source, world_size))) == world_size:
        yield turn[rank]


def number_labels(samples: list[Any], label: Label) -> Array:
    """Number the labels of samples in the order in which they appear, int64 [n]; without `label` each has its own.

    Raises:
        ValueError: A sample has no such key, or its label is None or NaN.
        TypeError: A label cannot be compared with others.

    Examples:
        >>> number_labels([{"shop": "a"}, {"shop": "b"}, {"shop": "a"}], "shop").tolist()
        [0, 1, 0]
    """
    if label is None:
        return np.arange(len(samples))
    numbers: dict[Any, int] = {}
    try:
        return np.array([numbers.setdefault(_label_of(sample, label), len(numbers)) for sample in samples])
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        raise TypeError(f"a label must be a number or a string ({error}); let label= return one.") from error


def _label_of(sample: Any, label: Callable[[Any], Hashable] | str | int) -> Any:
    if callable(label):
        found: Any = label(sample)
    else:
        try:
            found = sample[label]
        except (KeyError, IndexError, TypeError) as error:
            keys = f"the keys {', '.join(map(str, sample))}" if isinstance(sample, dict) else type(sample).__name__
            raise ValueError(f"label={label!r} is in no sample; the first without it has {keys}.") from error
    if isinstance(found, Tensor) and found.numel() != 1:
        raise TypeError(f"a label must be a number or a string, got a tensor of shape {list(found.shape)}.")
    found = found.item() if isinstance(found, (Tensor, np.generic)) else found
    if found is None or (isinstance(found, float) and math.isnan(found)):
        raise ValueError(
            f"a sample of the stream has the label {found}: leave out samples without one, or let label= return a "
            "label of its own for each."
        )
    return found


def obstacle(labels: Array, size: int, n: int, *, pairs: bool, drop_last: bool) -> str | None:
    """Return why a window does not fill one batch, or None if it does.

    Args:
        labels: Of its samples, or with `pairs=False` of those with a positive.
        size: Pairs per batch.
        n: Samples in the window.
        pairs: Whether samples are pairs.
        drop_last: Whether all batches must be full.
    """
    if len(labels) == 0:
        return (
            f"no two of its {n} samples share a label, so none has a positive; raise window= or bring samples of a "
            "label closer together, or give pairs=True if each sample is a pair."
        )
    counts = np.unique(labels, return_counts=True)[1]
    try:
        plan_batches(counts if pairs else count_pairs(counts, self_pairs=False), size, drop_last=drop_last)
    except ValueError:
        which = f"{n} pairs" if pairs else f"{len(labels)} samples with a positive"
        return (
            f"its {which} have {len(counts)} different labels, and a batch needs {size}, one per pair; shuffle the "
            "stream, raise window= or lower batch_size=."
        )
    return None
