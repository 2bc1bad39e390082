"""Batches -> training: batch samplers that compose the next epoch from what this one saw.

A sampler is a pairing (labelled or paired data), a memory (nothing, floats or codes) and a way to compose batches, put
together by `EpochBatchSampler`. The other classes only choose the parts.
"""

from lookalike.samplers.code_memory import CodeMemory
from lookalike.samplers.epochs import EpochBatchSampler
from lookalike.samplers.exact import PreEpochBatchSampler
from lookalike.samplers.float_memory import FloatMemory
from lookalike.samplers.guard import Guard
from lookalike.samplers.lsh import LSHBatchSampler
from lookalike.samplers.memory import Memory
from lookalike.samplers.options import EpochOptions, MiningOptions
from lookalike.samplers.pairing import Labelled, Paired
from lookalike.samplers.random import RandomBatchSampler
from lookalike.samplers.stream_batches import StreamBatches, StreamCounts

__all__ = [
    "CodeMemory",
    "EpochBatchSampler",
    "EpochOptions",
    "FloatMemory",
    "Guard",
    "LSHBatchSampler",
    "Labelled",
    "Memory",
    "MiningOptions",
    "Paired",
    "PreEpochBatchSampler",
    "RandomBatchSampler",
    "StreamBatches",
    "StreamCounts",
]
