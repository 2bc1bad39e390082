"""The task of reading scans: the query is a degraded glyph, the reference a clean one in another face.

Clean glyphs would be too easy to tell samplers apart. Half of the classes train, the other half test.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from lookalike.data.glyphs import SIDE, Glyphs, identical_shapes, load_glyphs
from lookalike.data.retrieval import RetrievalData
from lookalike.utils.machine import moved_if_it_fits

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.utils.arrays import Array

TURN = 0.2  # radians, at most
SCALE = (0.9, 1.2)
SHIFT = 0.1  # of half the side, at most
ERASED = 8  # pixels per side of the erased square
TEST_QUERIES = 2  # per class, at most
TEST_SEED = 20250531  # every run is tested on the same scans


@dataclass(frozen=True)
class Degradation:
    """How bad scans are: bad enough that random batches leave room for improvement, good enough to be readable."""

    resolution: int = 20  # pixels per side
    noise: float = 0.1  # standard deviation; ink is 1


READABLE = Degradation()
POOR = Degradation(resolution=12, noise=0.15)  # for characters of many strokes, which remain readable


def glyph_scans(
    path: str | Path | None = None,
    *,
    paired: bool = False,
    merge_identical: bool = True,
    degradation: Degradation = READABLE,
) -> RetrievalData:
    """Make the data set of scans of glyphs.

    Args:
        path: A file of glyphs, as `load_glyphs` reads it; by default the DejaVu glyphs.
        paired: Make one pair per code point, the query in its last face and the reference in its first, instead of
            labelled images in all faces.
        merge_identical: Give code points that look the same one label in training, where they would otherwise be false
            negatives. The test never asks to tell them apart.
        degradation: How bad the scans are.
    """
    glyphs = load_glyphs(path)
    names = class_of(glyphs, merge_identical=True)  # the test never asks to tell identical glyphs apart
    labels = names if merge_identical else glyphs.codepoints
    form = "paired" if paired else "labelled"
    first, last = _ends(glyphs.codepoints)
    images = torch.from_numpy(glyphs.images)
    train = is_training_class(names)
    if paired:
        chosen = train[first]
        query_ids, reference_ids = last[chosen], first[chosen]
        part = Scans(images, query_ids, reference_ids, _numbered(labels[reference_ids]), int(chosen.sum()), degradation)
    else:
        ids = np.flatnonzero(train)
        part = Scans(images, ids, ids, _numbered(labels[ids]), None, degradation)
    test_queries = last[~train[first]] if paired else _test_queries(first, last, train)
    test_references = _one_each(names, first[~train[first]])
    return RetrievalData(
        name=("glyphs-paired" if paired else "glyphs") if path is None else str(path),
        description=f"scans of glyphs, {form}: {len(part):,} {'pairs' if paired else 'images'} of "
        f"{len(np.unique(labels[train])):,} classes to train, {len(test_queries):,} queries among "
        f"{len(test_references):,} references of other classes to test",
        checksum=f"{glyphs.checksum}-{form}-{'merged' if merge_identical else 'apart'}-"
        f"{degradation.resolution}-{degradation.noise}",
        train=part,
        test=ScansTest(
            _degraded_once(images[test_queries], degradation),
            images[test_references],
            torch.from_numpy(names[test_queries].astype(np.int64)),
            torch.from_numpy(names[test_references].astype(np.int64)),
        ),
    )


def class_of(glyphs: Glyphs, *, merge_identical: bool) -> Array:
    """Return the class of each image, int32 `[n]`: its code point, or the smallest of those that look the same."""
    if not merge_identical:
        return glyphs.codepoints
    names = {codepoint: group[0] for group in identical_shapes(glyphs) for codepoint in group}
    unique, inverse = np.unique(glyphs.codepoints, return_inverse=True)
    named = np.array([names.get(int(codepoint), int(codepoint)) for codepoint in unique], np.int32)
    renamed: Array = named[inverse]
    return renamed


def is_training_class(names: Array) -> Array:
    """Return which classes train, bool, from the code points alone."""
    unique, inverse = np.unique(names, return_inverse=True)
    even = np.array([zlib.crc32(int(name).to_bytes(4, "little")) % 2 == 0 for name in unique])
    chosen: Array = even[inverse]
    return chosen


@dataclass(frozen=True)
class Scans:
    """A `TrainingPart` of glyphs in memory, on the GPU if there is one."""

    images: Tensor  # uint8 [all, 32, 32]
    query_ids: Array  # the image of each sample or pair as a query
    reference_ids: Array
    labels: Tensor
    pairs: int | None
    degradation: Degradation
    prefetch: ClassVar[bool] = False
    draws_by_batch: ClassVar[bool] = True
    num_negatives: ClassVar[int] = 0

    def __len__(self) -> int:
        """Return the number of samples or pairs."""
        return len(self.query_ids)

    def queries(self, ids: Tensor, seed: int) -> Tensor:
        """Return scans, float32 `[n, 1, 32, 32]`."""
        generator = torch.Generator(self.images.device).manual_seed(seed)
        return degraded(self.plain("query", ids), generator, self.degradation)

    def references(self, ids: Tensor, seed: int) -> Tensor:  # noqa: ARG002 - clean glyphs need no seed
        """Return clean glyphs, float32 `[n, 1, 32, 32]`."""
        return self.plain("reference", ids)

    def plain(self, tower: str, ids: Tensor) -> Tensor:
        """Return clean glyphs, float32 `[n, 1, 32, 32]`."""
        chosen = (self.query_ids if tower == "query" else self.reference_ids)[ids.numpy()]
        return as_input(self.images[torch.from_numpy(chosen).to(self.images.device)])

    def negatives(self, ids: Tensor, seed: int) -> Tensor:  # noqa: ARG002 - there are none
        """Return no glyphs, float32 `[0, 1, 32, 32]`."""
        return self.plain("reference", ids[:0])

    def item_numbers(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers of the glyphs, and of no negatives."""
        return torch.from_numpy(self.reference_ids[ids.numpy()]), torch.empty(len(ids), 0, dtype=torch.int64)

    def to(self, device: torch.device) -> Scans:
        """Return the same part with its images on the device, if they fit."""
        return replace(self, images=moved_if_it_fits(self.images, device))


@dataclass(frozen=True)
class ScansTest:
    """A `TestPart`: scans, searched for among clean glyphs."""

    scans: Tensor  # uint8 [q, 32, 32]
    clean: Tensor  # uint8 [r, 32, 32]
    query_labels: Tensor
    reference_labels: Tensor
    in_itself: ClassVar[bool] = False

    def queries(self, ids: Tensor) -> Tensor:
        """Return scans, float32 `[n, 1, 32, 32]`."""
        return self.scans[ids.to(self.scans.device)][:, None].float() / 255

    def references(self, ids: Tensor) -> Tensor:
        """Return clean glyphs, float32 `[n, 1, 32, 32]`."""
        return as_input(self.clean[ids.to(self.clean.device)])

    def to(self, device: torch.device) -> ScansTest:
        """Return the same part with its images on the device, if they fit."""
        return replace(self, scans=moved_if_it_fits(self.scans, device), clean=moved_if_it_fits(self.clean, device))


def as_input(images: Tensor) -> Tensor:
    """Scale images, uint8 `[n, 32, 32]` of 0 to 15, to float32 `[n, 1, 32, 32]` of 0 to 1."""
    return images[:, None].float() / 15


def degraded(images: Tensor, generator: torch.Generator, degradation: Degradation = READABLE) -> Tensor:
    """Degrade images `[n, 1, 32, 32]`: rotate, scale and shift them, lower resolution, add noise, erase a square."""
    n, device = len(images), images.device

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, device=device, generator=generator)

    angle, scale, shift = uniform(-TURN, TURN, n), uniform(*SCALE, n), uniform(-SHIFT, SHIFT, n, 2)
    cos, sin = scale * angle.cos(), scale * angle.sin()
    affine = torch.stack([cos, -sin, shift[:, 0], sin, cos, shift[:, 1]], dim=1).view(n, 2, 3)
    images = F.grid_sample(images, F.affine_grid(affine, list(images.shape), align_corners=False), align_corners=False)
    images = F.interpolate(F.interpolate(images, size=degradation.resolution, mode="area"), size=SIDE, mode="bilinear")
    images = images + degradation.noise * torch.randn(images.shape, device=device, generator=generator)
    corner = uniform(0, SIDE - ERASED, n, 2, 1)
    grid = torch.arange(SIDE, device=device)
    inside = (grid >= corner) & (grid < corner + ERASED)  # [n, 2, 32]
    return images.masked_fill((inside[:, 0, :, None] & inside[:, 1, None, :])[:, None], 0.0).clamp(0, 1)


def _degraded_once(images: Tensor, degradation: Degradation) -> Tensor:
    """Make the scans of the test, uint8 [n, 32, 32], the same on every device and in every run."""
    generator = torch.Generator().manual_seed(TEST_SEED)
    parts = [degraded(as_input(part), generator, degradation)[:, 0] for part in torch.split(images, 4096)]
    return (torch.cat(parts) * 255).round().byte()


def _ends(codepoints: Array) -> tuple[Array, Array]:
    """Return the first and the last image of every code point, which are its first and last face."""
    first = np.flatnonzero(np.diff(codepoints, prepend=-1))
    return first, np.append(first[1:], len(codepoints)) - 1


def _test_queries(first: Array, last: Array, train: Array) -> Array:
    """Choose images of every test code point, spread evenly over all faces but the first."""
    chosen = [
        np.unique(np.linspace(b, a + 1, min(TEST_QUERIES, b - a)).astype(np.int64))
        for a, b in zip(first, last, strict=True)
        if not train[a] and b > a
    ]
    return np.concatenate(chosen)


def _one_each(labels: Array, images: Array) -> Array:
    """Choose one image per class: others would look the same."""
    ones: Array = images[np.unique(labels[images], return_index=True)[1]]
    return ones


def _numbered(labels: Array) -> Tensor:
    return torch.from_numpy(np.unique(labels, return_inverse=True)[1].astype(np.int64))
