"""Where results go, with what they say of the machine they come from."""

import json
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
