"""Sign codes: rotate, centre, keep the signs, pack them; and the cosines that they imply."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from lookalike.utils.checks import Range, checked_bits, checked_integer, checked_positive
from lookalike.utils.tensors import as_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

CENTER = 1.0  # fraction of the mean to subtract in training, as in the paper; mining has its own, see docs/mining.md
TILE_ELEMENTS = 1 << 20  # projections in memory at a time: 2 MiB, which stay in a cache
DEVICE_TILE_ELEMENTS = 1 << 25  # the same on a GPU, where small tiles would cost more launches than work
SUMMED = 1024  # rows converted at a time


class SignHasher(nn.Module):
    """Hash embeddings to sign codes under a random rotation (locality-sensitive hashing for cosine similarity).

    Bit j of the code of x is set where `rows[j] @ x >= center * rows[j] @ mean`. Two embeddings agree in a bit with
    probability 1 - angle / pi, where the angle is measured from `center * mean`.

    Codes are nested: with the same seed, the first b bits of a longer code are the b-bit code.

    The hasher does not normalise. Where similarity means cosine, pass normalised embeddings, or the longest ones
    dominate the mean.

    Args:
        dim: Dimension of the embeddings.
        bits: Length of the codes, a multiple of 8. Beyond `dim`, further independent rotations are stacked.
        seed: Seed of the rotation.
        center: Fraction of the running mean to subtract: 1 as in the paper, 0 for none. Batches are composed with 1;
            mining, which is after the nearest by cosine, takes 0.5, or 0 where scores are read from the codes.
        orthonormal: Use orthonormal rows (a Haar-random rotation) rather than independent Gaussian ones.

    Raises:
        ValueError: `bits` is not a positive multiple of 8, `dim` is not positive or `center` is not in [0, 1].

    Examples:
        >>> import torch
        >>> hasher = SignHasher(dim=32, bits=64)
        >>> x = torch.nn.functional.normalize(torch.randn(100, 32), dim=1)
        >>> hasher.update_mean(x)
        >>> codes = hasher.encode(x)
        >>> codes.shape, codes.dtype
        (torch.Size([100, 8]), torch.uint8)
    """

    rows: Tensor  # float32 [bits, dim]
    mean: Tensor  # float64 [dim], of the embeddings seen
    count: Tensor  # int64 []

    def __init__(self, dim: int, bits: int, *, seed: int = 0, center: float = CENTER, orthonormal: bool = True) -> None:
        super().__init__()
        self.dim, self.bits = checked_positive("dim", dim), checked_bits(bits)
        self.seed, self.orthonormal = checked_integer("seed", seed), orthonormal
        self.center = Range(0, 1, with_high=True).check("center", center)
        blocks = [_random_rows(self.dim, self.seed, i, orthonormal) for i in range(math.ceil(self.bits / self.dim))]
        self.register_buffer("rows", torch.cat(blocks)[: self.bits].float())
        self.register_buffer("mean", torch.zeros(self.dim, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @property
    def projected_mean(self) -> Tensor:
        """The running mean of the projections, float64 `[bits]`, which is the projection of the mean."""
        return self.rows.double() @ self.mean

    @torch.no_grad()
    def update_mean(self, x: Tensor) -> None:
        """Add embeddings `[n, dim]` to the running mean.

        Raises:
            TypeError: The embeddings are not floats.
            ValueError: The shape is wrong or a value is not finite.
        """
        x = self._checked(x)
        if len(x) == 0:
            return
        batch_mean = column_sums(x) / len(x)
        if not bool(torch.isfinite(batch_mean).all()):
            refuse_non_finite(x)
        self.count += len(x)
        self.mean += (batch_mean - self.mean) * (len(x) / self.count.double())

    @torch.no_grad()
    def set_mean(self, mean: Tensor, count: int | Tensor) -> None:
        """Replace the running mean, for callers that keep their own sums; does not wait for the device.

        Args:
            mean: The mean embedding, floats `[dim]`.
            count: How many embeddings it is the mean of: how much it weighs in later calls of `update_mean`.

        Raises:
            ValueError: The shape is wrong.

        Examples:
            >>> import torch
            >>> hasher = SignHasher(dim=2, bits=8)
            >>> hasher.set_mean(torch.tensor([1.0, 3.0]), count=1)
            >>> hasher.update_mean(torch.tensor([[3.0, 5.0]]))
            >>> hasher.mean.tolist(), int(hasher.count)
            ([2.0, 4.0], 2)
        """
        if list(mean.shape) != [self.dim]:
            raise ValueError(f"mean must have the shape [{self.dim}], got {list(mean.shape)}.")
        self.mean.copy_(mean, non_blocking=self.mean.is_cuda)
        if isinstance(count, Tensor):
            self.count.copy_(count, non_blocking=self.count.is_cuda)
        else:
            self.count.fill_(count)

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        """Hash embeddings `[n, dim]` of any float dtype and device: uint8 `[n, bits / 8]`, on the same device.

        Bits are packed like `numpy.packbits(bitorder="little")`. Half precision is projected in float32.

        Raises:
            TypeError: The embeddings are not floats.
            ValueError: The shape is wrong or a value is not finite.
        """
        x = self._checked(x)
        codes, finite = self.encode_flagged(x)
        if not bool(finite.all()):
            refuse_non_finite(x)
        return codes

    @torch.no_grad()
    def encode_flagged(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Hash like `encode`, without waiting for the device: return codes and bool `[n]`, whether a row is finite.

        The code of a row that is not finite is meaningless.
        """
        x = self._checked(x)
        precision = torch.float64 if x.dtype == torch.float64 else torch.float32
        codes = torch.empty(len(x), self.bits // 8, dtype=torch.uint8, device=x.device)
        finite = torch.empty(len(x), dtype=torch.bool, device=x.device)
        tile = max(1, (TILE_ELEMENTS if x.device.type == "cpu" else DEVICE_TILE_ELEMENTS) // self.bits)
        with torch.autocast(x.device.type, enabled=False):
            rows = self.rows.to(precision)
            thresholds = self.center * (rows @ self.mean.to(precision))
            columns = rows.T.contiguous()  # a product by a transposed matrix takes longer
            room = torch.empty(min(tile, len(x)), self.bits, dtype=precision, device=x.device)
            for start in range(0, len(x), tile):
                part = slice(start, start + tile)
                projections = torch.mm(x[part].to(precision), columns, out=room[: len(x[part])])
                codes[part] = pack_bits(projections >= thresholds)
                finite[part] = torch.isfinite(projections[:, 0])  # any NaN or infinity of a row spreads to it
        return codes, finite

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: ARG002 - the signature is torch's
        # Moves between devices only: rows rounded to half precision would give other codes.
        device = fn(self.count).device
        for name, buffer in self.named_buffers(recurse=False):
            setattr(self, name, buffer.to(device))
        return self

    def extra_repr(self) -> str:
        """Describe the module within `repr`."""
        return (
            f"dim={self.dim}, bits={self.bits}, seed={self.seed}, center={self.center}, orthonormal={self.orthonormal}"
        )

    def _checked(self, embeddings: Any) -> Tensor:
        x = as_tensor(embeddings, "embeddings", "floats")
        if not x.is_floating_point():
            raise TypeError(f"embeddings must be floats, got {x.dtype}.")
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(
                f"embeddings must have the shape [n, {self.dim}], because dim={self.dim}, got {list(x.shape)}."
            )
        if x.device != self.rows.device:
            self.to(x.device)
        return x.detach()


def _random_rows(dim: int, seed: int, block: int, orthonormal: bool) -> Tensor:
    """Draw a block of `dim` rows, always whole, so that rows for fewer bits are a prefix of those for more."""
    gaussian = torch.from_numpy(np.random.default_rng([seed, block]).standard_normal((dim, dim)))
    if not orthonormal:
        return gaussian
    q, r = torch.linalg.qr(gaussian)
    # QR is unique only up to signs; fixing those of R's diagonal makes Q uniform over all rotations (Mezzadri 2007).
    rows: Tensor = (q * r.diagonal().sign()).T
    return rows


def column_sums(x: Tensor) -> Tensor:
    """Sum rows [n, dim] of any float dtype in float64."""
    if x.device.type != "cpu":
        return x.sum(0, dtype=torch.float64)
    # Converted while in a cache: a sum with another dtype converts one number at a time, which takes ten times as long.
    return torch.stack([part.double().sum(0) for part in torch.split(x, SUMMED)]).sum(0)


def pack_bits(bits: Tensor) -> Tensor:
    """Pack bool [n, bits] into uint8 [n, bits / 8], the first bit lowest."""
    if bits.device.type == "cpu":
        return torch.from_numpy(np.packbits(bits.numpy(), axis=1, bitorder="little"))
    return _pack_by_products(bits)


def unpack_bits(codes: Tensor) -> Tensor:
    """Unpack uint8 [n, bytes] into zeros and ones, uint8 [n, 8 bytes], the lowest bit first."""
    shifts = torch.arange(8, dtype=torch.uint8, device=codes.device)
    return ((codes.unsqueeze(-1) >> shifts) & 1).flatten(1)


def _pack_by_products(bits: Tensor) -> Tensor:
    """Pack with one product per byte: eight bools are an int64, and the product moves bit 8 i of it to bit 56 + i."""
    eights = bits.contiguous().view(torch.int64)  # [n, bits / 8]
    return (eights * 0x0102040810204080 >> 56).to(torch.uint8)


def refuse_non_finite(x: Tensor) -> None:
    """Raise the error that says which row is not finite."""
    bad = ~torch.isfinite(x).all(dim=1)
    if not bool(bad.any()):
        raise ValueError(
            f"embeddings are finite but too large to be summed (up to {float(x.abs().max()):.3g}); scale them down."
        )
    raise ValueError(
        f"embeddings must be finite, but row {int(bad.nonzero()[0])} holds NaN or infinity "
        f"({int(bad.sum())} of {len(x)} rows do); look for a diverging loss or a division by zero in the model."
    )


def implied_cosine(distances: Tensor, bits: int) -> Tensor:
    """Estimate cosines from Hamming distances: cos(pi * h / bits), float64. Centred codes imply centred cosines.

    Examples:
        >>> import torch
        >>> implied_cosine(torch.tensor([0, 64, 128]), bits=128).round(decimals=6).tolist()
        [1.0, 0.0, -1.0]
    """
    return torch.cos(distances.double() * (math.pi / checked_positive("bits", bits)))
