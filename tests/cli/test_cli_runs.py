"""`lookalike train` and `compare` and their folders: mistakes before anything is loaded, continuing after a stop."""

import json
import os
import re
import shlex
import signal

import pytest
import torch

from lookalike.data import DataSource
from lookalike.training.comparison import train_by_name
from lookalike.training.interruptions import Interrupted
from lookalike.training.settings import Settings
from lookalike.utils.locks import FolderInUseError, locked
from tests.cli.test_cli_training import NETWORK, QUICK, start
from tests.processes import PATIENCE, wait_until
from tests.toys import write_glyph_file
from tests.training.runs import another_process_in, names


@pytest.fixture(scope="module")
def glyph_file(tmp_path_factory):
    return write_glyph_file(tmp_path_factory.mktemp("data") / "own.npz", classes=60)


@pytest.fixture
def nothing_loads(monkeypatch):
    """Fail where a model is built or data are read."""

    def fail(*_, **__):
        pytest.fail("something was loaded before the mistake was noticed")

    monkeypatch.setattr("lookalike.training.comparison.make_encoder", fail)
    monkeypatch.setattr("lookalike.data.DataSource.load", fail)


@pytest.mark.parametrize("command", ["train", "compare"])
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("texts",), "texts is read from a file of yours: say where it is with"),
        (("glyphs", "--root", "."), "glyphs is not read from a folder and takes no root"),
        (("glyphs", "--guard", "7"), "guard must be above 0 and at most 2, got 7"),
        (("glyphs", "--hardness", "2"), "hardness must be at least 0 and at most 1, got 2"),
        (("glyphs", "--lr", "-1"), "learning_rate must be above 0, got -1"),
        (("glyphs", "--device", "cuda:99"), "there is no device 'cuda:99' here"),
        (("glyphs", "--device", "cuda"), "there is no device 'cuda' here"),
        (("glyphs", "--model-option", "depth=9"), "convnet does not take the option 'depth'"),
        (("glyphs", "--model", "timm:x", "--model-option", "dept=9"), "timm:x does not take the option 'dept'"),
        (("glyphs", "--data-option", "size=9"), "the data set glyphs does not take the option 'size'"),
    ],
)
@pytest.mark.usefixtures("nothing_loads")
def test_what_was_typed_is_checked_first(run_here, tmp_path, command, arguments, sentence):
    if arguments[-1] == "cuda" and torch.cuda.is_available():
        pytest.skip("there is such a device")
    code, _, err = run_here(command, *arguments)
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--baseline", "hard"), "there is no sampler 'hard'"),
        (("--seed", "-1"), "seed must be at least 0, got -1"),
        (("--sampler", "lsh:64", "--target-overlap", "0.3"), "--target-overlap means nothing for the sampler lsh:64"),
        (("--resume", "--force"), "--resume continues a run and --force overwrites it: give one of them."),
        (("--out", "file"), "file is a file; a run needs a folder."),
        (("--out", "file/run"), "file is a file; a run needs a folder."),
        (
            ("--out", "damaged", "--resume"),
            "damaged/run.json is damaged (sampler is missing). --force begins",
        ),
        (
            ("--out", "wrong", "--resume"),
            "wrong/run.json is damaged (epochs must be at least 1, got -3). --force",
        ),
    ],
)
@pytest.mark.usefixtures("nothing_loads")
def test_what_was_typed_for_one_run_is_checked_first(run_here, tmp_path, arguments, sentence):
    (tmp_path / "file").write_text("")
    for name, content in (
        ("damaged", {}),
        ("wrong", {"sampler": "lsh", "seed": 0, "epochs": -3, "data": "glyphs", "model": "", "model_options": {}}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(content))
    code, _, err = run_here("train", *arguments)
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_a_missing_file_is_noticed_before_the_model_is_loaded(run_here, monkeypatch):
    monkeypatch.setattr("lookalike.training.comparison.make_encoder", lambda **_: pytest.fail("the model was loaded"))
    code, _, err = run_here("train", "texts", "--root", "absent.jsonl")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "absent.jsonl: there is no such file" in err


def leave_unfinished(glyph_file, folder):
    """Leave what `train` with QUICK leaves when it is stopped after its first epoch."""

    def stop(epoch):
        if epoch["epoch"] == 1:
            raise Interrupted(signal.SIGINT)

    settings = Settings(epochs=3, pairs_per_batch=8, bits=64)
    model = {"encoder": "convnet", "width": 8, "dim": 32}
    with pytest.raises(Interrupted):
        train_by_name(DataSource(str(glyph_file)), settings, folder, model=model, report=stop, show_progress=False)


def test_the_command_in_an_error_goes_on(run_here, glyph_file, tmp_path):
    folder = tmp_path / "runs" / "own-lsh64-seed0"
    leave_unfinished(glyph_file, folder)
    code, _, err = run_here("train", glyph_file, *QUICK, "--sampler", "lsh:64")
    assert code == 2
    said = (
        "lookalike: runs/own-lsh64-seed0 holds an unfinished run: (lookalike train .* --resume) continues it; --force"
    )
    command = re.match(said, err)[1]
    code, out, err = run_here(*shlex.split(command)[1:])
    assert (code, err) == (0, "")
    assert [line[:9] for line in out.splitlines() if line.startswith("epoch")] == ["epoch   2", "epoch   3"]
    assert (folder / "result.json").exists()


def test_resume_without_a_folder_takes_the_one_that_train_takes(run_here, glyph_file, tmp_path):
    leave_unfinished(glyph_file, tmp_path / "runs" / "own-lsh64-seed0")
    code, out, err = run_here("train", glyph_file, "--sampler", "lsh:64", "--resume")
    assert (code, err) == (0, "")
    assert "epoch   1" not in out
    assert "epoch   3" in out


def test_stopped_before_its_baseline_it_goes_on_with_both(run_here, glyph_file, monkeypatch):
    def stop(*_):
        raise Interrupted(signal.SIGINT)

    arguments = ("train", glyph_file, *QUICK, "--sampler", "lsh:64", "--baseline", "random", "--out", "my runs/first")
    with monkeypatch.context() as patch:
        patch.setattr("lookalike.cli.commands._print_epoch", stop)
        code, out, _ = run_here(*arguments)
    assert code == 128 + signal.SIGINT
    command = re.search("Continue with: lookalike (.*)\n", out)[1]
    assert command == "train --out 'my runs/first' --resume --baseline random"
    code, out, err = run_here(*shlex.split(command))
    assert (code, err) == (0, "")
    rows = [line.split("│")[1].strip() for line in out.splitlines() if line.startswith("│")]
    assert rows == ["before training", "lsh:64", "random"]
    code, out, err = run_here(*shlex.split(command))  # all is finished, and shown again
    assert (code, err) == (0, "")
    assert not re.search("^epoch", out, re.MULTILINE)


def test_keep_checkpoint(run_here, glyph_file, tmp_path):
    for keep in ((), ("--keep-checkpoint",)):
        assert run_here("train", glyph_file, *QUICK, "--epochs", "1", "--out", "run", "--force", *keep)[0] == 0
        assert ("checkpoint.pt" in names(tmp_path / "run")) == bool(keep)


@pytest.mark.parametrize("options", [("--resume",), ("--force",), ()])
def test_a_live_run_is_left_alone(run_here, glyph_file, tmp_path, options):
    (tmp_path / "run").mkdir()
    with another_process_in(tmp_path / "run") as holder:
        code, _, err = run_here("train", glyph_file, *QUICK, "--out", "run", *options)
    assert code == 2
    assert f"run is in use by process {holder.pid}" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("options", [("--force",), ("--jobs", "2"), ()])
@pytest.mark.parametrize("inside", ["", "random-seed0"])
@pytest.mark.usefixtures("nothing_loads")
def test_a_live_comparison_is_left_alone(run_here, glyph_file, tmp_path, options, inside):
    arguments = ("compare", glyph_file, "--samplers", "random", "--seeds", "1", *QUICK, "--out", tmp_path / "out")
    (tmp_path / "out" / inside).mkdir(parents=True)
    with another_process_in(tmp_path / "out" / inside) as holder:
        code, _, err = run_here(*arguments, *options)
    assert code == 2
    assert f"{tmp_path / 'out' / inside} is in use by process {holder.pid}" in err


def test_force_removes_an_old_comparison_before_it_trains(run_here, glyph_file, monkeypatch, tmp_path):
    arguments = ("compare", glyph_file, "--samplers", "random,lsh:64", "--seeds", "1", *QUICK, "--out", "out")
    assert run_here(*arguments, "--epochs", "1")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(
            "lookalike.training.loop.TrainingLoop.train_epoch", lambda *_: (_ for _ in ()).throw(Interrupted(2))
        )
        code, out, _ = run_here(*arguments, "--force")
    assert code == 128 + signal.SIGINT
    assert "Continue by running the same command again without --force." in out
    assert names(tmp_path / "out") == {"random-seed0", "lsh-64-seed0"}
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
    arguments += ("--jobs", "2", "--out", tmp_path)
    process = start(*arguments, "--epochs", "300", env={**os.environ, "COLUMNS": "300"})
    folders = [tmp_path / f"random-seed{i}" for i in (0, 1)]
    wait_until(lambda: all((folder / "metrics.jsonl").exists() for folder in folders), process)
    yield process, folders
    process.kill()
    process.communicate(timeout=PATIENCE)


def test_runs_at_a_time_stop_together_with_everything_saved(two_at_a_time, tmp_path):
    process, folders = two_at_a_time
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (128 + signal.SIGINT, "")
    assert "stopped by SIGINT; everything is saved. Continue by running the same command again." in out
    assert not any(in_use(folder) for folder in folders)
    assert not (tmp_path / "random-seed2").exists()  # none was begun afterwards


def test_runs_at_a_time_stop_when_their_parent_is_killed(two_at_a_time):
    process, folders = two_at_a_time
    assert all(in_use(folder) for folder in folders)
    process.kill()
    wait_until(lambda: not any(in_use(folder) for folder in folders))


def test_the_columns_of_a_table_are_checked_before_a_model_is_loaded(run_here, tmp_path, monkeypatch):
    (tmp_path / "three.csv").write_text("id,title,text\n1,Cats,Cats purr\n2,Dogs,Dogs bark\n")

    def load(*_):
        pytest.fail("a model was loaded")

    monkeypatch.setattr("lookalike.training.comparison.build", load)
    for command in (("train", "texts"), ("compare", "texts")):
        code, _, errors = run_here(*command, "--root", "three.csv")
        assert code == 2
        assert "has the columns id, title, text" in errors


def test_a_baseline_never_takes_the_place_of_the_run(run_here, tmp_path, monkeypatch):
    data = write_glyph_file(tmp_path / "own.npz")
    monkeypatch.setattr("lookalike.cli.commands.build_and_load", lambda *_: pytest.fail("something was loaded"))
    for arguments, sentence in (
        (("--baseline", "random", "--out", "runs/own-random-seed0", "--force"), "is where the baseline goes"),
        (("--baseline", "lsh"), "--baseline lsh is the run itself"),
    ):
        code, _, errors = run_here("train", data, *arguments)
        assert code == 2
        assert sentence in errors


def test_errors_of_the_system_are_said_in_one_line(run_here):
    code, _, errors = run_here("train", "--out", "x" * 300)
    assert code == 2
    assert "File name too long" in errors
    assert errors.count("\n") == 1


def test_a_comparison_is_not_mixed_with_a_run(run_here, tmp_path):
    data = write_glyph_file(tmp_path / "own.npz")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    code, _, errors = run_here("compare", data, "--out", "run")
    assert code == 2
    assert "run is the folder of a run" in errors
