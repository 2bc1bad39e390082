"""Augment images as in the paper: flips, rotations, coarse and grid dropout, colour jitter, in plain torch.

The outcome depends on the seed, the image's id and its tower alone, not on its batch or on the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from lookalike.utils.splitmix import STEP, splitmix64

if TYPE_CHECKING:
    from lookalike.utils.arrays import Array

HOLES = (10, 25)  # coarse dropout: fewest and most holes per image
HOLE = (0.1, 0.2)  # their sides, as fractions of the image's shorter side
GRID = 10  # grid dropout: units along the shorter side
GRID_RATIO = 0.4  # side of a hole, as a fraction of its unit
TO_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
PAIR, QUERY, REFERENCE = range(3)  # streams of random numbers


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random changes of the images of a batch; an `Augment`.

    With `cross_view`, the query is a panorama and the reference a square aerial image of the same place with the same
    heading. Both are mirrored or neither is, and if the aerial image turns by quarters, the panorama rolls by quarters
    of its width. Otherwise every image is mirrored and rotated on its own.
    """

    cross_view: bool = False
    flip: float = 0.5
    """Fraction of images to mirror."""
    degrees: float = 15.0
    """Largest rotation. With `cross_view`, quarter turns instead, all equally likely; 0 for none."""
    jitter: float = 0.15
    """Largest relative change of brightness, contrast and saturation, and of the hue as a fraction of its circle."""
    jitter_share: float = 0.5
    """Fraction of images to jitter."""
    dropout_share: float = 0.3
    """Fraction of images to cut holes into: half of them coarse, half in a grid."""

    def __call__(self, images: Tensor, ids: Tensor, seed: int, tower: str) -> Tensor:
        """Augment images `[n, 3, height, width]`, uint8 or floats from 0 to 1."""
        numbers = ids.cpu().numpy()
        own = uniforms(seed, numbers, QUERY if tower == "query" else REFERENCE, 12 + 4 * HOLES[1])
        if self.cross_view:
            shared = uniforms(seed, numbers, PAIR, 2)
            images = flipped(images, shared[:, 0] < self.flip)
            quarters = (shared[:, 1] * 4).astype(np.int64) if self.degrees else np.zeros(len(numbers), np.int64)
            images = rolled(images, quarters) if tower == "query" else turned(images, quarters)
        else:
            images = flipped(images, own[:, 0] < self.flip)
            images = rotated(images, (2 * own[:, 1] - 1) * self.degrees) if self.degrees else images
        changed = own[:, 2] < self.jitter_share
        images = jittered(images, np.where(changed[:, None], (2 * own[:, 3:7] - 1) * self.jitter, 0.0))
        holes, is_grid = own[:, 7] < self.dropout_share, own[:, 8] < 0.5
        images = grid_dropout(images, holes & is_grid, own[:, 9:11])
        return coarse_dropout(images, holes & ~is_grid, own[:, 11:])


def uniforms(seed: int, ids: Array, stream: int, count: int) -> Array:
    """Draw numbers in [0, 1) that depend on the seed, the id and the stream alone, float64 `[n, count]`.

    Examples:
        >>> import numpy as np
        >>> both = uniforms(3, np.array([7, 9]), 0, 4)
        >>> bool((both[1:] == uniforms(3, np.array([9]), 0, 4)).all())
        True
    """
    key = np.array([seed % 2**64], np.uint64)
    for part in (np.array([stream], np.uint64), np.asarray(ids).astype(np.uint64)[:, None], np.arange(count)[None]):
        key = splitmix64(STEP * (key + splitmix64(STEP * (part.astype(np.uint64) + np.uint64(1)))))
    drawn: Array = (key >> np.uint64(11)).astype(np.float64) / 2**53
    return drawn


def flipped(images: Tensor, which: Array) -> Tensor:
    """Mirror some of the images, left to right."""
    return torch.where(_column(images, which)[:, None, None, None], images.flip(-1), images)


def turned(images: Tensor, quarters: Array) -> Tensor:
    """Turn square images counter-clockwise, each by its number of quarters."""
    if images.shape[-1] != images.shape[-2]:
        raise ValueError(f"only square images can be turned by quarters, got {list(images.shape[-2:])}.")
    images = images.clone()
    for number in (1, 2, 3):
        rows = _column(images, quarters == number)
        images[rows] = images[rows].rot90(number, (2, 3))
    return images


def rolled(images: Tensor, quarters: Array) -> Tensor:
    """Roll panoramas to the left, each by quarters of its width, as turning counter-clockwise does."""
    width = images.shape[-1]
    starts = _column(images, np.rint(quarters * width / 4).astype(np.int64))
    columns = (torch.arange(width, device=images.device) + starts[:, None]) % width  # [n, width]
    return images.gather(3, columns[:, None, None].expand(images.shape))


def rotated(images: Tensor, degrees: Array) -> Tensor:
    """Rotate images counter-clockwise about their centres, mirroring them at the border."""
    height, width = images.shape[-2:]
    angle = _column(images, np.deg2rad(degrees)).float()
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    affine = torch.stack([cos, -sin * height / width, zero, sin * width / height, cos, zero], dim=1).view(-1, 2, 3)
    grid = F.affine_grid(affine, list(images.shape), align_corners=False)
    floats = F.grid_sample(images.float(), grid, padding_mode="reflection", align_corners=False)
    return _like(images, floats)


def jittered(images: Tensor, changes: Array) -> Tensor:
    """Change brightness, contrast, saturation and hue by `[n, 4]`; rows of zeros change nothing."""
    rows = np.flatnonzero(changes.any(axis=1))
    if len(rows) == 0:
        return images
    places = _column(images, rows)
    brightness, contrast, saturation, hue = _column(images, changes[rows]).float().unbind(1)
    angle, scale, zero = 2 * math.pi * hue, 1 + saturation, torch.zeros_like(hue)
    cos, sin = scale * angle.cos(), scale * angle.sin()
    chroma = torch.stack([zero + 1, zero, zero, zero, cos, -sin, zero, sin, cos], dim=1).view(-1, 3, 3)
    yiq = torch.tensor(TO_YIQ, device=images.device)
    matrix = torch.linalg.inv(yiq) @ chroma @ yiq * (1 + brightness)[:, None, None]
    changed = torch.einsum("nij,njhw->nihw", matrix, images[places].float())
    grey = torch.einsum("j,njhw->n", yiq[0], changed) / changed[0, 0].numel()
    changed = torch.lerp(grey[:, None, None, None], changed, (1 + contrast)[:, None, None, None])
    return images.index_copy(0, places, _like(images, changed))


def grid_dropout(images: Tensor, which: Array, offsets: Array) -> Tensor:
    """Cut square black holes in a regular grid into some of the images; `offsets` `[n, 2]` in [0, 1) move the grid."""
    unit = max(2, min(images.shape[-2:]) // GRID)
    hole = max(1, round(GRID_RATIO * unit))
    starts = _column(images, (offsets * unit).astype(np.int64))
    inside = [
        (torch.arange(side, device=images.device) + starts[:, axis, None]) % unit < hole
        for axis, side in enumerate(images.shape[-2:])
    ]
    holes = inside[0][:, :, None] & inside[1][:, None, :] & _column(images, which)[:, None, None]
    return images.masked_fill(holes[:, None], 0)


def coarse_dropout(images: Tensor, which: Array, drawn: Array) -> Tensor:
    """Cut ten to twenty-five black rectangles into some of the images; `drawn` is `[n, 1 + 4 * 25]` in [0, 1)."""
    rows = np.flatnonzero(which)
    if len(rows) == 0:
        return images
    number = HOLES[0] + (drawn[rows, 0] * (HOLES[1] - HOLES[0] + 1)).astype(np.int64)
    boxes = drawn[rows, 1 : 1 + 4 * HOLES[1]].reshape(len(rows), HOLES[1], 2, 2)  # [n, holes, axis, side or place]
    sides = np.rint((HOLE[0] + boxes[..., 0] * (HOLE[1] - HOLE[0])) * min(images.shape[-2:]))
    firsts = np.floor(boxes[..., 1] * (np.array(images.shape[-2:]) - sides + 1))
    sides[np.arange(HOLES[1]) >= number[:, None]] = 0
    places = _column(images, rows)
    first, last = _column(images, firsts), _column(images, firsts + sides)
    axes = [torch.arange(side, device=images.device) for side in images.shape[-2:]]
    holes = torch.zeros((len(rows), *images.shape[-2:]), dtype=torch.bool, device=images.device)
    for i in range(HOLES[1]):
        inside = [(axis >= first[:, i, a, None]) & (axis < last[:, i, a, None]) for a, axis in enumerate(axes)]
        holes |= inside[0][:, :, None] & inside[1][:, None, :]
    return images.index_copy(0, places, images[places].masked_fill(holes[:, None], 0))


def _column(images: Tensor, values: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(images.device)


def _like(images: Tensor, floats: Tensor) -> Tensor:
    if images.dtype == torch.uint8:
        return floats.round().clamp(0, 255).byte()
    return floats.clamp(0, 1).to(images.dtype)
