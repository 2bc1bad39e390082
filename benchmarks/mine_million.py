"""Mine a million embeddings from a file with the command line: this version, an earlier one beside it, and on Ray.

    python -m benchmarks.mine_million [--folder FOLDER] [--beside SRC] [--on-ray] [--out FILE | --record]

Every contender mines the same file in a process of its own, with as many threads as there are cores; on Ray each core
is a node with one worker. Ray looks around on the network: give it a namespace of its own, such as `unshare -n` with
loopback up.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from tyro.conf import arg

from benchmarks import record

MILLION, DIM, GROUP = 1_000_000, 768, 4
SAMPLE = 500
ADDRESS = "127.0.0.2"  # of the nodes of Ray: it rewrites 127.0.0.1
STORE = 80 << 20  # bytes of a node's object store; cells travel through files
MINED = """
import json, sys, time
from benchmarks import record
from lookalike.cli import main
folder, output, *more = sys.argv[1:]
began, processor = time.perf_counter(), time.process_time()
files = ["--embeddings", f"{folder}/embeddings.npy", "--labels", f"{folder}/labels.npy", "--output", output]
main(["mine", *files, *more])
times = {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - processor}
print(json.dumps({**{name: round(value, 1) for name, value in times.items()}, "peak_bytes": record.peak_bytes()}))
"""


def main(
    folder: Annotated[Path | None, arg(help="Where there is room for 4 GB.")] = None,
    rows: Annotated[int, arg(help="How many embeddings.")] = MILLION,
    beside: Annotated[Path | None, arg(help="The folder src of an earlier version, to measure it as well.")] = None,
    on_ray: Annotated[bool, arg(help="Mine on Ray as well, with a worker per core.")] = False,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Measure time and peak memory, and compare what was found with the truth and with each other."""
    path = record.destination("mine_million", out, committed, whole=rows == MILLION and beside is not None and on_ray)
    contenders: dict[str, list[str]] = {"now": []} if beside is None else {"before": [], "now": []}
    source = Path(__file__).parents[1] / "src"
    with tempfile.TemporaryDirectory(dir=folder) as name:
        began = time.perf_counter()
        write_embeddings(Path(name), rows)
        print(f"written in {time.perf_counter() - began:.0f} s", flush=True)
        timed = []
        for contender, options in contenders.items():
            timed.append(
                _mined(contender, name, beside if contender == "before" and beside is not None else source, options)
            )
        if on_ray:
            timed.append(_mined_on_ray(name, source))
        summary = json.loads(Path(name, "now.summary.json").read_text())
        quality = {each["contender"]: checked_on_a_sample(name, each["contender"]) for each in timed}
        equal = _same_bytes(Path(name), "now", "ray") if on_ray else None
        size = Path(name, "embeddings.npy").stat().st_size
    settings = {
        "rows": rows,
        "dim": DIM,
        "bytes": size,
        "sample": SAMPLE,
        "num_negatives": summary["options"]["num_negatives"],
        "bits": summary["options"]["bits"],
        "threads": summary["threads"],
    }
    record.finish(path, {"settings": settings, "timed": timed, "quality": quality, "ray_gives_equal_files": equal})


def _mined(contender: str, folder: str, source: Path, options: list[str]) -> dict[str, Any]:
    """Run the command of some version in a fresh process, and measure its time and peak memory."""
    load = os.getloadavg()[0]
    shown = subprocess.run(
        [sys.executable, "-c", MINED, folder, f"{folder}/{contender}.npy", *options],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    measured = {"contender": contender, "load_before": round(load, 2), **json.loads(shown.stdout.splitlines()[-1])}
    print(measured, flush=True)
    return measured


def _mined_on_ray(folder: str, source: Path) -> dict[str, Any]:
    """Run the command on a cluster of one node per core, which is started and stopped outside of the measured time."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = str(source)  # of the workers
    os.environ["OMP_NUM_THREADS"] = "1"
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "node_ip_address": ADDRESS, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        for _ in range(1, os.cpu_count() or 1):
            cluster.add_node(**node)
        return _mined("ray", folder, source, ["--ray", cluster.address])
    finally:
        cluster.shutdown()


def _same_bytes(folder: Path, a: str, b: str) -> bool:
    """Return whether two contenders wrote the same files."""
    names = ("{}.npy", "{}.scores.npy")
    return all((folder / n.format(a)).read_bytes() == (folder / n.format(b)).read_bytes() for n in names)


def write_embeddings(folder: Path, rows: int) -> None:
    """Write embeddings of classes within topics, as `lookalike.data.synthetic` draws them, part by part; and labels."""
    generator = torch.Generator().manual_seed(0)
    scales = (1 + torch.arange(DIM)) ** -0.4
    scales *= (DIM / scales.square().sum()).sqrt()

    def draw(count: int) -> torch.Tensor:
        return torch.randn(count, DIM, generator=generator) * scales

    classes = rows // GROUP
    centres = draw(classes // 20)[torch.randint(classes // 20, (classes,), generator=generator)]
    centres.add_(draw(classes)).mul_(0.6).add_(0.5 * DIM**0.5 * torch.nn.functional.normalize(draw(1)))
    labels = torch.randint(classes, (rows,), generator=generator)
    x = np.lib.format.open_memmap(folder / "embeddings.npy", "w+", np.float32, (rows, DIM))
    for start in range(0, rows, 20_000):
        part = labels[start : start + 20_000]
        x[start : start + 20_000] = torch.nn.functional.normalize(centres[part] + 0.5 * draw(len(part))).numpy()
    x.flush()
    np.save(folder / "labels.npy", labels.numpy())


def checked_on_a_sample(folder: str, contender: str) -> dict[str, Any]:
    """Compare a few hundred rows with all others, and return the fraction of their true negatives that were found."""
    x, labels = np.load(f"{folder}/embeddings.npy", mmap_mode="r"), np.load(f"{folder}/labels.npy")
    found = np.load(f"{folder}/{contender}.npy", mmap_mode="r")
    sample = np.linspace(0, len(x) - 1, SAMPLE).astype(np.int64)
    queries = torch.nn.functional.normalize(torch.from_numpy(x[sample]), dim=1)
    best = torch.full((SAMPLE, found.shape[1]), -torch.inf)
    ids = torch.full(best.shape, -1)
    for start in range(0, len(x), 20_000):
        part = torch.nn.functional.normalize(torch.from_numpy(x[start : start + 20_000].copy()), dim=1)
        similarity = queries @ part.T
        own = torch.from_numpy(labels[sample][:, None] == labels[start : start + 20_000])
        scores, places = similarity.masked_fill(own, -torch.inf).topk(found.shape[1], dim=1)
        best, order = torch.cat([best, scores], dim=1).topk(found.shape[1], dim=1)
        ids = torch.cat([ids, places + start], dim=1).gather(1, order)
    same = (torch.from_numpy(found[sample])[:, :, None] == ids[:, None]).any(2)
    scores = np.load(f"{folder}/{contender}.scores.npy", mmap_mode="r")[sample]
    return {
        "same_negatives": float(same.float().mean()),
        "score_mean": float(scores.mean()),
        "score_mean_true": float(best.mean()),
    }


if __name__ == "__main__":
    record.run(main)
