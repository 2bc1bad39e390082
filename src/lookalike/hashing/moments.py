"""Running mean and covariance of the directions of embeddings, in one pass, and their principal components."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

ROWS = 4096  # added at a time: sums over so many are exact enough in float32, and so is the memory for their directions
FLOOR = 1e-12  # variance of one direction, at least: collapsed embeddings have components as well
SMALLEST = 1e-6  # variance of a component as a fraction of the average one, at least


class Spectrum(NamedTuple):
    """Principal components, on the CPU."""

    mean: Tensor  # float64 [dim]
    covariance: Tensor  # float64 [dim, dim]
    variances: Tensor  # float64 [dim], descending, positive
    components: Tensor  # float64 [dim, dim], one per row


class Moments:
    """The sum of normalised rows and of their outer products, in float64; those of several ranks add up.

    Args:
        dim: Dimension of the embeddings.
        device: Where they come from.

    Examples:
        >>> moments = Moments(2)
        >>> moments.add(torch.tensor([[3.0, 0.0], [0.0, 5.0]]))
        >>> moments.mean().tolist(), moments.count
        ([0.5, 0.5], 2)
    """

    def __init__(self, dim: int, device: torch.device | str = "cpu") -> None:
        self.dim = dim
        # One tensor, so that ranks exchange it at once: products [dim, dim], the sum [dim], and the number of rows.
        self.sums = torch.zeros(dim + 1, dim + 1, dtype=torch.float64, device=device)

    @classmethod
    def of(cls, sums: Tensor) -> Self:
        """Wrap sums, such as those of several ranks."""
        moments = cls(len(sums) - 1, sums.device)
        moments.sums = sums
        return moments

    @property
    def count(self) -> int:
        """Number of rows; waits for the device."""
        return int(self.sums[-1, -1])

    def add(self, x: Tensor, weights: Tensor | None = None) -> None:
        """Add rows `[n, dim]`; those whose weight is 0 do not count. Does not wait for the device."""
        if self.sums.device != x.device:
            self.sums = self.sums.to(x.device)
        with torch.autocast(x.device.type, enabled=False):
            for first in range(0, len(x), ROWS):
                counts = None if weights is None else weights[first : first + ROWS, None] > 0
                self._add_directions(directions(x[first : first + ROWS]), counts)

    def _add_directions(self, rows: Tensor, counts: Tensor | None) -> None:
        """Add normalised rows, all or those that count.

        What the rows have in common is set aside from the product, whose float32 would swallow how little embeddings
        of a model differ that all lie close together.
        """
        if counts is None:
            counts = torch.ones((), dtype=torch.bool, device=rows.device).expand(len(rows), 1)
        rows, number = rows.where(counts, 0), counts.sum()
        total = rows.sum(0, dtype=torch.float64)
        common = (total / number.clamp(min=1)).to(rows.dtype)
        rest = (rows - common).where(counts, 0)
        shared = common.double()
        both = total[:, None] * shared
        self.sums[:-1, :-1] += (rest.T @ rest).double() + both + both.T - number * shared[:, None] * shared
        self.sums[-1, :-1] += total
        self.sums[-1, -1] += number

    def mean(self) -> Tensor:
        """Return the mean direction, float64 [dim]."""
        return self.sums[-1, :-1] / self.sums[-1, -1].clamp(min=1)

    def covariance(self) -> Tensor:
        """Return the covariance of the directions, float64 [dim, dim]."""
        mean = self.mean()
        return self.sums[:-1, :-1] / self.sums[-1, -1].clamp(min=1) - mean[:, None] * mean

    def spectrum(self) -> Spectrum:
        """Compute the principal components; waits for the device.

        A few rows say little about directions that they do not span, so the covariance is pulled towards a sphere, as
        if `dim` rows came from one.
        """
        mean, covariance = self.mean().cpu(), self.covariance().cpu()
        trust = self.count / (self.count + self.dim)
        sphere = max(float(covariance.trace()) / self.dim, FLOOR)
        pulled = trust * covariance + (1 - trust) * sphere * torch.eye(self.dim, dtype=torch.float64)
        values, vectors = torch.linalg.eigh(pulled)  # ascending
        return Spectrum(mean, covariance, values.flip(0).clamp(min=SMALLEST * sphere), vectors.flip(1).T)


def directions(x: Tensor) -> Tensor:
    """Normalise rows of any float dtype and scale; float64 stays what it is, everything else becomes float32.

    Rows of zeros stay zero; those with NaN or infinity become NaN.
    """
    wide = (x if x.dtype == torch.float64 else x.float()).contiguous()  # sums depend on the layout
    largest = torch.linalg.vector_norm(wide, torch.inf, dim=1, keepdim=True)
    scaled = wide / largest.where(largest != 0, 1)  # squares of very large or small numbers would leave the range
    lengths = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    rows: Tensor = scaled / lengths.where(lengths != 0, 1)
    return rows


def checked_sums(sums: Any, dim: int) -> bool:
    """Return whether this could be the sums of `Moments(dim)`."""
    return isinstance(sums, Tensor) and sums.dtype == torch.float64 and list(sums.shape) == [dim + 1, dim + 1]
