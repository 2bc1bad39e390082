"""Kinds of sign codes to compare: the paper's, its two ablations, and the signs of principal components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.hashing import CENTER, SignHasher, pack_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK = 1 << 14  # rows of the data in memory as tensors at a time
PCA_ROWS = 20_000  # to fit principal components to, at most
INCREMENTAL_ROWS = 8 * 128  # as in the paper: eight batches

CODE_METHODS = ("lsh", "not centred", "gaussian rows", "pca-sign", "incremental pca-sign")
PRINCIPAL = ("pca-sign", "incremental pca-sign")  # at most as many bits as dimensions


def chunks(x: Any) -> Iterator[Tensor]:
    """Yield the rows of an array, which may be memory-mapped, normalised, float32 [CHUNK, dim] at a time."""
    for first in range(0, len(x), CHUNK):
        yield normalized_rows(x, slice(first, first + CHUNK))


def normalized_rows(x: Any, which: Any) -> Tensor:
    """Return some rows of a tensor or an array, normalised, float32."""
    rows = x[which].float() if isinstance(x, Tensor) else torch.from_numpy(np.array(x[which], np.float32))
    return torch.nn.functional.normalize(rows, dim=1)


def make_codes(method: str, x: Any, bits: int, seed: int = 0) -> Tensor:
    """Hash all rows, uint8 [n, bits / 8]; prefixes are valid shorter codes."""
    dim = x.shape[1]
    if method in PRINCIPAL:
        rows = PCA_ROWS if method == "pca-sign" else INCREMENTAL_ROWS
        encode = _principal(x, min(rows, len(x)), bits, seed)
    else:
        hasher = SignHasher(
            dim,
            bits,
            seed=seed,
            center=0.0 if method == "not centred" else CENTER,
            orthonormal=method != "gaussian rows",
        )
        if method != "not centred":
            for part in chunks(x):
                hasher.update_mean(part)
        encode = hasher.encode
    return torch.cat([encode(part) for part in chunks(x)])


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
