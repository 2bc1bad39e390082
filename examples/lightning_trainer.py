"""Hard negatives with Lightning's trainer: tell noisy copies of many points apart.

Two noisy copies of each of 1,500 points, which lie in clusters, are each other's positives. Prints how hard random and
mined batches are: the cosine of the hardest negative in the batch, averaged over an epoch.

Run with: python examples/lightning_trainer.py
"""

import logging
from typing import Any

import lightning.pytorch as pl
import torch
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

from lookalike import LSHBatchSampler, RandomBatchSampler
from lookalike.integrations.lightning import HardNegatives
from lookalike.samplers import EpochBatchSampler

POINTS, DIM = 1500, 32


def noisy_points() -> TensorDataset:
    """Return samples with their ids; samples 2 i and 2 i + 1 are copies of point i."""
    torch.manual_seed(0)
    clusters = torch.randn(60, DIM)
    points = clusters[torch.randint(60, (POINTS,))] + 0.5 * torch.randn(POINTS, DIM)
    copies = points.repeat_interleave(2, dim=0) + 0.2 * torch.randn(2 * POINTS, DIM)
    return TensorDataset(torch.arange(2 * POINTS), copies)


class Encoder(pl.LightningModule):  # type: ignore[misc]
    """A small network that notes how hard its batches were."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(DIM, 64), torch.nn.ReLU(), torch.nn.Linear(64, DIM))
        self.hardness: list[list[float]] = []

    def embedding_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:  # noqa: ARG002 - like all steps
        """Embed a batch; the callback passes all samples through this before the first epoch."""
        ids, x = batch
        return {"ids": ids, "embeddings": normalize(self.layers(x), dim=1)}

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Compute InfoNCE between the two copies of each point."""
        if batch_idx == 0:
            self.hardness.append([])
        found = self.embedding_step(batch, batch_idx)
        z = found["embeddings"]
        scores = z[::2] @ z[1::2].T  # anchor, positive, anchor, positive, ...
        self.hardness[-1].append(float(scores.detach().clone().fill_diagonal_(-1).max(1).values.mean()))
        loss = cross_entropy(scores / 0.1, torch.arange(len(scores)))
        return {"loss": loss, **found}  # what the callback observes

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def train(sampler: EpochBatchSampler) -> list[float]:
    """Train, and return how hard the batches of each epoch were."""
    module, loader = Encoder(), DataLoader(noisy_points(), batch_sampler=sampler)
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        callbacks=[HardNegatives(sampler)],
    )
    trainer.fit(module, loader)
    return [sum(epoch) / len(epoch) for epoch in module.hardness]


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    labels = torch.arange(2 * POINTS) // 2
    print("cosine of the hardest negative in the batch, by epoch:")
    for name, sampler in (("random", RandomBatchSampler(labels, 64)), ("mined", LSHBatchSampler(labels, 64, bits=256))):
        print(f"{name:8}" + "  ".join(f"{value:.3f}" for value in train(sampler)))
