"""Kinds of codes to compare: the paper's, its two ablations, signs of principal components, and several bits each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.hashing import CENTER, ScalarCodes, ScalarHasher, SignHasher, pack_bits
from lookalike.hashing.moments import Moments
from lookalike.utils.checks import SHORTEST_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Codes = Tensor | ScalarCodes

CHUNK = 1 << 14  # rows of the data in memory as tensors at a time
PCA_ROWS = 20_000  # to fit principal components to, at most
INCREMENTAL_ROWS = 8 * 128  # as in the paper: eight batches

SCALAR = "scalar"
CODE_METHODS = ("lsh", "not centred", "gaussian rows", "pca-sign", "incremental pca-sign", SCALAR)
PRINCIPAL = ("pca-sign", "incremental pca-sign")  # at most as many bits as dimensions


def chunks(x: Any) -> Iterator[Tensor]:
    """Yield the rows of an array, which may be memory-mapped, normalised, float32 [CHUNK, dim] at a time."""
    for first in range(0, len(x), CHUNK):
        yield normalized_rows(x, slice(first, first + CHUNK))


def normalized_rows(x: Any, which: Any) -> Tensor:
    """Return some rows of a tensor or an array, normalised, float32."""
    rows = x[which].float() if isinstance(x, Tensor) else torch.from_numpy(np.array(x[which], np.float32))
    return torch.nn.functional.normalize(rows, dim=1)


def possible_lengths(method: str, lengths: Sequence[int], dim: int) -> list[int]:
    """Return the lengths that codes of this kind can have."""
    if method == SCALAR:
        return [bits for bits in lengths if bits >= SHORTEST_CODE]
    return [bits for bits in lengths if bits <= dim or method not in PRINCIPAL]


def make_codes(method: str, x: Any, lengths: Sequence[int], seed: int = 0) -> dict[int, Codes]:
    """Hash all rows to codes of each length, which `possible_lengths` returned."""
    if not lengths:
        return {}
    if method == SCALAR:
        return _scalar(x, lengths, seed)
    dim, longest = x.shape[1], max(lengths)
    if method in PRINCIPAL:
        rows = PCA_ROWS if method == "pca-sign" else INCREMENTAL_ROWS
        encode = _principal(x, min(rows, len(x)), longest, seed)
    else:
        hasher = SignHasher(
            dim,
            longest,
            seed=seed,
            center=0.0 if method == "not centred" else CENTER,
            orthonormal=method != "gaussian rows",
        )
        if method != "not centred":
            for part in chunks(x):
                hasher.update_mean(part)
        encode = hasher.encode
    codes = torch.cat([encode(part) for part in chunks(x)])
    return {bits: codes[:, : bits // 8].contiguous() for bits in lengths}


def _scalar(x: Any, lengths: Sequence[int], seed: int) -> dict[int, Codes]:
    """Hash to codes of several bits per dimension: statistics in one pass, codes of all lengths in another."""
    moments = Moments(x.shape[1])
    for part in chunks(x):
        moments.add(part)
    hashers = {bits: ScalarHasher.of_moments(moments, bits, seed=seed) for bits in lengths}
    parts: dict[int, list[Tensor]] = {bits: [] for bits in lengths}
    for part in chunks(x):
        for bits, hasher in hashers.items():
            parts[bits].append(hasher.encode(part).packed)
    return {bits: ScalarCodes(torch.cat(parts[bits]), hasher.scheme) for bits, hasher in hashers.items()}


def _principal(x: Any, rows: int, bits: int, seed: int) -> Callable[[Tensor], Tensor]:
    """Fit principal components to a random sample; return the function that hashes to their signs."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(x), generator=generator)[:rows].sort().values
    sample = normalized_rows(x, chosen.numpy()).double()
    mean = sample.mean(0)
    _, vectors = torch.linalg.eigh((sample - mean).T @ (sample - mean))  # ascending
    components = vectors.flip(1)[:, :bits].T.float()
    threshold = components @ mean.float()
    return lambda part: pack_bits(part @ components.T >= threshold)
