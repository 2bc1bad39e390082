"""The types of the options that samplers hand on to `EpochBatchSampler`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from lookalike.batches import Neighbourhood
    from lookalike.negatives import Filters
    from lookalike.samplers.composition import Rearrange
    from lookalike.samplers.iteration import Shard


class EpochOptions(TypedDict, total=False):
    """Options of every sampler."""

    drop_last: bool
    shard: Shard


class MiningOptions(EpochOptions, total=False):
    """Options of every sampler that mines."""

    hardness: float
    neighbourhood: Neighbourhood
    method: str
    filters: Filters
    rearrange: Rearrange | None
