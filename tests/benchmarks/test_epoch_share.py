"""The parts of an epoch add up, and come from results of one length."""

import pytest

from benchmarks import record
from benchmarks.epoch_share import STEP, TABLES, Share, shares


def test_parts_add_up():
    share = Share(pairs_per_step=128, search=0.1, composition=0.4, observe=0.0001)
    assert share.steps == 4162
    assert share.mining == pytest.approx(0.1 + 0.4 + 0.4162)
    assert share.fraction == pytest.approx(share.mining / (4162 * STEP))


def test_larger_batches_leave_composition_less_time():
    fractions = [share.fraction for share in shares()]
    assert fractions == sorted(fractions)


def test_results_of_another_length_are_refused(monkeypatch):
    read = record.read
    change = {"settings": {"bits": 256}}
    monkeypatch.setattr(record, "read", lambda name: read(name) | (change if name == "observe" else {}))
    with pytest.raises(ValueError, match="measured with 512 bits"):
        TABLES["epoch_share"]()
