"""Shards that are started by hand leave the files of one process, in whatever order they run."""

import os
import socket

import numpy as np
import pytest

from lookalike.mining import Merge, Selection, Shard, UnfinishedError
from lookalike.mining.engines import InProcess, checked_engine, on_ray
from lookalike.utils.locks import FolderInUseError
from tests.mining.cells import embeddings, rows_of
from tests.mining.shares import encoded, in_process, killed_in, logging_cells, mine_rows, mine_texts
from tests.mining.words import make_columns, write_jsonl
from tests.processes import Child, run_function, wait_until

pytest.importorskip("datasets")

SHARDS = 3


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    np.save(folder / "x.npy", embeddings(100, distinct=80))
    np.save(folder / "few.npy", embeddings(30, seed=1))
    write_jsonl(folder / "pairs.jsonl", make_columns())
    return folder


@pytest.fixture(params=["rows", "texts", "few", "codes of rows", "codes of texts"])
def work(request, inputs):
    """What to mine, from what, and how; with few blocks, shards share out the columns of a row of cells."""
    kinds = {
        "rows": (mine_rows, "x.npy", "out.npy", {}),
        "texts": (mine_texts, "pairs.jsonl", "out.jsonl", {"relative_margin": 0.01}),
        "codes of rows": (mine_rows, "x.npy", "out.npy", {"rescore": "codes"}),
        "codes of texts": (mine_texts, "pairs.jsonl", "out.jsonl", {"rescore": "codes", "bits": 128}),
        "few": (mine_rows, "few.npy", "out.npy", {"reference": str(inputs / "x.npy")}),
    }
    function, source, output, options = kinds[request.param]
    return function, inputs / source, output, {**options, "sampling_strategy": "random", "seed": 3}


def passes(work):
    return 1 if work[0] is mine_rows else 2  # texts are all encoded before any is searched


def shared(function, source, output, options):
    for number in range(1, SHARDS + 1):
        try:
            assert function(source, output, engine=Shard(number, SHARDS), **options) is None
        except UnfinishedError as unfinished:
            assert str(unfinished).startswith(f"Shard {number}/3 has done its share of this stage (")  # noqa: PT017
            assert str(unfinished).endswith("Start it again when they have ended.")  # noqa: PT017


def test_one_after_another_they_leave_the_files_of_one_process(work, tmp_path):
    function, source, name, options = work
    (tmp_path / "alone").mkdir()
    (tmp_path / "shared").mkdir()
    function(source, tmp_path / "alone" / name, **options)
    output = tmp_path / "shared" / name
    with pytest.raises(UnfinishedError, match=r"cells \((encode|hash)\) are missing: start the shards again, and merg"):
        function(source, output, engine=Merge(), **options)
    assert list(output.parent.iterdir()) == []
    for number in range(passes(work)):
        if number:
            with pytest.raises(UnfinishedError, match="are missing: start the shards again"):
                function(source, output, engine=Merge(), **options)
        shared(function, source, output, options)
    assert not output.exists()
    function(source, output, engine=Merge(), **options)
    assert rows_of(output.parent) == rows_of(tmp_path / "alone")
    assert not output.with_name(f"{name}.cache").exists()


def test_side_by_side_no_cell_is_done_twice(work, tmp_path):
    function, source, name, options = work
    (tmp_path / "alone").mkdir()
    (tmp_path / "shared").mkdir()
    function(source, tmp_path / "alone" / name, **options)
    output, log, seen = tmp_path / "shared" / name, tmp_path / "log", tmp_path / "seen"
    seen.mkdir()
    if function is mine_texts:
        options = {**options, "seen": str(seen)}
    for _ in range(passes(work)):
        children = [
            Child(_logged, log, function, source, output, {**options, "engine": Shard(n, SHARDS)})
            for n in range(1, SHARDS + 1)
        ]
        for child in children:
            with child:
                assert child.wait() == 0, child.errors
    function(source, output, engine=Merge(), **options)
    assert rows_of(output.parent) == rows_of(tmp_path / "alone")
    done = [line for line in log.read_text().splitlines() if not line.startswith("hash")]
    assert len(done) == len(set(done)) >= 8
    if function is mine_texts:
        sampled = 64 if "rescore" in options else 0  # which one shard encodes, to fit codes to
        assert len(encoded(seen)) == sampled + 126


def _logged(log, function, source, output, options):
    logging_cells(log, function, source, output, options=options)


def _killed(stage, number, function, source, output, options):
    killed_in(stage, number, function, source, output, options=options)


def _mined(function, source, output, options):
    in_process(function, source, output, options=options)


@pytest.mark.parametrize("work", ["rows"], indirect=True)
def test_a_shard_that_runs_is_not_started_twice_nor_merged(work, tmp_path):
    function, source, name, options = work
    output = tmp_path / name
    with Child(_killed, "search", 3, function, source, output, {**options, "engine": Shard(2, SHARDS)}) as child:
        wait_until(lambda: child.printed, child)
        with pytest.raises(FolderInUseError, match=rf"2-of-3 is in use by process {child.pid} \("):
            function(source, output, engine=Shard(2, SHARDS), **options)
        for engine in (Merge(), None):
            with pytest.raises(FolderInUseError, match=r"out.npy.cache is in use by process \d+ \("):
                function(source, output, engine=engine, **options)
        function(source, output, engine=Shard(1, SHARDS), **options)  # others go on
        child.kill()
        child.wait()
        with pytest.raises(UnfinishedError, match=r"cells .* are missing"):
            function(source, output, engine=Merge(), **options)
    for number in (2, 3):
        run = run_function(_mined, function, source, output, {**options, "engine": Shard(number, SHARDS)})
        assert run.returncode == 0, run.stderr
    function(source, output, engine=Merge(), **options)
    function(source, tmp_path / "alone.npy", **options)
    assert output.read_bytes() == (tmp_path / "alone.npy").read_bytes()
    assert not output.with_name(f"{name}.cache").exists()


def test_one_process_finishes_what_shards_began(inputs, tmp_path):
    mine_rows(inputs / "x.npy", tmp_path / "out.npy", engine=Shard(1, SHARDS))
    mine_rows(inputs / "x.npy", tmp_path / "out.npy")
    mine_rows(inputs / "x.npy", tmp_path / "alone.npy")
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "alone.npy").read_bytes()
    assert not (tmp_path / "out.npy.cache").exists()


@pytest.mark.parametrize("text", ["", "3", "0/3", "4/3", "3/", "/3", "-1/3", "1/3/4", "a/b", "1.5/2", "²/3"])
def test_a_shard_is_written_as_one_of_several(text):
    with pytest.raises(ValueError, match="a shard is written as 3/16, the third of sixteen, got"):
        Shard.parse(text)


def test_engines_that_cannot_do_what_is_asked_for_are_refused(tmp_path):
    top, unseeded = Selection(), Selection(sampling_strategy="random", seed=None)
    output = tmp_path / "out.npy"
    assert checked_engine(None, None, unseeded, force=True) == InProcess()
    for engine in (Shard(1, 2), Merge()):
        assert checked_engine(engine, output, top, force=False) == engine
        with pytest.raises(ValueError, match="give an output"):
            checked_engine(engine, None, top, force=False)
        with pytest.raises(ValueError, match="only draw random negatives from a seed; give one"):
            checked_engine(engine, output, unseeded, force=False)
    with pytest.raises(ValueError, match=r"a shard cannot begin anew.*; remove the output and its \.cache"):
        checked_engine(Shard(1, 2), output, top, force=True)
    with pytest.raises(TypeError, match=r"engine must be InProcess.*, got 'ray'"):
        checked_engine("ray", output, top, force=False)


@pytest.mark.parametrize(("number", "of"), [(0, 3), (4, 3), (-1, 2)])
def test_a_shard_outside_its_number_is_refused(number, of):
    with pytest.raises(ValueError, match="from 1 to"):
        Shard(number, of)


class RayThatWaits:
    """Stands in for Ray, which would try for minutes to reach a cluster that is not there."""

    def is_initialized(self):
        return False

    def init(self, address, **_):
        raise RuntimeError(f"asked to reach {address}")


def closed_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_cluster_that_is_not_there_is_noticed_before_ray_tries(monkeypatch, by_environment):
    monkeypatch.setattr(on_ray, "_ray", RayThatWaits)
    address = f"127.0.0.1:{closed_port()}"
    if by_environment:
        monkeypatch.setenv("RAY_ADDRESS", address)
    engine = on_ray.OnRay("auto" if by_environment else address)
    with pytest.raises(ValueError, match=rf"there is no Ray cluster at '{address}' \(.*refused\)"), engine.connected():
        pass


def test_what_listens_is_left_to_ray(monkeypatch):
    monkeypatch.setattr(on_ray, "_ray", RayThatWaits)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for given in (address, "ray://127.0.0.1:1"):
            with pytest.raises(ValueError, match=f"asked to reach {given}"), on_ray.OnRay(given).connected():
                pass
    said = r"found or started here \(asked to reach None\); .* ray stop makes Ray forget"
    with pytest.raises(ValueError, match=said), on_ray.OnRay().connected():
        pass


def test_ray_reports_nothing_and_gives_up_in_minutes(monkeypatch):
    monkeypatch.setattr(on_ray, "optional_import", lambda *_: None)
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_NUM_REDIS_GET_RETRIES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    on_ray._ray()
    assert (os.environ["RAY_USAGE_STATS_ENABLED"], os.environ["RAY_NUM_REDIS_GET_RETRIES"]) == ("0", "4")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    on_ray._ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "1"  # the user's own choice
