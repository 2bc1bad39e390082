"""Ways to make sign codes: the paper's, its two ablations, and the signs of principal components."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookalike.hashing import SignHasher

CHUNK = 1 << 14  # rows of the data in memory as tensors at a time
PCA_ROWS = 20_000  # that the components are fitted on, at most
INCREMENTAL_ROWS = 8 * 128  # as in the paper: eight batches

METHODS = ("lsh", "not centred", "gaussian rows", "pca-sign", "incremental pca-sign")
PRINCIPAL = ("pca-sign", "incremental pca-sign")  # no more bits than dimensions


def chunks(x: Any) -> Iterator[Tensor]:
    """The rows of an array, which may lie on disk, normalised, float32 [CHUNK, dim] at a time."""
    for first in range(0, len(x), CHUNK):
        yield rows_of(x, slice(first, first + CHUNK))


def rows_of(x: Any, which: Any) -> Tensor:
    """Some rows, normalised, float32."""
    rows = x[which].float() if isinstance(x, Tensor) else torch.from_numpy(np.array(x[which], np.float32))
    return torch.nn.functional.normalize(rows, dim=1)


def make_codes(method: str, x: Any, bits: int, seed: int = 0) -> Tensor:
    """Codes of all rows, uint8 [n, bits / 8]; prefixes are valid shorter codes."""
    dim = x.shape[1]
    if method in PRINCIPAL:
        rows = PCA_ROWS if method == "pca-sign" else INCREMENTAL_ROWS
        encode = _principal(x, min(rows, len(x)), bits, seed)
    else:
        hasher = SignHasher(
            dim, bits, seed=seed, center=0.0 if method == "not centred" else 1.0, orthonormal=method != "gaussian rows"
        )
        if method != "not centred":
            for part in chunks(x):
                hasher.update_mean(part)
        encode = hasher.encode
    return torch.cat([encode(part) for part in chunks(x)])


def _principal(x: Any, rows: int, bits: int, seed: int) -> Callable[[Tensor], Tensor]:
    """Signs of the first principal components of a random sample."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(x), generator=generator)[:rows].sort().values
    sample = rows_of(x, chosen.numpy()).double()
    mean = sample.mean(0)
    _, vectors = torch.linalg.eigh((sample - mean).T @ (sample - mean))  # ascending
    components = vectors.flip(1)[:, :bits].T.float()
    threshold = components @ mean.float()
    weights = (1 << torch.arange(8)).to(torch.int32)

    def encode(part: Tensor) -> Tensor:
        signs = part @ components.T >= threshold
        packed: Tensor = (signs.view(len(part), -1, 8) * weights).sum(2).to(torch.uint8)
        return packed

    return encode
