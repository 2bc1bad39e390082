"""Where results go, with what they say of the machine they come from."""

import json
import resource
from pathlib import Path
from typing import Any

from lookalike.machine import machine, versions

RESULTS = Path(__file__).parent / "results"


def write(name: str, result: dict[str, Any]) -> Path:
    """Write a result with machine and versions; returns the path."""
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), "versions": versions(), **result}, indent=1) + "\n")
    return path


def read(name: str) -> dict[str, Any]:
    """A committed result."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def peak_bytes() -> int:
    """The most memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
