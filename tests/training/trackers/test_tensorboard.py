"""TensorBoard for real: runs are killed, and the event files read back."""

import pytest

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from lookalike.training.run import train
from tests.processes import Child
from tests.toys import toy_data, toy_model
from tests.training.runs import brief, killed_in, trained

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard", "ignore:.*np.*:DeprecationWarning")


def events(run):
    return EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()


def curves(run):
    """Return the points of every curve, as TensorBoard shows them, except times."""
    found = events(run)
    times = ("epoch/seconds", "mining/seconds", "mining/share")
    return {
        tag: [(event.step, event.value) for event in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
        if tag not in times
    }


def resumed(folder, model):
    options = {"progress": False, "report_to": "tensorboard", "resume": True}
    train(toy_data(), brief(), out=folder, model=model, **options)


def live(folder, mode, passes):
    resumed(folder, killed_in(mode, passes))


def test_a_run_leaves_curves_and_hyperparameters(tmp_path):
    trained(tmp_path, report_to="tensorboard")
    shown = curves(tmp_path)
    assert [step for step, _ in shown["train/loss"]] == list(range(1, 9))
    assert [step for step, _ in shown["test/recall@1"]] == [0, 4, 8]
    data = events(tmp_path).SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert HParamsPluginData.FromString(data).session_start_info.hparams["sampler"].string_value == "lsh"


def test_killed_and_resumed_it_shows_each_step_once(tmp_path):
    trained(tmp_path / "whole", report_to="tensorboard")
    for mode, passes in (("training", 7), ("training", 3), ("evaluation", 2)):
        with Child(live, tmp_path / "run", mode, passes) as process:
            assert process.wait() == -9, process.errors
    resumed(tmp_path / "run", toy_model(seed=9))
    assert curves(tmp_path / "run") == curves(tmp_path / "whole")


def test_force_removes_the_curves_of_the_run_before(tmp_path):
    trained(tmp_path, report_to="tensorboard")
    trained(tmp_path, force=True)
    assert not (tmp_path / "tensorboard").exists()
