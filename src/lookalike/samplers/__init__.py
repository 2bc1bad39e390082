"""Batches -> training: batch samplers that compose the next epoch from what this one saw."""

from lookalike.samplers.epochs import EpochBatchSampler
from lookalike.samplers.exact import PreEpochBatchSampler
from lookalike.samplers.lsh import LSHBatchSampler
from lookalike.samplers.random import RandomBatchSampler

__all__ = ["EpochBatchSampler", "LSHBatchSampler", "PreEpochBatchSampler", "RandomBatchSampler"]
