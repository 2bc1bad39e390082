"""A folder belongs to one process at a time, and to nobody once that process is gone."""

import pytest

from lookalike.utils import locks
from lookalike.utils.files import UnwritableError, remove_leftovers, replacing
from lookalike.utils.locks import FolderInUseError, locked
from tests.processes import held_by_another


@pytest.fixture
def holder(tmp_path):
    with held_by_another(tmp_path) as process:
        yield process


def test_the_second_process_is_told_who_holds_the_folder(tmp_path, holder):
    with (
        pytest.raises(FolderInUseError, match=rf"in use by process {holder.pid} \(hold .*\); wait for it"),
        locked(tmp_path),
    ):
        pass


def test_a_lock_dies_with_its_process(tmp_path, holder):
    holder.kill()
    holder.wait()
    with locked(tmp_path):
        pass


def test_one_process_cannot_hold_a_folder_twice(tmp_path):
    with locked(tmp_path), pytest.raises(FolderInUseError), locked(tmp_path):
        pass
    with locked(tmp_path):  # the failed attempt left the lock usable
        pass


def test_nothing_is_left_of_a_lock(tmp_path):
    with locked(tmp_path / "new" / "folder"):
        pass
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "new"):
        (tmp_path / "new" / "kept").write_text("")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["kept"]


def test_a_file_of_the_user_is_never_taken_for_a_leftover(tmp_path):
    (tmp_path / "notes.tmp").write_text("mine")
    (tmp_path / "folder.tmp").mkdir()
    with locked(tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.tmp", "notes.tmp"]


def test_leftovers_of_killed_saves_are_removed(tmp_path):
    with replacing(tmp_path / "checkpoint.pt") as temporary:
        name = temporary.name
    (tmp_path / name).write_text("half a file")
    (tmp_path / "other.tmp").write_text("mine")
    remove_leftovers(tmp_path / "checkpoint.pt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "other.tmp"]


def test_a_lock_file_that_its_holder_removes_is_not_held_twice(tmp_path, monkeypatch):
    """A process opens the lock file, the holder removes it and lets go, and only then the process takes the lock."""
    take, taken = locks._lock, []

    def late(handle, **how):
        if not taken:
            taken.append(handle)
            (tmp_path / locks.LOCK).unlink()
            (tmp_path / locks.LOCK).write_text("")  # that of a third process
        take(handle, **how)

    monkeypatch.setattr(locks, "_lock", late)
    with locked(tmp_path):
        with pytest.raises(FolderInUseError), locked(tmp_path):
            pass
        assert (tmp_path / locks.LOCK).exists()


def test_a_shared_lock_is_shared_and_keeps_others_out(tmp_path):
    folder = tmp_path / "job"
    with locked(folder, shared=True):
        with (
            locked(folder, shared=True),
            pytest.raises(FolderInUseError, match="in use by process"),
            locked(folder),
        ):
            pass
        with pytest.raises(FolderInUseError), locked(folder):  # one of the two is left
            pass
    with locked(folder), pytest.raises(FolderInUseError), locked(folder, shared=True):
        pass
    with locked(folder, remove_empty=True):  # what it was shared by has left the files of the lock
        pass
    assert list(tmp_path.iterdir()) == []


def test_those_that_share_a_lock_leave_each_others_files_alone(tmp_path):
    """One of them may be about to write its name, while another comes or goes."""
    with locked(tmp_path, shared=True), replacing(tmp_path / locks.HOLDER) as temporary:
        with locked(tmp_path, shared=True):
            pass
        temporary.write_text("{}")
    assert (tmp_path / locks.HOLDER).read_text() == "{}"


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("content", ["{", "[" * 100_000, '{"pid": -1}', f'{{"pid": {10**30}, "host": "x"}}', "[]"])
def test_a_holder_that_cannot_be_told_is_another_process(tmp_path, content, monkeypatch):
    monkeypatch.setattr(locks, "PAUSE", 0)
    (tmp_path / locks.HOLDER).write_text(content)
    with pytest.raises(FolderInUseError, match="in use by another process"), locked(tmp_path):
        pass


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(UnwritableError, match="is a file where a folder is needed"), locked(tmp_path / "run"):
        pass
