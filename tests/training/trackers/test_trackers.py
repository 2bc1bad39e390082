"""Names of trackers, and what is checked before any work is lost."""

import sys

import pytest

from lookalike.training.run import Plan, check_run
from lookalike.training.trackers import check_trackers, tracker_names
from lookalike.utils.files import UnwritableError
from lookalike.utils.imports import MissingLibraryError
from tests.toys import toy_data, toy_model
from tests.training.runs import names, trained


@pytest.mark.parametrize("given", [None, (), "none", ("none",)])
def test_no_tracker(given):
    assert tracker_names(given) == ()


def test_several_trackers_once_each():
    assert tracker_names("wandb,tensorboard , wandb") == ("wandb", "tensorboard")
    assert tracker_names(["trackio"]) == ("trackio",)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("tensorbord", "report_to= takes tensorboard, wandb, trackio or none, got 'tensorbord'; did you mean"),
        ("wandb,", "got ''"),
        ("none,wandb", "none stands alone"),
    ],
)
def test_an_unknown_name_is_refused_before_anything_is_written(tmp_path, given, sentence):
    with pytest.raises(ValueError, match=sentence):
        trained(tmp_path / "run", report_to=given)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_missing_library_names_its_extra(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingLibraryError, match=rf"report_to={name} needs {name}: pip install 'lookalike\[{name}\]'"):
        trained(tmp_path / "run", report_to=name)
    assert names(tmp_path) == set()


def test_a_file_in_place_of_the_log_folder(tmp_path):
    (tmp_path / "tensorboard").touch()
    with pytest.raises(UnwritableError, match="is a file where a folder is needed"):
        check_trackers(["tensorboard"], tmp_path)


def test_the_command_line_finds_out_before_it_loads_data(tmp_path):
    plan = Plan.of(toy_data(), None, toy_model())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").touch()
    with pytest.raises(UnwritableError):
        check_run(plan, tmp_path / "run", report_to="tensorboard")
