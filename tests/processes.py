"""Real processes that talk to each other over gloo."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def in_process(rank, world_size, port, task, results, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(world_size))
    os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world_size))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    try:
        results[rank] = task(rank, *arguments)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def on_ranks(world_size, task, *arguments):
    """The result of `task(rank, *arguments)` on every rank, of processes that really talk to each other."""
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(in_process, (world_size, free_port(), task, results, arguments), nprocs=world_size)
        return [results[rank] for rank in range(world_size)]
