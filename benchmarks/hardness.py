"""How hard should batches be? Training the same network with every way to compose them, over several seeds.

    python -m benchmarks.hardness GLYPHS.npz

The task is reading scans: the query is a degraded character, the reference a clean one in another typeface, and half
of the characters are held out for the test. GLYPHS.npz holds 32 x 32 images of 4 bits, `packed` uint8 [n, 512] with the
high nibble first, and the `codepoint` of each; rendering one's own fonts gives such a file. A GPU is advisable.
"""

import math
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
import typer
from torch import Tensor, nn

from benchmarks import record
from lookalike import LSHBatchSampler, RandomBatchSampler

BATCH = 256  # samples: 128 pairs
DIM = 256
CONTENDERS: dict[str, dict[str, Any] | None] = {
    "random": None,
    "sample4geo": {"method": "sample4geo"},
    "growth, 1 cluster": {},
    "growth, 4 clusters": {"clusters": 4},
}


class Encoder(nn.Module):
    """A small convolutional network for 32 x 32 images."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 1
        for stage in range(4):
            out = width * 2**stage
            layers += [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            layers += [nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
            channels = out
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels * 4, DIM)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images: Tensor) -> Tensor:
        """Unit vectors, float32 [n, DIM]."""
        return F.normalize(self.head(self.features(images).flatten(1)).float(), dim=1)


def degraded(images: Tensor, generator: torch.Generator) -> Tensor:
    """A bad scan: turned and scaled a little, 12 x 12 pixels, noise, a square erased."""
    n, device = len(images), images.device

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, device=device, generator=generator)

    angle, scale = uniform(-0.2, 0.2, n), uniform(0.9, 1.2, n)
    cos, sin = scale * angle.cos(), scale * angle.sin()
    shift = uniform(-0.1, 0.1, n, 2)
    theta = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    images = F.grid_sample(images, F.affine_grid(theta, list(images.shape), align_corners=False), align_corners=False)
    images = F.interpolate(F.interpolate(images, size=12, mode="area"), size=32, mode="bilinear", align_corners=False)
    images = images + 0.15 * torch.randn(images.shape, device=device, generator=generator)
    corner = uniform(0, 24, n, 2)
    grid = torch.arange(32, device=device)
    inside = [(grid >= corner[:, i, None]) & (grid < corner[:, i, None] + 8) for i in range(2)]
    return images.masked_fill((inside[0][:, :, None] & inside[1][:, None, :])[:, None], 0.0)


def main(
    data: Annotated[Path, typer.Argument(help="The glyphs.")],
    seeds: Annotated[int, typer.Option(help="Runs per contender.")] = 3,
    epochs: Annotated[int, typer.Option(help="Epochs per run.")] = 10,
    classes: Annotated[int, typer.Option(help="Use only so many characters; 0 for all.")] = 0,
    out: Annotated[str, typer.Option(help="Name of the result.")] = "hardness",
) -> None:
    """Train, print recall and write benchmarks/results/hardness.json."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(min(8, torch.get_num_threads()))  # threads that wait slow down those that launch kernels
    train, test = _load(data, classes, device)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for seed in range(seeds):
        for name, options in CONTENDERS.items():
            rows[name].append(_train(train, test, options, epochs, seed, device))
            print(seed, name, rows[name][-1], flush=True)
        settings = {
            "data": "CJK characters in up to 9 typefaces, half of the characters for training",
            "training_samples": len(train[1]),
            "training_classes": int(train[1].max()) + 1,
            "test_classes": int(test[1].max()) + 1,
            "batch_size": BATCH,
            "epochs": epochs,
            "seeds": seed + 1,
            "bits": 512,
            "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        }
        print("written:", record.write(out, {"settings": settings, "hardness": _summary(rows)}).name, flush=True)


def _summary(rows: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    summary = []
    for name, runs in rows.items():
        recall = np.array([run["recall_at_1"] for run in runs])
        summary.append(
            {
                "contender": name,
                "recall_at_1": round(float(recall.mean()), 4),
                "standard_deviation": round(float(recall.std(ddof=1)), 4) if len(runs) > 1 else None,
                "runs": runs,
            }
        )
    return summary


def _load(path: Path, classes: int, device: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Images, float16 [n, 1, 32, 32] on the device, and labels: every other character to train, the rest to test."""
    file = np.load(path)
    _, label = np.unique(file["codepoint"], return_inverse=True)
    packed = file["packed"]
    if classes:
        packed, label = packed[label < classes], label[label < classes]
    nibbles = np.stack([packed >> 4, packed & 15], axis=2).reshape(-1, 1, 32, 32)
    images = torch.from_numpy(nibbles).to(device, torch.float16) / 15
    parts = []
    for odd in (0, 1):
        chosen = torch.from_numpy(np.flatnonzero(label % 2 == odd))
        parts.append((images[chosen.to(device)], torch.from_numpy(label)[chosen] // 2))
    return parts[0], parts[1]


def _train(
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    options: dict[str, Any] | None,
    epochs: int,
    seed: int,
    device: str,
) -> dict[str, float]:
    torch.manual_seed(seed)
    images, labels = train
    model = Encoder().to(device)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    if options is None:
        sampler: Any = RandomBatchSampler(labels, BATCH, seed=seed)
    else:
        sampler = LSHBatchSampler(labels, BATCH, bits=512, seed=seed, **options)
    steps = epochs * len(sampler)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps, pct_start=0.1)
    generator = torch.Generator(device).manual_seed(seed)
    mining, start, loss = 0.0, time.perf_counter(), torch.zeros(())
    for _ in range(epochs):
        model.train()
        began = time.perf_counter()
        batches = iter(sampler)
        mining += time.perf_counter() - began
        for ids in batches:
            index = torch.tensor(ids, device=device)
            chosen = images[index].float()
            query, reference = degraded(chosen[::2], generator), chosen[1::2]
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                z = model(torch.cat([query, reference]))
            q, r = z.chunk(2)
            if options is not None:
                sampler.observe(ids, torch.stack([q, r], dim=1).flatten(0, 1))
            logits = q @ r.T * model.log_scale.exp().clamp(max=100)
            target = torch.arange(len(q), device=device)
            losses = [F.cross_entropy(each, target, label_smoothing=0.1) for each in (logits, logits.T)]
            loss = (losses[0] + losses[1]) / 2
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    recall = _recall(model, test, device)
    seconds = time.perf_counter() - start
    return {
        "recall_at_1": round(recall, 4),
        "last_loss": round(float(loss.detach()), 4),
        "seconds": round(seconds, 2),
        "mining_seconds": round(mining, 2),
    }


@torch.no_grad()
def _recall(model: Encoder, test: tuple[Tensor, Tensor], device: str) -> float:
    """Share of degraded characters whose nearest clean one, of the first typeface, is the same character."""
    model.eval()
    images, labels = test
    first = torch.from_numpy(np.unique(labels.numpy(), return_index=True)[1])
    is_query = torch.ones(len(labels), dtype=torch.bool)
    is_query[first] = False
    queries = is_query.nonzero().flatten()
    generator = torch.Generator(device).manual_seed(12345)
    gallery = torch.cat([model(images[part.to(device)].float()) for part in torch.split(first, 2048)])
    hits = 0
    for part in torch.split(queries, 2048):
        z = model(degraded(images[part.to(device)].float(), generator))
        found = (z @ gallery.T).argmax(1).cpu()
        hits += int((labels[first][found] == labels[part]).sum())
    return hits / len(queries)


if __name__ == "__main__":
    typer.run(main)
