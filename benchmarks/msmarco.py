"""Measure MS MARCO's reader at full size: time and peak memory of indexing, and the time to read a passage.

python -m benchmarks.msmarco [--passages 8841823] [--folder FOLDER] [--out FILE | --record]

The files are synthetic, with as many lines as the official ones, in a temporary folder that is deleted afterwards.
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
from tyro.conf import arg

from benchmarks import record

PASSAGES = 8_841_823
LENGTHS = (60, 350)  # characters
QUERIES = 808_731
PAIRS = 532_761
ACCESSES = 20_000
COLD_ACCESSES = 2_000
MEASURED = """
import json, sys
from benchmarks.msmarco import measured
print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
"""


def main(
    passages: Annotated[int, arg(help="Lines of the collection.")] = PASSAGES,
    folder: Annotated[Path | None, arg(help="Folder with room for the files.")] = None,
    out: record.Out = None,
    committed: record.Record = False,
) -> None:
    """Write the files, measure in fresh processes, and write the result."""
    path = record.destination("msmarco", out, committed, whole=passages == PASSAGES)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        root = Path(name) / "msmarco"
        root.mkdir()
        began = time.perf_counter()
        write_files(root, passages)
        size = (root / "collection.tsv").stat().st_size
        print(f"written in {time.perf_counter() - began:.0f} s: {size / 1e9:.2f} GB")
        environment = {**os.environ, "LOOKALIKE_CACHE": str(Path(name) / "cache")}
        rows = {}
        for case in ("building the index", "index in place"):
            shown = subprocess.run(
                [sys.executable, "-c", MEASURED, str(root), str(passages)],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            rows[case] = json.loads(shown.stdout)
            print(case, rows[case])
    settings = {"passages": passages, "bytes": size, "accesses": ACCESSES, "lengths": LENGTHS}
    result = {"settings": {**settings, "load": os.getloadavg()[0]}, "rows": rows}
    record.finish(path, result)


def write_files(root: Path, passages: int) -> None:
    """Write files in the official layout, as large as the official ones."""
    rng = np.random.default_rng(0)
    words = "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz     "), 1 << 20))
    lengths, starts = rng.integers(*LENGTHS, passages), rng.integers(0, len(words) - LENGTHS[1], passages)
    with (root / "collection.tsv").open("w") as file:
        for first in range(0, passages, 100_000):
            rows = zip(lengths[first : first + 100_000].tolist(), starts[first : first + 100_000].tolist(), strict=True)
            file.writelines(f"{pid}\t{words[s : s + n]}\n" for pid, (n, s) in enumerate(rows, first))
    for split, number, pairs in (("train", QUERIES, PAIRS), ("dev.small", 6_980, 7_437)):
        ids = rng.permutation(10 * number)[:number].tolist()
        with (root / f"queries.{split}.tsv").open("w") as file:
            file.writelines(f"{qid}\t{words[s : s + 40]}\n" for s, qid in enumerate(ids))
        with (root / f"qrels.{split}.tsv").open("w") as file:
            answers = rng.integers(0, passages, pairs).tolist()
            file.writelines(f"{ids[i % number]}\t0\t{pid}\t1\n" for i, pid in enumerate(answers))


def measured(root: str, passages: int) -> dict[str, Any]:
    """Measure in a fresh process: seconds until the data set is loaded, peak memory, times of random accesses."""
    began = time.perf_counter()
    from lookalike.data import load_data

    imported = time.perf_counter()
    before = record.peak_bytes()
    data = load_data("msmarco", root)
    loaded = time.perf_counter()
    peak_loaded = record.peak_bytes()
    collection: Any = data.train.reference.items  # type: ignore[attr-defined]
    rng = np.random.default_rng(1)
    warm = _accesses(collection, rng.integers(0, passages, ACCESSES))
    _forget(collection.path)
    cold = _accesses(collection, rng.integers(0, passages, COLD_ACCESSES))
    began_pass = time.perf_counter()
    for first in range(0, passages, 4096):
        collection.read(np.arange(first, min(first + 4096, passages)))
    return {
        "seconds_import": imported - began,
        "seconds_load": loaded - imported,
        "peak_bytes_after_import": before,
        "peak_bytes_loaded": peak_loaded,
        "peak_bytes": record.peak_bytes(),
        "access_microseconds": warm,
        "access_microseconds_from_disk": cold,
        "seconds_to_read_all": time.perf_counter() - began_pass,
    }


def _accesses(collection: Any, positions: Any) -> dict[str, dict[str, float]]:
    """Measure single accesses in microseconds, by the clock and by processor time (others share the machine)."""
    times = np.empty((2, len(positions)), np.int64)  # a list would trigger garbage collection, a millisecond each time
    for i, position in enumerate(positions):
        start = time.perf_counter_ns(), time.thread_time_ns()
        collection.read(np.array([position]))
        times[:, i] = time.perf_counter_ns() - start[0], time.thread_time_ns() - start[1]
    columns = dict(zip(("clock", "processor"), times, strict=True))
    return {
        name: {f"p{share}": float(np.percentile(values, share)) / 1000 for share in (50, 99, 99.9, 100)}
        for name, values in columns.items()
    }


def _forget(path: Path) -> None:
    """Ask the system to drop a file from its cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    record.run(main)
