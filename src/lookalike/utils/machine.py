"""Describe the machine for the record, and choose devices."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import torch
from torch import Tensor

PACKAGES = (
    "lookalike",
    "torch",
    "numpy",
    "numba",
    "faiss-cpu",
    "cuda-core",
    "timm",
    "transformers",
    "sentence-transformers",
)
LARGEST_SHARE = 0.25  # of a GPU's free memory for data; the rest is for the model


def machine(device: str = "cpu") -> dict[str, Any]:
    """Describe the processor, the features that the kernels use, and the GPU if `device` is one."""
    cpu: dict[str, str] = {}
    info = Path("/proc/cpuinfo")
    if info.exists():
        pairs = (line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        cpu = {key.strip(): value.strip() for key, value in pairs}
    flags = cpu.get("flags", "").split()
    about = {
        "processor": cpu.get("model name", platform.processor()),
        "cores": os.cpu_count(),
        "popcount": next((f for f in ("avx512_vpopcntdq", "avx2", "popcnt") if f in flags), "unknown"),
        "system": platform.system(),
        "python": platform.python_version(),
    }
    if device.startswith("cuda"):
        about["gpu"] = torch.cuda.get_device_name(device)
    return about


def versions() -> dict[str, str]:
    """Return the installed versions of the packages that results depend on."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def moved_if_it_fits(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a GPU unless it would take too much of its memory."""
    if device.type != "cuda":
        return tensor
    free, _ = torch.cuda.mem_get_info(device)
    return tensor.to(device) if tensor.nbytes <= LARGEST_SHARE * free else tensor


def seed_device(device: torch.device, seed: int) -> None:
    """Seed what a device and the CPU draw.

    `torch.manual_seed` also seeds every other device, and formats a stack trace for each kind that is not in use yet:
    a tenth of a millisecond, too much for every step.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)
    elif device.type != "cpu":
        torch.manual_seed(seed)


def has_settled(device: torch.device, patience: float = 10.0) -> bool:
    """Return whether a device completes what it was told; a collective that waits for a lost rank never does."""
    if device.type != "cuda":
        return True
    reached: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    reached.record(torch.cuda.current_stream(device))
    until = monotonic() + patience
    while not reached.query():
        if monotonic() > until:
            return False
        sleep(0.01)
    return True


def checked_device(device: str | None) -> str:
    """Return a device that torch can use; by default a GPU if there is one.

    Raises:
        ValueError: torch cannot use it here.
    """
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = None
    usable = chosen is not None and (
        chosen.type == "cpu"
        or (chosen.type == "cuda" and (chosen.index or 0) < torch.cuda.device_count())
        or (chosen.type == "mps" and torch.backends.mps.is_available())
    )
    if not usable:
        raise ValueError(f"there is no device {device!r} here that torch can use; cpu always works.")
    return device
