"""Start two Ray nodes in this network namespace, mine on them, and write what was found: see test_on_ray.py.

python -m tests.mining.engines.on_two_nodes FOLDER
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

ADDRESS = "127.0.0.2"
STORE = 80 * 2**20  # bytes: the least that Ray takes


def main(folder):
    os.environ["WATCHED"] = str(folder / "watched")
    (folder / "watched").mkdir()
    (folder / "seen").mkdir()
    whole_chunks()
    from tests.mining.shares import mine_rows, mine_texts

    nodes = Nodes()
    checks = {
        "rows": lambda: mine_rows(folder / "x.npy", folder / "ray" / "rows.npy", engine=nodes.engine()),
        "codes of rows": lambda: mine_rows(
            folder / "x.npy", folder / "ray" / "codes.npy", engine=nodes.engine(), rescore="codes"
        ),
        "codes of texts": lambda: mine_texts(
            folder / "pairs.jsonl", folder / "ray" / "codes", engine=nodes.engine(), rescore="codes"
        ),
        "a node lost while rows are searched": lambda: nodes.losing_one(
            folder, "search", mine_rows, folder / "x.npy", folder / "ray" / "lost.npy"
        ),
        "a node lost while texts are encoded": lambda: nodes.losing_one(
            folder, "encode", mine_texts, folder / "pairs.jsonl", folder / "ray" / "lost", folder / "seen"
        ),
        "a driver that is killed": lambda: killed_driver(folder, nodes),
        "paths that are relative": lambda: relative(folder, nodes),
        "a mistake": lambda: mistake(folder, nodes),
    }
    results = {}
    try:
        for name, check in checks.items():
            began = time.monotonic()
            try:
                results[name] = {"found": check() if name == "a mistake" else bool(check() or True)}
            except Exception:  # noqa: BLE001 - the tests show it
                results[name] = {"error": traceback.format_exc()}
            results[name]["seconds"] = round(time.monotonic() - began, 1)
            (folder / "results.json").write_text(json.dumps(results))
    finally:
        nodes.cluster.shutdown()


class Nodes:
    """A cluster of a head and another node."""

    def __init__(self):
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray
        from ray.cluster_utils import Cluster

        options = {"num_cpus": 1, "node_ip_address": ADDRESS, "object_store_memory": STORE}
        head = {**options, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self._add = lambda: self.cluster.add_node(**options)
        self.other = self._add()
        ray.init(address=self.cluster.address, log_to_driver=False)  # once: workers that have torch loaded are kept

    def engine(self):
        from lookalike.mining import OnRay

        return OnRay(self.cluster.address)

    def losing_one(self, folder, stage, work, *arguments):
        """Mine, and kill the other node while it is in the middle of a cell."""
        watched = folder / "watched"

        def lose():
            from tests.mining.engines.watched import wait_for

            try:
                wait_for(watched / f"at-{self.other.node_id}")
                self.cluster.remove_node(self.other, allow_graceful=False)
            finally:
                (watched / "go").touch()

        with holding(watched, stage):
            killer = threading.Thread(target=lose)
            killer.start()
            with watched_runs():
                work(*arguments, engine=self.engine())
            killer.join()
        self.other = self._add()
        self.cluster.wait_for_nodes()


def whole_chunks():
    """Leave stores as they are: workers know nothing of chunks that are made smaller here."""
    from lookalike.mining.store import Store
    from tests.mining import shares

    shares.CHUNK = Store.CHUNK


@contextmanager
def holding(watched, stage):
    (watched / "hold").write_text(stage)
    try:
        yield
    finally:
        for path in watched.iterdir():
            if path.name != "log":
                path.unlink()


@contextmanager
def watched_runs():
    import lookalike.mining.embeddings
    import lookalike.mining.text_mining
    from tests.mining.engines.watched import WatchedRun

    modules = (lookalike.mining.embeddings, lookalike.mining.text_mining)
    kept = modules[0].Run
    for module in modules:
        module.Run = WatchedRun
    try:
        yield
    finally:
        for module in modules:
            module.Run = kept


def killed_driver(folder, nodes):
    """Kill the process that shares the work out, while a cell is searched; run it again."""
    from tests.mining.engines.watched import wait_for
    from tests.mining.shares import mine_texts

    watched = folder / "watched"
    (folder / "seen-twice").mkdir()
    arguments = [folder / "pairs.jsonl", folder / "ray" / "killed", folder / "seen-twice"]
    with holding(watched, "search"):
        command = [sys.executable, "-m", __spec__.name, nodes.cluster.address, *map(str, arguments)]
        with subprocess.Popen(command) as driver:
            try:
                wait_for(watched / f"at-{nodes.other.node_id}")
            finally:
                driver.send_signal(signal.SIGKILL)
        (watched / "go").touch()
    (watched / "log").rename(folder / "log-before")
    with watched_runs():
        mine_texts(*arguments, engine=nodes.engine())
    (watched / "log").rename(folder / "log-after")


def drive(address, *arguments):
    from lookalike.mining import OnRay

    whole_chunks()
    from tests.mining.shares import mine_texts

    with watched_runs():
        mine_texts(*map(Path, arguments), engine=OnRay(address))


def relative(folder, nodes):
    """Mine in a folder that the nodes were not started in."""
    from tests.mining.shares import mine_rows

    with contextlib.chdir(folder / "ray"):
        mine_rows(Path("../x.npy"), Path("relative.npy"), engine=nodes.engine())


def mistake(folder, nodes):
    """An error of a cell comes back as it is, with the traceback of the worker, and is not tried again."""
    import numpy as np

    from lookalike.mining import OnRay
    from tests.mining.shares import mine_rows

    x = np.load(folder / "x.npy")
    x[37, 2] = np.nan
    np.save(folder / "nan.npy", x)
    said, causes = [], []
    for path, engine in (("nan.npy", nodes.engine()), ("x.npy", OnRay(nodes.cluster.address, cpus=3))):
        try:
            mine_rows(folder / path, folder / "ray" / f"{len(said)}.npy", engine=engine)
        except ValueError as error:
            said.append(str(error))
            causes.append(str(error.__cause__))
    return [*said, causes[0]]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        drive(*sys.argv[1:])
    else:
        main(Path(sys.argv[1]))
