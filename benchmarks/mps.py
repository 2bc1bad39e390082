"""Share one GPU between processes with NVIDIA's Multi-Process Service, if it is installed and works."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

CONTROL = "nvidia-cuda-mps-control"
PROBE = "import torch; torch.zeros(1, device='cuda').cpu()"
PATIENCE = 60  # seconds


@contextmanager
def shared_gpu() -> Iterator[dict[str, str]]:
    """Yield the environment variables with which processes share the GPU; none if they have to take turns."""
    if shutil.which(CONTROL) is None:
        yield {}
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        service = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **service}
        if not _succeeds([CONTROL, "-d"], environment):
            print(f"{CONTROL} does not start, so processes take turns on the GPU.", flush=True)
            yield {}
            return
        works = _succeeds([sys.executable, "-c", PROBE], environment)
        if not works:
            print(f"{CONTROL} runs, but CUDA does not work under it, so processes take turns on the GPU.", flush=True)
        try:
            yield service if works else {}
        finally:
            subprocess.run([CONTROL], input="quit\n", text=True, env=environment, check=False, timeout=PATIENCE)


def _succeeds(line: list[str], environment: dict[str, str]) -> bool:
    try:
        ended = subprocess.run(line, env=environment, check=False, timeout=PATIENCE, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0
