"""The folder of a run: who may write there, what survives a kill or a damaged disk, and what errors say."""

import json
import resource
import shutil
import signal
import sys

import pytest
import torch

from lookalike.training.run import train
from lookalike.training.run_folder import RunFolder
from lookalike.utils.files import DiskFullError
from lookalike.utils.locks import FolderInUseError, locked
from tests.processes import held_by_another, run_function
from tests.toys import toy_data
from tests.training.runs import (
    FILES,
    brief,
    killed_before,
    names,
    outcome,
    stopped,
    trained,
    weights,
)


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"force": True}])
def test_a_folder_in_which_another_process_trains_is_left_alone(tmp_path, options):
    stopped(tmp_path / "run", 5)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    with held_by_another(tmp_path / "run"), pytest.raises(FolderInUseError, match="run is in use by process"):
        trained(tmp_path / "run", **options)
    assert {path: path.read_bytes() for path in before} == before
    assert trained(tmp_path / "run", resume=True).epochs == 2


def test_a_folder_is_free_again_after_a_run(tmp_path):
    trained(tmp_path)
    with locked(tmp_path):
        pass


def test_a_model_that_does_not_fit_is_no_reason_to_keep_a_folder(tmp_path):
    (tmp_path / "here").mkdir()
    for out in ("here", "new/run"):
        with pytest.raises(ValueError, match="cannot embed what toys gives"):
            train(toy_data(), brief(), out=tmp_path / out, model=torch.nn.Linear(9, 4))
    assert names(tmp_path) == {"here"}
    assert names(tmp_path / "here") == set()


def test_two_damaged_checkpoints_are_said_in_one_sentence(tmp_path):
    stopped(tmp_path, 5)
    for path in (RunFolder(tmp_path).checkpoints.newest, RunFolder(tmp_path).checkpoints.previous):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"no checkpoint in .* can be read \(checkpoint.pt: its .* again") as raised:
        trained(tmp_path, resume=True)
    assert len(str(raised.value).splitlines()) == 1
    assert trained(tmp_path, force=True).epochs == 2


def test_a_damaged_checkpoint_costs_time_and_not_the_result(tmp_path, caplog):
    whole = trained(tmp_path / "whole")
    stopped(tmp_path / "part", 6)
    content = bytearray((tmp_path / "part" / "checkpoint.pt").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "part" / "checkpoint.pt").write_bytes(bytes(content))
    assert outcome(trained(tmp_path / "part", resume=True)) == outcome(whole)
    assert "checkpoint.pt is damaged" in caplog.text


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    stopped(tmp_path / "mine", 5)
    stopped(tmp_path / "other", 5, brief(sampler="random"))
    shutil.copy(tmp_path / "other" / "checkpoint.pt", tmp_path / "mine")
    with pytest.raises(ValueError, match=r"checkpoint.pt does not fit the run in .*run.json") as raised:
        trained(tmp_path / "mine", resume=True)
    assert len(str(raised.value).splitlines()) == 1


def test_an_ending_that_is_killed_can_be_resumed(tmp_path, monkeypatch):
    whole = trained(tmp_path / "whole")
    expected = weights(tmp_path / "whole")
    stopped(tmp_path / "begun", 6)  # so that every attempt below has little to train
    for number in range(1, 200):
        folder = shutil.copytree(tmp_path / "begun", tmp_path / str(number))
        with killed_before(monkeypatch, number) as died:
            trained(folder, resume=True)
        assert outcome(trained(folder, resume=True)) == outcome(whole)
        assert weights(folder) == expected
        assert names(folder) == FILES
        if not died:
            break
    assert 10 < number < 199


def test_force_that_is_killed_never_leaves_a_result_under_another_configuration(tmp_path, monkeypatch):
    old, new = (brief(sampler="random", epochs=1, bits=bits) for bits in (64, 128))
    trained(tmp_path / "old", old, keep_checkpoint=True)
    (tmp_path / "old" / "analysis.json").write_text("{}")
    for number in range(1, 200):
        folder = shutil.copytree(tmp_path / "old", tmp_path / str(number))
        with killed_before(monkeypatch, number) as died:
            trained(folder, new, force=True)
        if (folder / "run.json").exists():
            bits = json.loads((folder / "run.json").read_text())["bits"]
            if (folder / "result.json").exists():
                assert json.loads((folder / "result.json").read_text())["config"]["bits"] == bits
            if bits == 128:
                assert not (folder / "analysis.json").exists()
            settings = {64: old, 128: new}[bits]
            assert trained(folder, settings, resume=True).config["bits"] == bits
        else:
            assert names(folder) <= {"run.json"} | {path for path in names(folder) if path.endswith(".tmp")}
            assert trained(folder, new).config["bits"] == 128
        if not died:
            break
    assert 15 < number < 199


def test_temporary_files_of_killed_saves_are_removed(tmp_path):
    stopped(tmp_path, 5)
    (tmp_path / "checkpoint.pt.abc_1234.tmp").write_bytes(b"half")
    (tmp_path / "model.abc_1234.tmp").mkdir()
    (tmp_path / "model.abc_1234.tmp" / "model.safetensors").write_bytes(b"half")
    trained(tmp_path, resume=True)
    assert names(tmp_path) == FILES


def test_what_a_run_leaves_can_be_read_by_whoever_may_read_other_files(tmp_path):
    (tmp_path / "other").write_text("")
    trained(tmp_path / "run")
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {path.stat().st_mode for path in files} == {(tmp_path / "other").stat().st_mode}


def test_the_checkpoint_of_a_finished_run_is_kept_only_if_asked_for(tmp_path):
    result = trained(tmp_path, keep_checkpoint=True)
    assert names(tmp_path) == FILES | {"checkpoint.pt", "checkpoint.previous.pt"}
    assert trained(tmp_path, resume=True, keep_checkpoint=True) == result
    assert (tmp_path / "checkpoint.pt").exists()
    assert trained(tmp_path, resume=True) == result
    assert names(tmp_path) == FILES


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "it holds list, not an object"),
        ("{}", "sampler is missing"),
        ('{"sampler": 5}', "sampler is 5"),
        (b"\xff\xfe{", "codec can't decode"),
        ("[" * 100_000, "decoding a JSON array"),
    ],
)
def test_a_damaged_configuration_is_said_in_one_sentence(tmp_path, content, reason):
    stopped(tmp_path, 5)
    (tmp_path / "run.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=r"run.json is damaged \(.*force=True begins the run again") as raised:
        trained(tmp_path, resume=True)
    assert reason in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert trained(tmp_path, force=True).epochs == 2


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"config": {}, "metrics": 3}'])
@pytest.mark.parametrize("keep", [False, True])
def test_a_damaged_result_is_said_in_one_sentence(tmp_path, content, keep):
    whole = trained(tmp_path, keep_checkpoint=keep)
    (tmp_path / "result.json").write_text(content)
    way = r"Remove it, and resume=True writes" if keep else "force=True trains the run again"
    with pytest.raises(ValueError, match=rf"result.json is damaged \(.*\)\. {way}"):
        trained(tmp_path, resume=True)
    if keep:
        (tmp_path / "result.json").unlink()
        assert outcome(trained(tmp_path, resume=True)) == outcome(whole)


def test_damaged_metrics_are_written_again(tmp_path):
    stopped(tmp_path / "part", 3)
    (tmp_path / "part" / "metrics.jsonl").write_bytes(b"\xff{")
    trained(tmp_path / "part", resume=True)
    lines = (tmp_path / "part" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2]


def test_a_lost_checkpoint_begins_anew_and_says_so(tmp_path, caplog):
    whole = trained(tmp_path / "whole")
    stopped(tmp_path / "part", 6)
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (tmp_path / "part" / name).unlink()
    assert outcome(trained(tmp_path / "part", resume=True)) == outcome(whole)
    assert "part holds metrics but no checkpoint: the run begins again." in caplog.text


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_something_else_is_not_overwritten(tmp_path, force):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds model but no run.json, so it is not a run"):
        trained(tmp_path, force=force)
    assert (tmp_path / "model" / "precious.txt").exists()


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is a file; a run needs a folder"):
        trained(tmp_path / "file")
    with pytest.raises(ValueError, match="file is a file; a run needs a folder"):
        trained(tmp_path / "file" / "run")


def train_with_little_room(folder, size):
    """Resume a run in a process that can write no file larger than `size`, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        trained(folder, resume=True)
    except DiskFullError as error:
        print(error)
        sys.exit(3)


def test_a_full_disk_stops_a_run_that_can_be_continued(tmp_path):
    whole = trained(tmp_path / "whole")
    stopped(tmp_path / "part", 3)
    done = run_function(train_with_little_room, tmp_path / "part", 2000)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    expected = f"there is no room left for a checkpoint in {tmp_path / 'part'} (File too large): make room, then conti"
    assert done.stdout.startswith(expected)
    assert len(done.stdout.splitlines()) == 1
    assert not list((tmp_path / "part").glob("*.tmp"))
    assert outcome(trained(tmp_path / "part", resume=True)) == outcome(whole)


def test_no_room_for_the_model_costs_no_training(tmp_path, monkeypatch):
    def full(*_):
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")

    whole = trained(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("lookalike.training.run_folder.save_model", full)
        with pytest.raises(OSError, match=r"no room left for the model in .* \(No space left on device\): make room"):
            trained(tmp_path / "part")
    assert not (tmp_path / "part" / "result.json").exists()
    assert outcome(trained(tmp_path / "part", resume=True)) == outcome(whole)


def test_a_read_only_folder_is_said_in_one_sentence(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("lookalike.utils.locks._acquired", refuse)  # permissions do not bind root
    with pytest.raises(OSError, match=r"cannot be written to \(Permission denied\): choose another folder"):
        trained(tmp_path / "run")


def test_in_use_is_an_error_of_its_own(tmp_path):
    with held_by_another(tmp_path), pytest.raises(FolderInUseError):
        trained(tmp_path)


def test_a_run_that_another_process_finishes_meanwhile_is_not_trained_again(tmp_path, monkeypatch):
    result = trained(tmp_path)
    answers = iter([False, True])  # before the folder is held, and afterwards
    monkeypatch.setattr(RunFolder, "is_finished", property(lambda _: next(answers)))
    monkeypatch.setattr(RunFolder, "begin", lambda *_, **__: pytest.fail("the run began again"))
    assert trained(tmp_path, resume=True) == result
