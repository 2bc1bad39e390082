"""Measure on a GPU what `observe` costs a training step, in host time per batch, and what `bits="auto"` costs an epoch.

python -m benchmarks.observe [--out FILE | --record]
"""

import time
from collections.abc import Iterator

import torch

from benchmarks import record
from lookalike import LSHBatchSampler
from lookalike.samplers.arrivals import ROWS, Gathering
from lookalike.utils.machine import machine

N, BATCH, DIM, BITS, EPOCHS = 20_000, 64, 384, 512, 3
PLANNED = 23_000


def main(out: record.Out = None, committed: record.Record = False) -> None:
    """Measure with embeddings gathered before they are hashed, as they are, and hashed at once; write the result."""
    path = record.destination("observe", out, committed)
    rows = [
        {
            "towers": 2 if paired else 1,
            "rows_at_a_time": gathered,
            "milliseconds": round(min(_epochs(paired, gathered)), 3),
        }
        for paired in (False, True)
        for gathered in (BATCH * (1 if paired else 2), ROWS)
    ]
    plan = {"n": PLANNED, "dim": DIM, "towers": 2, "seconds": round(min(_plans()), 3)}
    settings = {"n": N, "pairs_per_batch": BATCH, "dim": DIM, "bits": BITS, "epochs": EPOCHS}
    print(rows, plan)
    record.finish(path, {"machine": machine("cuda"), "settings": settings, "observe": rows, "plan": plan})


def _epochs(paired: bool, gathered: int) -> Iterator[float]:
    """Yield the milliseconds per call of every epoch."""
    x = torch.nn.functional.normalize(torch.randn(N, DIM, device="cuda"), dim=1)
    sampler = (
        LSHBatchSampler(None, BATCH, pairs=N, bits=BITS)
        if paired
        else LSHBatchSampler(torch.arange(N) // 2, 2 * BATCH, bits=BITS)
    )
    for stream in sampler.memory.streams.values():
        stream.gathering = Gathering(gathered)
    for _ in range(EPOCHS):
        spent, calls = 0.0, 0
        for batch in sampler:
            ids = torch.tensor(batch)
            z = x[ids.cuda()]
            torch.cuda.synchronize()
            began = time.perf_counter()
            if paired:
                sampler.observe(ids, query=z, reference=z)
            else:
                sampler.observe(ids, z)
            spent, calls = spent + time.perf_counter() - began, calls + 1
        yield 1000 * spent / calls


def _plans() -> Iterator[float]:
    """Yield the seconds that choosing the number of bits takes at the end of each epoch."""
    x = torch.nn.functional.normalize(torch.randn(PLANNED, DIM, device="cuda"), dim=1)
    sampler = LSHBatchSampler(None, BATCH, pairs=PLANNED, bits="auto")
    for epoch in range(EPOCHS):
        for first in range(0, PLANNED, 1024):
            ids = torch.arange(first, min(first + 1024, PLANNED))
            sampler.memory.write("query", ids, x[first : first + 1024])
            sampler.memory.write("reference", ids, x[first : first + 1024])
        for stream in sampler.memory.streams.values():
            stream.flush()
        torch.cuda.synchronize()
        began = time.perf_counter()
        sampler.memory.end_epoch(epoch)
        torch.cuda.synchronize()
        yield time.perf_counter() - began


if __name__ == "__main__":
    record.run(main)
