"""Choose the device of a rank."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from lookalike.training.team import Team


def own_device(device: str, team: Team) -> str:
    """Return the device of this rank: each rank of a machine has a GPU of its own.

    Raises:
        ValueError: There are fewer GPUs than ranks, or one GPU was named for all of them.
    """
    if team.world_size == 1 or torch.device(device).type != "cuda":
        return device
    named, visible = torch.device(device).index, torch.cuda.device_count()
    own = (
        0 if visible == 1 and os.environ.get("CUDA_VISIBLE_DEVICES") else team.local_rank
    )  # as Slurm gives one to each
    if named not in (None, own):
        raise ValueError(
            f"device={device} is not the GPU of this process, which is cuda:{own}: set device=cuda, and each of the "
            f"{team.world_size} processes takes its own."
        )
    if own >= visible:
        raise ValueError(
            f"this machine has {visible} GPUs, and the launcher started a process for GPU {own}: start as many "
            "processes as there are GPUs, or set device=cpu."
        )
    torch.cuda.set_device(own)
    return f"cuda:{own}"
