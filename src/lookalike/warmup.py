"""Compiling ahead of time: what would otherwise be taken for slowness of the first search and the first epochs."""

import importlib.util

import torch

from lookalike.samplers import LSHBatchSampler
from lookalike.search import hamming_topk


def compile_kernels(bits: int = 512) -> None:
    """Compile the kernels of search and composition, or load them from numba's cache."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(256, (64, bits // 8), dtype=torch.uint8, generator=generator)
    labels = torch.arange(64) // 2
    if importlib.util.find_spec("numba") is not None:
        hamming_topk(codes, codes, 1, query_labels=labels, backend="cpu")
    x = torch.randn(64, 8, generator=generator)
    for options in ({"labels": labels}, {"labels": None, "pairs": 64}):
        sampler = LSHBatchSampler(batch_size=8, bits=64, **options)
        for _ in range(2):
            for ids in sampler:
                towers = {"query": x[ids], "reference": x[ids]} if "pairs" in options else {"embeddings": x[ids]}
                sampler.observe(ids, **towers)
