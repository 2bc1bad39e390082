"""Benchmarks speak at once, have a quick size, and leave the committed results alone unless asked."""

import importlib
import inspect
import json
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from benchmarks import record

RESULTS = {path: path.read_bytes() for path in record.RESULTS.iterdir()}
WRITERS = {
    "batches": ["main"],
    "chunks": ["main"],
    "epoch_change": ["main"],
    "explore": ["main"],
    "guard": ["main"],
    "hardness": ["main"],
    "install_size": ["main"],
    "kill_mine": ["main"],
    "kill_ranks": ["main"],
    "kill_train": ["main"],
    "mine": ["main"],
    "mine_codes": ["main"],
    "mine_million": ["main"],
    "msmarco": ["main"],
    "observe": ["main"],
    "overlap": ["main"],
    "plan": ["main"],
    "profile_gpu": ["main"],
    "quality.__main__": ["tables"],
    "search": ["main"],
    "search_gpu": ["main"],
    "search_gpu_codes": ["main"],
    "search_gpu_scalar": ["main"],
    "search_scalar": ["main"],
    "search_streamed": ["main"],
}


def assert_nothing_was_recorded():
    assert {path: path.read_bytes() for path in record.RESULTS.iterdir()} == RESULTS


@pytest.mark.usefixtures("threads")
def test_quick_search_prints_steps_a_table_and_where_results_are(run_here, tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, out, err = run_here("bench", "search", "--quick")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "Hamming search against FAISS and exact search on the CPU: a few seconds."
    assert [line.split("] ")[1] for line in lines[1:3]] == [
        "hashing 24,000 embeddings of dimension 512",
        "comparing what codes find with exact search",
    ]
    assert "self-join: ours is faster by" in out
    written = Path(lines[-1].removeprefix("Written: "))
    assert [row["bits"] for row in json.loads(written.read_text())["quality"]] == [128, 512]
    assert written.is_relative_to(tmp_path)
    assert_nothing_was_recorded()


@pytest.mark.usefixtures("threads")
def test_quick_batches_write_where_they_are_told(run_here, monkeypatch):
    batches = importlib.import_module("benchmarks.batches")
    monkeypatch.setattr(batches, "QUICK_CONTENDERS", ("growth, one neighbourhood",))
    code, out, err = run_here("bench", "batches", "--quick", "--out", "batches.json", "--", "--n", 600)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "Written: batches.json"
    result = json.loads(Path("batches.json").read_text())
    assert result["settings"]["n"] == 600
    assert [row["neighbourhood"] for row in result["large"]] == [None, 32]
    assert all(second > 0 for row in result["large"] for second in row["seconds"])
    assert_nothing_was_recorded()


def test_the_first_line_does_not_wait_for_imports(run_here, monkeypatch):
    monkeypatch.setitem(sys.modules, "benchmarks.batches", None)
    code, out, _ = run_here("bench", "batches")
    assert code == 2
    assert out == "Composition of batches against the shuffle of Sample4Geo: several minutes; --quick takes seconds.\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--quik",), "there is no option '--quik'; did you mean '--quick'? See lookalike bench batches --help."),
        (
            ("--quick", "--", "--record"),
            "--record replaces committed results and takes the benchmark at its full size.",
        ),
        (("--", "--nn", "4"), "lookalike bench batches -- --help"),
    ],
)
def test_mistakes_point_to_the_command_that_was_typed(run_here, options, sentence):
    code, _, err = run_here("bench", "batches", *options)
    assert code == 2
    assert sentence in err


def test_only_known_devices(run_here):
    code, out, err = run_here("bench", "search", "--device", "gpu")
    assert (code, out) == (2, "")
    assert "--device must be one of 'cpu', 'cuda', got 'gpu'" in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_a_missing_device_is_said_before_anything_is_announced(run_here):
    code, out, err = run_here("bench", "search", "--device", "cuda")
    assert (code, out) == (2, "")
    assert "--device cuda needs an NVIDIA GPU" in err


@pytest.mark.parametrize(("module", "names"), WRITERS.items())
def test_every_benchmark_takes_the_same_options(module, names):
    if module in ("search", "search_scalar", "overlap"):
        pytest.importorskip("faiss")
    for name in names:
        parameters = inspect.signature(getattr(importlib.import_module(f"benchmarks.{module}"), name)).parameters
        out = record.OutFolder if module == "quality.__main__" else record.Out
        assert (parameters["out"].annotation, parameters["committed"].annotation) == (out, record.Record)


def test_every_benchmark_is_known_here():
    scripts = {path.stem for path in record.RESULTS.parent.glob("*.py")} | {"quality.__main__"}
    assert scripts - set(WRITERS) == {
        "__init__",
        "code_tables",
        "embedded",
        "epoch_share",
        "gpu_tests",
        "installing",
        "layout",
        "markdown",
        "mps",
        "options",
        "overlap_figure",
        "rank_tables",
        "record",
        "scale",
        "tables",
    }


@pytest.mark.usefixtures("threads")
def test_streamed_search_is_compared_before_it_is_written(tmp_path, capsys):
    streamed = importlib.import_module("benchmarks.search_streamed")
    sizes = {"rows": 20_000, "queries": 300, "fewer": 100, "k": 5, "page_rows": 7000, "device": "cpu"}
    streamed.main(**sizes, folder=tmp_path, out=tmp_path / "streamed.json")
    written = json.loads((tmp_path / "streamed.json").read_text())
    assert [(row["reference"], row["queries"]) for row in written["search"]] == [
        ("in memory, one search", 100),
        ("in memory, one search", 300),
        ("on disk", 100),
        ("on disk", 300),
        ("in host memory", 100),
    ]
    assert written["estimate"]["read_bytes"] == 1908 * 64_000_000_000 // 8  # a pass per block of 524,288, by 8 GPUs
    assert "1,000,000,000 codes in themselves on 8 GPUs" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["streamed.json"]  # the codes are gone
    with pytest.raises(ValueError, match="takes the benchmark at its full size"):
        streamed.main(**sizes, committed=True)


def test_only_full_problems_are_recorded(tmp_path):
    kill_mine, quality = (importlib.import_module(f"benchmarks.{name}") for name in ("kill_mine", "quality.__main__"))
    with pytest.raises(ValueError, match="takes the benchmark at its full size"):
        kill_mine.main(pairs=100, committed=True)
    with pytest.raises(ValueError, match="takes the benchmark at its full size"):
        quality.tables(tmp_path, seeds=1, committed=True)
    with pytest.raises(ValueError, match="--out and --record name two places"):
        quality.tables(tmp_path, out=tmp_path, committed=True)
    assert not list(tmp_path.iterdir())


def test_results_go_where_they_are_asked_to(tmp_path):
    assert record.destination("a", None, committed=True) == record.RESULTS / "a.json"
    assert record.destination("a", tmp_path / "new" / "b.json", committed=False) == tmp_path / "new" / "b.json"
    assert record.destination("a", tmp_path, committed=False) == tmp_path / "a.json"
    with pytest.raises(ValueError, match="--out and --record name two places"):
        record.destination("a", tmp_path, committed=True)
    with pytest.raises(ValueError, match="takes the benchmark at its full size"):
        record.destination("a", None, committed=True, whole=False)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="is a file where a folder is needed"):
        record.destination("a", tmp_path / "file" / "b.json", committed=False)
