"""The benchmark that kills trainings watches methods that are there."""

import pytest

from benchmarks.kill_train import PHASES, WATCHED


@pytest.mark.parametrize(("owner", "name", "phase"), WATCHED)
def test_every_phase_is_a_method_of_the_training(owner, name, phase):
    assert callable(getattr(owner, name))
    assert phase in PHASES


def test_every_phase_but_the_start_is_watched():
    assert {phase for _, _, phase in WATCHED} == {*PHASES} - {"start"}
