"""Train on a batch of 4,096 pairs in one piece and in chunks: are the gradients equal, and what do chunks cost?

    python -m benchmarks.chunks [--device cuda] [--out FILE | --record]

Each size of a chunk runs in a process of its own, which reports the loss, the gradients, the time of a step and how far
its memory grew at its peak: that of the GPU, or of the process on a CPU.
"""

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from tyro.conf import arg

from benchmarks import record
from lookalike.losses import InfoNCE
from lookalike.training.encoders import make_encoder
from lookalike.training.step import Backward, Step
from lookalike.utils.machine import checked_device, machine

PAIRS, WIDTH, SIDE, STEPS = 4096, 64, 32, 3
CHUNKS = (None, 1024, 256, 64)


def main(
    device: Annotated[str | None, arg(help="Where; by default a GPU if there is one.")] = None,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure, compare with one piece, and write the result."""
    path = record.destination("chunks", out, committed)
    device = checked_device(device)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for chunk in CHUNKS:
            place = Path(folder) / f"{chunk}.pt"
            call = "import sys; from benchmarks.chunks import measure; measure(*sys.argv[1:])"
            repository = record.RESULTS.parents[1]  # where the child finds this module
            command = [sys.executable, "-c", call, device, str(chunk or PAIRS), str(place)]
            subprocess.run(command, check=True, cwd=repository)
            found = torch.load(place, weights_only=True)
            whole = found if chunk is None else torch.load(Path(folder) / "None.pt", weights_only=True)
            rows.append(
                {
                    "chunk": chunk,
                    "seconds": round(found["seconds"], 3),
                    "peak_megabytes": round(found["bytes"] / 1e6),
                    "loss": found["loss"],
                    "largest_difference_of_gradients": _difference(found["gradients"], whole["gradients"]),
                }
            )
            print(rows[-1], flush=True)
    settings = {"pairs": PAIRS, "encoder": "convnet", "width": WIDTH, "side": SIDE, "device": device}
    record.finish(path, {"machine": machine(device), "settings": settings, "chunks": rows})


def _difference(found: list[torch.Tensor], whole: list[torch.Tensor]) -> float:
    """Return the largest difference between two gradients of a parameter, relative to the norm of the gradient."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, whole, strict=True))


def measure(device: str, chunk: str, out: str) -> None:
    """Go forward and backward a few times with chunks of one size; save what that took and found."""
    torch.manual_seed(0)
    model = make_encoder("convnet", width=WIDTH).to(device)
    criterion = InfoNCE().to(device)
    step = Step(model, criterion, torch.device(device), torch.float32)
    backward = Backward(step, torch.amp.GradScaler(enabled=False))
    images = torch.rand(2, PAIRS, 1, SIDE, SIDE)
    chunks = list(zip(*(torch.split(side, int(chunk)) for side in images), strict=True))

    def loss_of(towers: list[torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = criterion(*towers)
        return loss

    before, times = _bytes(device), []
    for _ in range(STEPS):
        step.zero_grad(set_to_none=True)
        began = time.perf_counter()
        loss = backward(chunks, None, loss_of, partial(_seed, 0), is_divided=len(chunks) > 1).loss.item()
        times.append(time.perf_counter() - began)
    gradients = [p.grad.cpu() for p in step.parameters() if p.grad is not None]
    found = {"seconds": min(times), "bytes": _bytes(device) - before, "loss": loss, "gradients": gradients}
    torch.save(found, out)


def _seed(seed: int, chunk: int) -> None:
    torch.manual_seed(seed + chunk)


def _bytes(device: str) -> int:
    """Return the most memory that was ever in use."""
    return torch.cuda.max_memory_allocated() if device.startswith("cuda") else record.peak_bytes()


if __name__ == "__main__":
    record.run(main)
