"""Small things to train on and with."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from lookalike.data.retrieval import RetrievalData


@dataclass(frozen=True)
class ToyPart:
    """Noisy copies of class centres; the test part needs neither seeds nor pairs."""

    x: torch.Tensor
    labels: torch.Tensor
    pairs: int | None = None
    prefetch = True
    draws_by_batch = True
    num_negatives = 0
    in_itself = False

    def queries(self, ids, seed=0):
        return self.x[ids] + 0.3 * torch.randn(len(ids), 8, generator=torch.Generator().manual_seed(seed))

    def references(self, ids, seed=0):
        return self.x[ids]

    def plain(self, tower, ids):
        return self.x[ids]

    @property
    def query_labels(self):
        return self.labels

    reference_labels = query_labels

    def to(self, device):
        return self


def toy_data(*, paired=False, classes=30):
    torch.manual_seed(5)
    per_class = 1 if paired else 4
    labels = torch.arange(classes).repeat_interleave(per_class)
    centres = torch.randn(classes, 8)
    train = centres[labels] + 0.2 * torch.randn(len(labels), 8)
    return RetrievalData(
        name="toys",
        description="toys",
        checksum=f"{classes}-{paired}",
        train=ToyPart(train, labels, len(labels) if paired else None),
        test=ToyPart(torch.randn(20, 8), torch.arange(20)),
    )


def toy_model(seed=0):
    """Has running statistics and randomness of its own, which a checkpoint must not forget."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 16))


def write_glyph_file(path, classes=40, faces=3):
    """A file of random pictures in the format of `load_glyphs`."""
    rng = np.random.default_rng(0)
    shapes = rng.integers(0, 256, (classes, 1, 512), dtype=np.uint8)
    packed = np.where(rng.random((classes, faces, 512)) < 0.9, shapes, 0).astype(np.uint8)
    np.savez(
        path,
        packed=packed.reshape(-1, 512),
        codepoint=np.repeat(np.arange(100, 100 + classes), faces),
        face=np.tile(np.arange(faces), classes),
        faces=[f"face {i}" for i in range(faces)],
    )
    return path
