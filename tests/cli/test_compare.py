"""`lookalike compare`: the table, YAML files, and runs that are continued, left alone or removed."""

import json
import os
import shutil
import signal
import time

import pytest
import yaml

from lookalike.training.errors import Interrupted
from lookalike.utils.locks import FolderInUseError, locked
from tests.cli.runs import NETWORK, QUICK, first_cells, outcome
from tests.processes import Child, command_line, held_by_another, wait_until

SAMPLERS = "random,batchhard,full,incremental,lsh:64,lsh:128"


def test_it_prints_the_table_and_writes_it(run_here, glyph_file, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    arguments = ("compare", glyph_file, "--samplers", SAMPLERS, "--seeds", "2", *QUICK, "--out", "out")
    code, out, err = run_here(*arguments)
    assert (code, err) == (0, "")
    rows = first_cells(out)
    assert rows == ["before training", *SAMPLERS.split(",")]
    assert "\n12/12  " in out
    table = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert [row["sampler"] for row in table["rows"]] == rows
    assert all(len(row["recall@1"]["values"]) == 2 for row in table["rows"])
    assert all(name in table for name in ("settings", "machine", "versions", "data_checksum"))
    markdown = (tmp_path / "out" / "compare.md").read_text()
    assert markdown.count("\n| ") == 8
    results = [json.loads((tmp_path / "out" / f"full-seed{i}" / "result.json").read_text()) for i in (0, 1)]
    assert table["rows"][0]["recall@1"]["values"] == [each["zero_shot"]["recall@1"] for each in results]
    assert f"| before training | {100 * table['rows'][0]['recall@1']['mean']:.2f} ±" in markdown
    # Results of finished runs are read; a lost one is trained again.
    shutil.rmtree(tmp_path / "out" / "random-seed1")
    began = time.time()
    assert run_here(*arguments)[0] == 0
    retrained = [path.parent.name for path in tmp_path.glob("out/*/result.json") if path.stat().st_mtime > began]
    assert retrained == ["random-seed1"]
    again = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert [row["recall@1"] for row in again["rows"]] == [row["recall@1"] for row in table["rows"]]


def test_a_file_gives_the_same_runs_as_options(run_here, glyph_file, tmp_path):
    arguments = ("compare", glyph_file, "--samplers", "random,lsh:64", "--seeds", "1", *QUICK, "--no-mixed-precision")
    assert run_here(*arguments, "--out", "typed")[0] == 0
    code, printed, err = run_here(*arguments, "--print-config")
    assert (code, err) == (0, "")
    (tmp_path / "run.yaml").write_text(printed)
    assert run_here("compare", "--config", "run.yaml", "--print-config")[1] == printed
    assert run_here("compare", "--config", "run.yaml", "--out", "read")[0] == 0
    for name in ("random-seed0", "lsh-64-seed0"):
        assert outcome(tmp_path / "read" / name) == outcome(tmp_path / "typed" / name)
    content = {"data": str(glyph_file), "samplers": ["random"], "seeds": 2, "model_options": {"width": 8}, "bits": 64}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(content))
    shown = yaml.safe_load(run_here("compare", "--config", "own.yaml", "--seeds", "4", "--print-config")[1])
    assert (shown["samplers"], shown["seeds"], shown["bits"], shown["epochs"]) == (["random"], 4, 64, 12)
    assert shown["model_options"] == {"width": 8, "dim": 256}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--samplers", "random,lsh:x"), "'lsh:x' is not a sampler"),
        (("--samplers", "random,ful"), "there is no sampler 'ful'"),
        (("--sampler", "lsh"), "there is no option '--sampler'; did you mean '--samplers'?"),
        (("--seed", "1"), "there is no option '--seed'; did you mean '--seeds'?"),
        (("--seeds", "0"), "seeds must be at least 1, got 0"),
        (("--jobs", "0"), "jobs must be at least 1, got 0"),
        (("--config", "typo.yaml"), "typo.yaml: there is no option 'sampler'; did you mean 'samplers'?"),
        (("--out", "run"), "run is the folder of a run; a comparison needs one of its own, choose it with --out."),
    ],
)
@pytest.mark.usefixtures("nothing_loads")
def test_what_was_given_is_checked_before_anything_is_loaded(run_here, tmp_path, arguments, sentence):
    (tmp_path / "typo.yaml").write_text("sampler: lsh\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    code, _, err = run_here("compare", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert sentence in err


@pytest.mark.parametrize("options", [("--force",), ("--jobs", "2"), ()])
@pytest.mark.parametrize("inside", ["", "random-seed0"])
@pytest.mark.usefixtures("nothing_loads")
def test_a_live_comparison_is_left_alone(run_here, glyph_file, tmp_path, options, inside):
    arguments = ("compare", glyph_file, "--samplers", "random", "--seeds", "1", *QUICK, "--out", tmp_path / "out")
    (tmp_path / "out" / inside).mkdir(parents=True)
    with held_by_another(tmp_path / "out" / inside) as holder:
        code, _, err = run_here(*arguments, *options)
    assert code == 2
    assert f"{tmp_path / 'out' / inside} is in use by process {holder.pid}" in err


def test_force_removes_an_old_comparison_before_it_trains(run_here, glyph_file, monkeypatch, tmp_path):
    def stop(*_, **__):
        raise Interrupted(signal.SIGINT)

    arguments = ("compare", glyph_file, "--samplers", "random,lsh:64", "--seeds", "1", *QUICK, "--out", "out")
    assert run_here(*arguments, "--epochs", "1")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr("lookalike.training.run.TrainingLoop.train_epoch", stop)
        code, out, _ = run_here(*arguments, "--force")
    assert code == 128 + signal.SIGINT
    assert "Continue by running the same command again without --force." in out
    assert {path.name for path in (tmp_path / "out").glob("[!.]*")} == {"random-seed0", "lsh-64-seed0"}
    assert not list((tmp_path / "out").glob("*/result.json"))
    assert run_here(*arguments)[0] == 0
    rows = json.loads((tmp_path / "out" / "compare.json").read_text())["settings"]
    assert {row["epochs"] for row in rows.values()} == {3}


def in_use(folder):
    try:
        with locked(folder):
            return False
    except FolderInUseError:
        return True


@pytest.fixture
def two_at_a_time(glyph_file, tmp_path):
    """Start a comparison that trains two runs at a time, and wait until both are in their epochs."""
    arguments = ("compare", glyph_file, "--samplers", "random", "--seeds", "3", *NETWORK, "--pairs-per-batch", "4")
    arguments += ("--jobs", "2", "--out", tmp_path, "--epochs", "300")
    folders = [tmp_path / f"random-seed{i}" for i in (0, 1)]
    with Child(command_line, *arguments, env={**os.environ, "COLUMNS": "300"}) as child:
        wait_until(lambda: all((folder / "metrics.jsonl").exists() for folder in folders), child)
        yield child, folders


def test_runs_at_a_time_stop_together_with_everything_saved(two_at_a_time, tmp_path):
    child, folders = two_at_a_time
    child.send_signal(signal.SIGINT)
    out, err = child.communicate()
    assert (child.returncode, err) == (128 + signal.SIGINT, "")
    assert "stopped by SIGINT; everything is saved. Continue by running the same command again." in out
    assert not any(in_use(folder) for folder in folders)
    assert not (tmp_path / "random-seed2").exists()  # none was begun afterwards


def test_runs_at_a_time_stop_when_their_parent_is_killed(two_at_a_time):
    child, folders = two_at_a_time
    assert all(in_use(folder) for folder in folders)
    child.kill()
    wait_until(lambda: not any(in_use(folder) for folder in folders))
