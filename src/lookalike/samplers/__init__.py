"""Batches -> training: batch samplers that compose the next epoch from what this one saw.

A sampler is a pairing (labelled or paired data), a memory (nothing, floats or codes) and a way to compose batches, put
together by `EpochBatchSampler`. The other classes only choose the parts.
"""

from lookalike.samplers.epochs import EpochBatchSampler, EpochOptions, MiningOptions
from lookalike.samplers.exact import PreEpochBatchSampler
from lookalike.samplers.lsh import LSHBatchSampler
from lookalike.samplers.random import RandomBatchSampler

__all__ = [
    "EpochBatchSampler",
    "EpochOptions",
    "LSHBatchSampler",
    "MiningOptions",
    "PreEpochBatchSampler",
    "RandomBatchSampler",
]
