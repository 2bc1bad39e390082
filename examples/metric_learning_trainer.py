"""Hard negatives with pytorch-metric-learning: mined batches for its trainer, then a memory that is mined in bits.

Classes are 300 points in clusters, samples their noisy copies. Prints how hard random and mined batches are (the cosine
of the hardest negative in the batch, averaged over an epoch), and how many of the pairs that a cross-batch memory holds
are compared when it is mined.

Run with: python examples/metric_learning_trainer.py
"""

import logging

import torch
from pytorch_metric_learning.losses import ContrastiveLoss, NTXentLoss
from pytorch_metric_learning.trainers import MetricLossOnly
from torch.nn.functional import normalize
from torch.utils.data import TensorDataset

from lookalike import LSHBatchSampler, RandomBatchSampler
from lookalike.integrations.metric_learning import HammingMemory, HammingMiner, HardNegatives
from lookalike.samplers import EpochBatchSampler

CLASSES, COPIES, DIM = 300, 6, 32
LABELS = torch.arange(CLASSES).repeat_interleave(COPIES)


def noisy_points() -> TensorDataset:
    """Return six samples of each class."""
    torch.manual_seed(0)
    clusters = torch.randn(30, DIM)
    points = clusters[torch.randint(30, (CLASSES,))] + 0.5 * torch.randn(CLASSES, DIM)
    return TensorDataset(points[LABELS] + 0.2 * torch.randn(len(LABELS), DIM), LABELS)


def train(sampler: EpochBatchSampler) -> list[float]:
    """Train, and return how hard the batches of each epoch were."""
    torch.manual_seed(0)
    trunk = torch.nn.Sequential(torch.nn.Linear(DIM, 64), torch.nn.ReLU(), torch.nn.Linear(64, DIM))
    loss, hardness = NTXentLoss(temperature=0.1), []

    def measure(_: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        z, labels = normalize(arguments[0].detach(), dim=1), arguments[1]
        hardness.append(float((z @ z.T).masked_fill(labels[:, None] == labels, -1).max(1).values.mean()))

    loss.register_forward_pre_hook(measure)
    trainer = MetricLossOnly(
        models={"trunk": trunk},
        optimizers={"trunk_optimizer": torch.optim.Adam(trunk.parameters(), lr=1e-3)},
        batch_size=None,
        loss_funcs={"metric_loss": loss},
        dataset=noisy_points(),
        dataloader_num_workers=0,
        data_device=torch.device("cpu"),
    )
    HardNegatives(sampler).attach(trainer)
    trainer.train(num_epochs=3)
    return [sum(hardness[i : i + len(sampler)]) / len(sampler) for i in range(0, len(hardness), len(sampler))]


def compared_pairs() -> tuple[int, int]:
    """Count the negative pairs of a batch with a full memory: all of them, and those that a miner with k = 8 leaves."""
    x, labels = noisy_points().tensors
    memory = HammingMemory(ContrastiveLoss(), DIM, memory_size=1024, k=8, bits=256)
    for start in range(0, 1024, 64):
        memory(x[start : start + 64], labels[start : start + 64])
    batch = x[1024:1088], labels[1024:1088]
    *_, negatives = HammingMiner(k=8, bits=256)(*batch, memory.embedding_memory, memory.label_memory)
    return int((batch[1][:, None] != memory.label_memory).sum()), len(negatives)


if __name__ == "__main__":
    logging.getLogger("PML").setLevel(logging.ERROR)
    print("cosine of the hardest negative in the batch, by epoch:")
    for name, sampler in (("random", RandomBatchSampler(LABELS, 64)), ("mined", LSHBatchSampler(LABELS, 64, bits=256))):
        print(f"{name:8}" + "  ".join(f"{value:.3f}" for value in train(sampler)))
    everything, mined = compared_pairs()
    print(
        f"negatives of a batch in a memory of 1,024: {everything:,} pairs, of which {mined:,} are the hardest 8 of each"
    )
