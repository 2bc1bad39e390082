"""The principal components, rotations and levels that a `ScalarHasher` encodes with, chosen from statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lookalike.hashing.levels import normal_levels, share_out
from lookalike.hashing.moments import directions
from lookalike.hashing.scheme import (
    FACTOR_ONE,
    FACTORS_SHIFT,
    HEADER,
    LARGEST_FACTOR,
    MOST_ZOOM,
    ONE,
    PRODUCTS,
    Scheme,
    digest,
)
from lookalike.hashing.signs import pack_bits

if TYPE_CHECKING:
    from lookalike.hashing.moments import Spectrum

HIGHEST = 127  # the largest level
MIDDLE = 127.5  # of a byte
FACTOR_STEPS = MIDDLE / math.log2(LARGEST_FACTOR / FACTOR_ONE)  # of the factor's byte, in which a factor doubles
OFFSET_RANGE = 3.5  # standard deviations of the offset that most values of its byte divide evenly, to either side
FAR_OFFSETS = 16  # values on either side that reach farther, in growing steps
LARGEST_SHIFT = 30
SMALLEST_OFFSET = 1e-9
CROWDED = 1 / 16  # average of one minus the cosine of two rows, below which distances are counted in finer steps
DECODING_GRID = 2.0**-30  # of components that levels are multiplied by: sums of 7 + 30 bits stay below float64's 53
ENCODING_GRID = 2.0**-26  # of directions and components, whose products have 52 bits; no sum of them exceeds 1


@dataclass(frozen=True, eq=False)
class Encoder:
    """What encodes under a scheme."""

    rows: Tensor  # float32 [dims, dim]: principal components, rotated within a group
    start: Tensor  # float32 [dims]: what the mean projects to
    mean: Tensor  # float32 [dim]
    thresholds: tuple[Tensor, ...]  # float32 [levels - 1], per group
    unit: float  # what a level of 1 stands for
    reach: tuple[float, float, float]  # of the offset's byte: in even steps, in all towards the mean, and away from it

    def to(self, device: torch.device) -> Encoder:
        """Move to another device."""
        if self.rows.device == device:
            return self
        moved = {name: getattr(self, name).to(device) for name in ("rows", "start", "mean")}
        return replace(self, **moved, thresholds=tuple(each.to(device) for each in self.thresholds))

    @cached_property
    def steps(self) -> Tensor:
        """The offset of each value of its byte, float64 [256]; it moves once, because that waits for a GPU."""
        return _offsets(*self.reach).to(self.mean.device)

    def encode(self, x: Tensor, scheme: Scheme) -> tuple[Tensor, Tensor]:
        """Encode rows of any float dtype: packed codes, and bool [n], whether a row is finite.

        A code does not depend on the rows beside it: directions and components are rounded to `ENCODING_GRID`, so
        float64 holds every sum exactly. Otherwise the rounding of a product, which differs with the number of rows,
        would decide in directions that the data do not extend in, where every row lies on the middle threshold.
        """
        unit = _on_grid(directions(x), ENCODING_GRID)
        z = unit @ _on_grid(self.rows, ENCODING_GRID).T - self.start
        bits, values = [], []
        for (width, _, levels, place), thresholds in zip(scheme.fields(), self.thresholds, strict=True):
            number = torch.bucketize(z[:, place].contiguous(), thresholds.double(), out_int32=True)
            values.append(levels[number])
            shifts = torch.arange(width, dtype=torch.int32, device=x.device)
            bits.append(((number.unsqueeze(-1) >> shifts) & 1).flatten(1))
        lengths = torch.cat(values, 1).double().norm(dim=1).clamp(min=1) * self.unit
        factors = (MIDDLE + FACTOR_STEPS * torch.log2(z.norm(dim=1) / lengths)).nan_to_num(0).round().clamp(0, 255)
        mean = _on_grid(self.mean, ENCODING_GRID)
        middles = (self.steps[1:] + self.steps[:-1]) / 2
        offsets = torch.bucketize((unit @ mean - mean @ mean).nan_to_num(0), middles)
        header = torch.stack([factors, offsets], dim=1).to(torch.uint8)
        padding = scheme.bits - 8 * HEADER - sum(part.shape[1] for part in bits)
        bits.append(torch.zeros(len(x), padding, dtype=torch.int32, device=x.device))
        return torch.cat([header, pack_bits(torch.cat(bits, 1).bool())], 1), torch.isfinite(z).all(1)

    def decode(self, codes: Tensor, scheme: Scheme) -> Tensor:
        """Return the directions that packed codes stand for, float32 [n, dim]: the same ones in any company of rows.

        Levels are small integers and components are rounded to `DECODING_GRID`, so float64 holds every sum exactly, in
        whatever order a matrix product adds up.
        """
        integers = scheme.unpack(codes)
        values, rows = integers.values.double(), _on_grid(self.rows, DECODING_GRID)
        factors = integers.factors[:, None].double() * (self.unit / FACTOR_ONE)
        mean = self.mean.double()
        # The offset knows the part along the mean better than the rounded components do.
        along_mean = self.steps[codes[:, 1:2].int()]
        along_mean -= (values @ _on_grid(rows @ mean, DECODING_GRID)[:, None]) * factors
        decoded = (values @ rows) * factors + mean * (1 + along_mean / (mean @ mean).clamp(min=1e-12))
        return decoded.float()

    def state_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_state(cls, state: Any, scheme: Scheme, dim: int) -> Encoder:
        """Make the encoder that `state_dict` described.

        Raises:
            ValueError: The state is not one, or does not belong to the scheme.
        """
        try:
            encoder = cls(**{**state, "thresholds": tuple(state["thresholds"]), "reach": tuple(state["reach"])})
            shapes = {"rows": [scheme.dims, dim], "start": [scheme.dims], "mean": [dim]}
            valid = all(_is_float(getattr(encoder, name), shape) for name, shape in shapes.items())
            widths = [width for width, _ in scheme.groups]
            valid &= all(
                _is_float(each, [(1 << width) - 1]) for width, each in zip(widths, encoder.thresholds, strict=True)
            )
            valid &= all(isinstance(each, float) for each in (encoder.unit, *encoder.reach)) and len(encoder.reach) == 3
        except (KeyError, TypeError, ValueError):
            valid = False
        if not valid:
            raise ValueError("this is not the state of a hasher: it is damaged or from another version.")
        return encoder


def fitted(spectrum: Spectrum, bits: int, seed: int) -> tuple[Scheme, Encoder]:
    """Choose components and levels for codes of some length."""
    widths = torch.from_numpy(share_out(spectrum.variances.numpy(), bits - 8 * HEADER))
    groups, rows, spreads = [], [], []
    for width in range(int(widths.max()), 0, -1):
        members = (widths == width).nonzero().flatten()
        if len(members):
            groups.append((width, len(members)))
            rows.append(_rotation(len(members), seed, width) @ spectrum.components[members])
            spreads.append(math.sqrt(float(spectrum.variances[members].mean())))
    mean = spectrum.mean
    zoom = _zoom(1 - float(mean @ mean))
    shift = _largest_shift(groups, spreads, zoom)
    unit = _unit(shift, zoom)
    levels = [_levels(width, spread / unit) for (width, _), spread in zip(groups, spreads, strict=True)]
    along_mean = math.sqrt(max(0.0, float(mean @ spectrum.covariance @ mean)))
    # The offset of a row is half of what its squared distance from the mean falls short of the average. It reaches as
    # far as levels and factor do: a row of which only one of them is cut would seem nearer than near, and models spread
    # out as they learn.
    least, most = _extent(groups, spreads)
    even = max(OFFSET_RANGE * along_mean, SMALLEST_OFFSET)
    reach = even, max(even, (1 - float(mean @ mean) - least) / 2), max(even, most / 2)
    offsets = _offsets(*reach) + float(mean @ mean - 1) / 2
    factors = torch.exp2((torch.arange(256, dtype=torch.float32) - MIDDLE) / FACTOR_STEPS) * FACTOR_ONE
    projections = torch.cat(rows).float()
    thresholds = tuple(
        torch.from_numpy(normal_levels(width).thresholds * spread).float()
        for (width, _), spread in zip(groups, spreads, strict=True)
    )
    encoder = Encoder(projections, projections @ mean.float(), mean.float(), thresholds, unit, reach)
    tables = torch.cat(levels), factors.round().int(), (offsets * (ONE << zoom) + ONE / 2).round().int()
    tensors = encoder.rows, encoder.start, encoder.mean, *thresholds
    identity = digest(bits, groups, shift, zoom, reach, *tables, *tensors)
    return Scheme(bits, tuple(groups), *tables, shift, identity, zoom), encoder


def _on_grid(x: Tensor, grid: float) -> Tensor:
    """Round to multiples of `grid`, float64."""
    return (x.double() / grid).round() * grid


def _is_float(table: Any, shape: list[int]) -> bool:
    return isinstance(table, Tensor) and table.dtype == torch.float32 and list(table.shape) == shape


def _rotation(size: int, seed: int, width: int) -> Tensor:
    """Draw a Haar-random rotation, float64 [size, size]."""
    gaussian = torch.from_numpy(np.random.default_rng([seed, width, size]).standard_normal((size, size)))
    q, r = torch.linalg.qr(gaussian)
    rotation: Tensor = (q * r.diagonal().sign()).T
    return rotation


def _extent(groups: list[tuple[int, int]], spreads: list[float]) -> tuple[float, float]:
    """Return the smallest and the largest squared length of what levels and a factor can stand for."""
    ends = [0.0, 0.0]
    for (width, count), spread in zip(groups, spreads, strict=True):
        values = normal_levels(width).values[1 << (width - 1) :] * spread
        ends[0] += count * float(values[0] * FACTOR_ONE / LARGEST_FACTOR) ** 2
        ends[1] += count * float(values[-1] * LARGEST_FACTOR / FACTOR_ONE) ** 2
    return ends[0], ends[1]


def _offsets(even: float, towards: float, away: float) -> Tensor:
    """Return the offset of each value of its byte, float64 [256], ascending: even steps in the middle, then growing."""
    number = 128 - FAR_OFFSETS
    step, farther = even / number, torch.arange(1, FAR_OFFSETS + 1).double()
    steps = (torch.arange(number).double() + 0.5) * step
    high, low = (even * (far / even) ** (farther / FAR_OFFSETS) + farther * step for far in (towards, away))
    return torch.cat([-low.flip(0), -steps.flip(0), steps, high])


def _zoom(spread: float) -> int:
    """Return how often to halve the steps of distances, given the average of one minus the cosine of two rows.

    Embeddings of untrained models, and of some trained ones, have cosines of .99 and more throughout; in steps of
    1 / 16384 they would hardly differ. As long as the average stays below 1 / 16, no distance that matters is cut.
    """
    return min(MOST_ZOOM, max(0, math.floor(math.log2(CROWDED / max(spread, 1e-12)))))


def _unit(shift: int, zoom: int) -> float:
    """Return what a level of 1 stands for, so that `Scheme.distances` counts in 1 / (16384 << zoom)."""
    one = (FACTOR_ONE * FACTOR_ONE) >> FACTORS_SHIFT
    return math.sqrt(one / (ONE << zoom) / (1 << shift))


def _levels(width: int, spread: float) -> Tensor:
    """Return the levels of a group whose standard deviation is `spread`, int8."""
    return torch.from_numpy(np.rint(normal_levels(width).values * spread)).to(torch.int8)


def _largest_shift(groups: list[tuple[int, int]], spreads: list[float], zoom: int) -> int:
    """Return the largest shift, and thus the finest unit, at which levels fit into a byte and products into `PRODUCTS`.

    There is one: the variances of directions add up to at most 1. Where one component has nearly all of it, the unit is
    too coarse for the others.
    """

    def fits(shift: int) -> bool:
        unit = _unit(shift, zoom)
        tops = [
            round(float(normal_levels(width).values[-1]) * spread / unit)
            for (width, _), spread in zip(groups, spreads, strict=True)
        ]
        products = sum(count * top**2 for (_, count), top in zip(groups, tops, strict=True))
        return max(tops) <= HIGHEST and products <= PRODUCTS

    return next(shift for shift in range(LARGEST_SHIFT, -1, -1) if fits(shift))
