"""On a Ray cluster of two nodes the files are those of one process, whoever is killed.

The nodes have a network namespace of their own, in which nothing else can be reached. One cluster serves all tests.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.mining.cells import embeddings, rows_of
from tests.mining.shares import BLOCK, encoded, mine_rows, mine_texts
from tests.mining.words import make_columns, write_jsonl

pytest.importorskip("ray")
pytest.importorskip("datasets")

PATIENCE = 280  # seconds
AS_ROOT = ["--map-root-user"] if hasattr(os, "geteuid") and os.geteuid() else []  # others may make no namespaces
ALONE = ["unshare", *AS_ROOT, "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
ROOT = Path(__file__).parents[3]


def namespaces():
    command = [*ALONE, "ip", "link", "set", "lo", "up"]
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what a process of its own has mined on the cluster."""
    if not namespaces():
        pytest.skip("no network namespace can be made here, in which Ray would be alone")
    folder = tmp_path_factory.mktemp("ray")
    np.save(folder / "x.npy", embeddings(100, distinct=80))
    write_jsonl(folder / "pairs.jsonl", make_columns())
    (folder / "ray").mkdir()
    module = ("-m", "tests.mining.engines.on_two_nodes", str(folder))
    inside = ["bash", "-c", 'ip link set lo up && exec "$@"', "bash", sys.executable, *module]
    path = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    # A short path, because sockets are in it; its own, because Ray notes there which cluster `auto` should look for.
    with (folder / "screen").open("w") as screen, tempfile.TemporaryDirectory(dir="/tmp") as place:
        subprocess.run(
            [*ALONE, *inside],
            cwd=ROOT,
            env={**environment, "RAY_TMPDIR": place},
            stdout=screen,
            stderr=screen,
            timeout=PATIENCE,
            check=False,
        )
    return folder


@pytest.fixture
def done(folder):
    """A function that returns what a check found."""
    path = folder / "results.json"
    assert path.exists(), (folder / "screen").read_text()
    results = json.loads(path.read_text())

    def found(name):
        assert "error" not in results[name], results[name]["error"] + (folder / "screen").read_text()
        return results[name]["found"]

    return found


def test_rows_are_mined_as_in_one_process(folder, done, tmp_path):
    assert done("rows")
    mine_rows(folder / "x.npy", tmp_path / "rows.npy")
    expected = rows_of(tmp_path)
    assert expected == {name: (folder / "ray" / name).read_bytes() for name in expected}
    assert not (folder / "ray" / "rows.npy.cache").exists()


def test_codes_alone_are_fitted_once_and_mined_as_in_one_process(folder, done, tmp_path):
    assert done("codes of rows")
    assert done("codes of texts")
    mine_rows(folder / "x.npy", tmp_path / "codes.npy", rescore="codes")
    mine_texts(folder / "pairs.jsonl", tmp_path / "codes", rescore="codes")
    names = ["codes.npy", "codes.scores.npy"]
    assert [(folder / "ray" / name).read_bytes() for name in names] == [(tmp_path / n).read_bytes() for n in names]
    assert rows_of(folder / "ray" / "codes") == rows_of(tmp_path / "codes")


def test_a_node_that_is_lost_in_the_middle_changes_nothing(folder, done, tmp_path):
    assert done("a node lost while rows are searched")
    mine_rows(folder / "x.npy", tmp_path / "lost.npy")
    expected = rows_of(tmp_path)
    assert expected == {name: (folder / "ray" / name).read_bytes() for name in expected}


def test_a_node_that_is_lost_while_it_encodes_changes_nothing(folder, done, tmp_path):
    assert done("a node lost while texts are encoded")
    mine_texts(folder / "pairs.jsonl", tmp_path / "lost")
    assert rows_of(folder / "ray" / "lost") == rows_of(tmp_path / "lost")
    texts = encoded(folder / "seen")
    assert len(set(texts)) == 126
    assert len(texts) <= 126 + BLOCK  # the node may have encoded its last block, which then nobody has


def test_a_driver_that_was_killed_resumes_and_computes_nothing_twice(folder, done, tmp_path):
    assert done("a driver that is killed")
    mine_texts(folder / "pairs.jsonl", tmp_path / "killed")
    assert rows_of(folder / "ray" / "killed") == rows_of(tmp_path / "killed")
    assert len(encoded(folder / "seen-twice")) == 126
    _before, after = (
        [json.loads(line)[0] for line in (folder / name).read_text().splitlines()]
        for name in ("log-before", "log-after")
    )
    assert not any(name.startswith(("encode", "hash")) for name in after)
    assert len(after) == len(set(after))


def test_relative_paths_are_those_of_the_command(folder, done, tmp_path):
    assert done("paths that are relative")
    mine_rows(folder / "x.npy", tmp_path / "relative.npy")
    expected = rows_of(tmp_path)
    assert expected == {name: (folder / "ray" / name).read_bytes() for name in expected}


def test_mistakes_come_back_as_they_are(done):
    row, processors, cause = done("a mistake")
    assert "nan.npy must hold finite embeddings, but row 37 has NaN or infinity" in row
    assert processors == "each cell asks for 3 processors, but no Ray node has more than 1."
    assert "run.py" in cause
    assert "in _hash" in cause
