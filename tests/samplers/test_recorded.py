"""Batches stay the same for the same seed and labels, whatever is rearranged inside the samplers."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lookalike import Filters
from lookalike.samplers import EpochBatchSampler, LSHBatchSampler, PreEpochBatchSampler, RandomBatchSampler

N, DIM, EPOCHS = 150, 16, 4
LABELS = np.sort(np.arange(N) * 7919 % 41)  # 41 classes of three or four
SOME_ALONE = np.where(np.arange(N) % 30 == 0, 100 + np.arange(N), LABELS)  # classes of one as well
ONE_EXCLUDED = np.arange(N + 1), (np.arange(N) + 11) % N  # every sample excludes another


def _embeddings(epoch: int, tower: int) -> Tensor:
    """Clusters of lookalikes that drift from epoch to epoch."""
    rng = np.random.default_rng([5, epoch, tower])
    centres = np.random.default_rng(6).normal(size=(25, DIM))[np.arange(N) % 25]
    x = centres + 0.4 * rng.normal(size=(N, DIM))
    return torch.from_numpy((x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32))


SAMPLERS: dict[str, Any] = {
    "random": lambda: RandomBatchSampler(SOME_ALONE, 20, seed=3, self_pairs=True),
    "lsh": lambda: LSHBatchSampler(LABELS, 20, bits=64, seed=1),
    "lsh, paired, half as hard": lambda: LSHBatchSampler(
        np.arange(N) // 2, 12, pairs=N, bits=64, hardness=0.5, neighbourhood=3, seed=2, drop_last=True
    ),
    "lsh, sample4geo, exclusions": lambda: LSHBatchSampler(
        LABELS, 16, bits=128, method="sample4geo", filters=Filters(exclude=ONE_EXCLUDED), seed=4
    ),
    "lsh, auto, guarded": lambda: LSHBatchSampler(
        None, 10, pairs=N, bits="auto", max_bits=256, k=8, guard=0.95, seed=7, center=0.5
    ),
    "incremental": lambda: PreEpochBatchSampler(SOME_ALONE, 20, mode="incremental", seed=8, neighbourhood=5),
    "full, paired, exclusions": lambda: PreEpochBatchSampler(
        None, 15, mode="full", pairs=N, seed=9, filters=Filters(exclude=ONE_EXCLUDED)
    ),
}
RECORDED = {
    "random": ["95f1f1916fcb8693", "ee8d3415abdfb953", "1b8941880732bf6d", "eb3815118e876f3b"],
    "lsh": ["a11ee61a9c5d6ca5", "8e4b5651ddd6c97c", "8498d8edac47ee13", "b7b02b53e6251964"],
    "lsh, paired, half as hard": ["03f225f2164931f4", "571410ca752261ca", "9851d6bc25c0dfb7", "3a752ad69c03acae"],
    "lsh, sample4geo, exclusions": ["2b62cc30b51ae93a", "93f3fe9b464859c1", "a0fb03be1fbbf1ab", "eb26486e647b2ce2"],
    "lsh, auto, guarded": ["1a8cada8812dc499", "7de7964d68dcb861", "94faa522a68e51da", "537c9b84c87d52e0"],
    "incremental": ["6c75fa3796d1ce18", "e8fbdd2b9b2687d4", "9e13d822dfac5dea", "d13758e25e3080df"],
    "full, paired, exclusions": ["8c015a97332aaa3f", "0f381b8f111d0339", "f0e992da3baa22df", "93acb885f189ada2"],
}


def _hash(batches: list[list[int]]) -> str:
    return hashlib.sha256(repr(batches).encode()).hexdigest()[:16]


def _towers(sampler: EpochBatchSampler, epoch: int, ids: Any) -> dict[str, Tensor]:
    if not sampler.paired:
        return {"embeddings": _embeddings(epoch, 0)[ids]}
    return {"query": _embeddings(epoch, 0)[ids], "reference": _embeddings(epoch, 1)[ids]}


def _hashes(sampler: EpochBatchSampler) -> list[str]:
    hashes = []
    for epoch in range(EPOCHS):
        if isinstance(sampler, PreEpochBatchSampler) and sampler.mode == "full":
            sampler.refresh(**_towers(sampler, epoch, slice(None)))
        batches = []
        for ids in sampler:
            sampler.observe(ids, **_towers(sampler, epoch, ids))
            batches.append(ids)
        hashes.append(_hash(batches))
    return hashes


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_batches_of_four_epochs_are_the_recorded_ones(name: str) -> None:
    assert _hashes(SAMPLERS[name]()) == RECORDED[name]
