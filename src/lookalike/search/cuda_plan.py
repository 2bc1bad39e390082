"""The sizes of a search on a GPU: how large its sample is, how long lists are, how many queries fit at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

GROUPS, ID_BITS = 512, 40  # as in the kernels
LANE_ROOM = 2048  # keys in shared memory with which warps put four lists in order
ALIGNMENT = 2048  # columns to which what is stored for each is padded
DIRECT = 4096  # rows up to which a reference is searched without a sample
DEVIATIONS = 3.5  # standard deviations by which a limit is wider than needed on average
SCARCER = 8  # how many times smaller the sample is where the request has limits
LARGEST_SAMPLE = 1 << 19  # rows, as many as values of sign codes have room to tell apart
MEMORY = 1 << 32  # bytes of working memory, at most


@dataclass(frozen=True)
class Plan:
    """The sizes of a search; they do not change the answer."""

    capacity: int  # keys per list
    run: int  # columns in each of GROUPS groups of the sample; 0: no sample, no limits
    tile: int  # queries at a time


def make_plan(num_queries: int, n: int, asked: int, memory: int, scarcer: int = 1) -> Plan:
    """Size the sample, the lists and the tiles of queries for `asked` rows per query.

    A sample of n / 16 rows holds a sixteenth of a query's nearest on average. The limit is `DEVIATIONS` standard
    deviations beyond that, so that few queries come up short, and lists have room for six more. The sample should hold
    at most half as many of a query's nearest as it has groups, because each group names only one row. `scarcer` divides
    the sample, where most limits are known beforehand.
    """
    run, capacity = 0, n
    if n > max(DIRECT, 5 * asked):
        run = max(8, -(-n // (GROUPS * scarcer * (16 if n < 1 << 21 else 32))))
        run = min(run, n // (2 * asked), n // GROUPS, LARGEST_SAMPLE // GROUPS)
        share = GROUPS * run / n
        mean = asked * share
        wanted = mean + DEVIATIONS * math.sqrt(mean) + 1
        capacity = min(n, max(GROUPS // 2, asked, math.ceil(wanted / share * (1 + 6 / math.sqrt(wanted)))))
    affordable = max(1, memory // (8 * capacity + 24))
    tiles = -(-num_queries // affordable)
    return Plan(capacity, run, -(-num_queries // tiles))


@lru_cache(maxsize=8)
def sampled_rows(n: int, size: int, device: torch.device, _stream: int) -> tuple[Tensor, Tensor]:
    """Draw one row at random from each of `size` equal stretches of n rows; return their ids and their order.

    Rows are assigned to groups at random, because data are often sorted and a group names only one row. The next search
    of as many rows on the same stream uses the same sample.
    """
    places = torch.arange(size, device=device)
    first, after = places * n // size, (places + 1) * n // size
    ids = first + (places * 0x9E3779B1 >> 7) % (after - first)
    order = torch.randperm(size, generator=torch.Generator(device).manual_seed(0), device=device)
    return ids, order.to(torch.int32)


def affordable(device: torch.device) -> int:
    """Return the bytes of working memory to use: at most half of what is free, or reserved by torch and free."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min(MEMORY, (torch.cuda.mem_get_info(device)[0] + unused) // 2)


def fits(num_bytes: int) -> bool:
    """Return whether this is at most half of the memory that nobody has; torch's own accounts take longer to read."""
    return num_bytes <= torch.cuda.mem_get_info()[0] // 2
