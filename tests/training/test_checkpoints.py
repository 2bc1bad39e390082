"""Checkpoints: damage is noticed, and one complete state is there whenever a save is killed."""

import pathlib

import pytest
import torch

from lookalike.training.checkpoints import Checkpoints
from tests.training.runs import killed_before


def saved_twice(folder):
    checkpoints = Checkpoints(folder)
    for step in (1, 2):
        checkpoints.save({"step": step, "weights": torch.arange(300.0) * step, "names": ["a", "b"]})
    return checkpoints


def test_a_checkpoint_is_an_ordinary_file_of_torch(tmp_path):
    checkpoints = saved_twice(tmp_path)
    assert torch.load(checkpoints.newest, weights_only=True)["step"] == 2
    assert checkpoints.load()["step"] == 2


def test_a_flipped_byte_anywhere_is_noticed_and_the_checkpoint_before_it_is_used(tmp_path, caplog):
    checkpoints = saved_twice(tmp_path)
    newest, previous = checkpoints.newest.read_bytes(), checkpoints.previous.read_bytes()
    places = [*range(0, len(newest), 37), len(newest) - 1]
    for place in places:
        caplog.clear()
        checkpoints.newest.write_bytes(newest[:place] + bytes([newest[place] ^ 0x10]) + newest[place + 1 :])
        checkpoints.previous.write_bytes(previous)
        assert checkpoints.load()["step"] == 1, place
        assert (
            "checkpoint.pt is damaged (its checksum is wrong): the run continues from the checkpoint before"
            in caplog.text
        )


@pytest.mark.parametrize("left", [0, 1, 38, 39, 40, 1000])
def test_half_a_checkpoint_is_noticed(tmp_path, left):
    checkpoints = saved_twice(tmp_path)
    checkpoints.newest.write_bytes(checkpoints.newest.read_bytes()[:left])
    assert checkpoints.load()["step"] == 1


def test_the_good_checkpoint_is_not_replaced_by_the_damaged_one(tmp_path):
    checkpoints = saved_twice(tmp_path)
    checkpoints.newest.write_bytes(b"noise")
    state = checkpoints.load()
    checkpoints.save({**state, "step": 3})
    checkpoints.newest.write_bytes(b"noise again")
    assert checkpoints.load()["step"] == 1


def test_a_save_that_is_killed_leaves_the_state_before_it_or_the_new_one(tmp_path, monkeypatch):
    for number in range(1, 100):
        folder = tmp_path / str(number)
        folder.mkdir()
        checkpoints = saved_twice(folder)
        with killed_before(monkeypatch, number) as died:
            checkpoints.save({"step": 3})
        assert checkpoints.load()["step"] in (2, 3)
        if not died:
            break
    assert 3 < number < 99
    assert checkpoints.load()["step"] == 3


def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_damaged(tmp_path, monkeypatch):
    checkpoints = saved_twice(tmp_path)
    before = checkpoints.newest.read_bytes()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", str(checkpoints.newest))

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "open", refuse)
        with pytest.raises(PermissionError):
            checkpoints.load()
    assert checkpoints.newest.read_bytes() == before
