"""A rank is killed: the others say so and end, and the restarted run ends with the weights of an undisturbed one."""

import sys
from pathlib import Path

import pytest
import torch.distributed.run

from tests.processes import run_function
from tests.toys import write_glyph_file
from tests.training.runs import metrics, weights

PROGRAM = Path(__file__).with_name("killed_rank.py")
OPTIONS = ("--epochs", "3", "--pairs-per-batch", "4", "--model-option", "width=8", "--bits", "64", "--device", "cpu")
LONGEST = 60  # seconds that the others may take to end


def launched(folder, ranks, *arguments, restarts=1):
    """Run the program under torchrun."""
    (folder / "ends").mkdir(parents=True)
    write_glyph_file(folder / "glyphs.npz")
    options = [f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", "--monitor-interval=0.1", "--master-port=0"]
    command = [*options, "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", str(PROGRAM), *map(str, arguments)]
    return run_function(torchrun, [*command, "train", "glyphs.npz", *OPTIONS, "--out", "run"], cwd=folder)


def torchrun(arguments):
    torch.distributed.run.main(arguments)


@pytest.fixture(autouse=True)
def _loopback(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of a run by number of ranks."""
    found = {}

    def run(ranks):
        if ranks not in found:
            folder = tmp_path_factory.mktemp(f"{ranks} ranks")
            ended = launched(folder, ranks, "nowhere", 0, 0)
            assert ended.returncode == 0, ended.stderr
            found[ranks] = folder / "run"
        return found[ranks]

    return run


@pytest.mark.parametrize(
    ("place", "rank", "call", "ranks"),
    [
        ("a step", 1, 25, 2),
        ("the exchange of embeddings", 1, 25, 3),
        ("the exchange of lists", 0, 4, 2),
        ("the composition", 1, 2, 2),
        ("the evaluation", 1, 2, 3),
        ("a save", 0, 4, 2),
    ],
)
def test_a_killed_rank_costs_no_run(tmp_path, undisturbed, place, rank, call, ranks):
    ended = launched(tmp_path, ranks, place, rank, call)
    assert ended.returncode == 0, ended.stderr
    died = float((tmp_path / "ends" / "died").read_text())
    for other in set(range(ranks)) - {rank}:
        assert float((tmp_path / "ends" / f"ended {other}").read_text()) - died < LONGEST
        assert f"lookalike, rank {other}: rank {rank} was lost" in ended.stderr
        assert "--resume continues the run from its last checkpoint" in ended.stderr
    assert weights(tmp_path / "run") == weights(undisturbed(ranks))
    assert metrics(tmp_path / "run")[:-1] == metrics(undisturbed(ranks))[:-1]  # the last is the result, with its paths


def test_a_launch_that_is_refused_is_not_restarted_into_another_run(tmp_path, undisturbed):
    """The first attempt finds a finished run and no --force; the second must not take that for its own."""
    (tmp_path / "run").symlink_to(undisturbed(2))
    ended = launched(tmp_path, 2, "nowhere", 0, 0)
    assert ended.returncode != 0
    assert ended.stderr.count("holds a finished run; --force overwrites it") == 2
