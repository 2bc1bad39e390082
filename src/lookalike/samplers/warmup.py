"""Compile ahead of time, so that the times of the first search and the first epochs do not include it."""

import torch

from lookalike.samplers import LSHBatchSampler
from lookalike.search import load_kernel


def compile_kernels() -> None:
    """Compile the kernels of search and composition, or load them from numba's cache."""
    load_kernel()
    labels = torch.arange(64) // 2
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    for options in ({"labels": labels}, {"labels": None, "pairs": 64}):
        sampler = LSHBatchSampler(batch_size=8, bits=64, **options)
        for _ in range(2):
            for ids in sampler:
                towers = {"query": x[ids], "reference": x[ids]} if "pairs" in options else {"embeddings": x[ids]}
                sampler.observe(ids, **towers)
