"""Runs on Ray whose cells announce themselves by files, and wait for a file where a test says so."""

import json
import os
import time
from pathlib import Path

from lookalike.mining.run import Run

PATIENCE = 60  # seconds until what is waited for will never happen
PAUSE = 0.02


def wait_for(path):
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear in {PATIENCE} s")
        time.sleep(PAUSE)


class WatchedRun(Run):
    """Waits in the cells of the stage that the file `hold` names, until there is a file `go`."""

    def do(self, cell, *more):
        import ray

        watched = Path(os.environ["WATCHED"])
        with (watched / "log").open("a") as file:
            file.write(f"{json.dumps([cell.name, os.getpid()])}\n")
        if (watched / "hold").exists() and (watched / "hold").read_text() == cell.stage:
            (watched / f"at-{ray.get_runtime_context().get_node_id()}").touch()
            wait_for(watched / "go")
        super().do(cell, *more)
