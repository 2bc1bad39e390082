"""A folder belongs to one process at a time, and to nobody once that process is gone."""

import os
import signal
import subprocess
import sys

import pytest

from lookalike.files import UnwritableError, replacing
from lookalike.locks import FolderInUseError, locked
from tests.processes import first_line

HOLD = """
import sys
from pathlib import Path
from lookalike.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert first_line(process.stdout) == "held\n"
        yield process
        process.kill()


def test_the_second_process_is_told_who_holds_the_folder(tmp_path, holder):
    with pytest.raises(FolderInUseError, match=rf"in use by process {holder.pid} \(-c .*wait for it"), locked(tmp_path):
        pass


def test_a_lock_dies_with_its_process(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with locked(tmp_path):
        pass


def test_one_process_cannot_hold_a_folder_twice(tmp_path):
    with locked(tmp_path), pytest.raises(FolderInUseError), locked(tmp_path):
        pass
    with locked(tmp_path):  # the failed attempt left the lock usable
        pass


def test_leftovers_of_killed_saves_are_removed(tmp_path):
    with replacing(tmp_path / "checkpoint.pt") as temporary:
        left = tmp_path / temporary.name.replace("checkpoint", "other")
        left.write_text("half a file")
    with locked(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".tmp") == []
    assert (tmp_path / "checkpoint.pt").exists()


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(UnwritableError, match="is a file where a folder is needed"), locked(tmp_path / "run"):
        pass
