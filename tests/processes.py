"""Other processes: how long to wait for them, and ranks that talk to each other over gloo."""

import os
import select
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

PATIENCE = 120  # seconds until what a test waits for will never happen


def wait_until(condition, process=None):
    """Wait for a condition, as long as the process that is to bring it about runs."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def first_line(stream):
    """Return the first line that another process prints; empty if it ends without one."""
    ready, _, _ = select.select([stream], [], [], PATIENCE)
    assert ready, f"nothing was printed in {PATIENCE} s"
    return stream.readline()


def in_process(rank, world_size, folder, task, results, arguments):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world_size))
    torch.set_num_threads(1)
    meeting_point = f"file://{folder}/ranks"  # a free port may be taken until it is used
    dist.init_process_group(
        "gloo", init_method=meeting_point, rank=rank, world_size=world_size, timeout=timedelta(seconds=PATIENCE)
    )
    try:
        results[rank] = task(rank, *arguments)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def on_ranks(world_size, task, *arguments):
    """The result of `task(rank, *arguments)` on every rank, of processes that really talk to each other."""
    with tempfile.TemporaryDirectory() as folder, mp.Manager() as manager:
        results = manager.dict()
        ranks = mp.spawn(in_process, (world_size, folder, task, results, arguments), nprocs=world_size, join=False)
        until = time.monotonic() + 2 * PATIENCE  # later than gloo, which says what it waited for
        try:
            while not ranks.join(timeout=max(0, until - time.monotonic())):
                assert time.monotonic() < until, "the ranks wait for each other"
        finally:
            for process in ranks.processes:
                process.kill()
        return [results[rank] for rank in range(world_size)]
