"""Where results go, and what they say of the machine they come from."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("lookalike", "torch", "numpy", "numba", "faiss-cpu", "cuda-core")


def machine() -> dict[str, Any]:
    """The processor, its size and the features the kernels use."""
    cpu: dict[str, str] = {}
    info = Path("/proc/cpuinfo")
    if info.exists():
        pairs = (line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        cpu = {key.strip(): value.strip() for key, value in pairs}
    flags = cpu.get("flags", "").split()
    return {
        "processor": cpu.get("model name", platform.processor()),
        "cores": os.cpu_count(),
        "popcount": next((f for f in ("avx512_vpopcntdq", "avx2", "popcnt") if f in flags), "unknown"),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """The versions of what was measured."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def write(name: str, result: dict[str, Any]) -> Path:
    """Write a result with machine and versions; returns the path."""
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), "versions": versions(), **result}, indent=1) + "\n")
    return path


def read(name: str) -> dict[str, Any]:
    """A committed result."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result
