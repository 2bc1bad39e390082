from pathlib import Path

import pytest

from lookalike.report.records.checks import Checker
from lookalike.report.records.runs import Run, parse_config, parse_epochs, parse_result
from lookalike.training.comparison_results import METRICS
from lookalike.training.results import EpochMetrics

QUALITY = dict.fromkeys(METRICS, 0.5)


@pytest.fixture
def checker():
    return Checker(Path("x"))


def config(**content):
    return parse_config({"sampler": "lsh", "bits": 64, "epochs": 3, "seed": 1, **content}, Checker(Path("x")))


def test_epochs_are_typed_in_order_and_the_last_line_of_one_counts(checker):
    lines = [{"epoch": 2, "loss": 9.0}, {"epoch": 1, **QUALITY}, {"epoch": 0, **QUALITY}, {"epoch": 2, "loss": 2.0}]
    assert parse_epochs(enumerate(lines, 1), checker) == [
        EpochMetrics(epoch=1, quality=QUALITY),
        EpochMetrics(epoch=2, loss=2.0),
    ]
    assert checker.notices() == []


def test_values_that_do_not_fit_are_left_out_and_named(checker):
    line = {"epoch": 1, "loss": "x", "recall@1": 7, "bits": 64, "overlap": {"64": 0.5, "128": -1, "many": 0.5}}
    assert parse_epochs([(4, line), (5, None)], checker) == [EpochMetrics(epoch=1, bits=64, overlap={"64": 0.5})]
    assert checker.notices() == [
        "x, line 4: recall@1 is not a fraction between 0 and 1; ignored.",
        "x, line 4: loss is not a number; ignored.",
        "x, line 4: overlap 128 is not a fraction between 0 and 1; ignored.",
        "x, line 5: the line is damaged; skipped it.",
    ]


def test_validation_is_read_and_damage_in_it_is_named(checker):
    lines = [{"epoch": 1, "validation": {**QUALITY, "mrr@10": 2}}, {"epoch": 2, "validation": 3}]
    without = {name: value for name, value in QUALITY.items() if name != "mrr@10"}
    assert parse_epochs(enumerate(lines, 1), checker) == [
        EpochMetrics(epoch=1, validation=without),
        EpochMetrics(epoch=2),
    ]
    assert [notice.partition(":")[0] for notice in checker.notices()] == ["x, line 1", "x, line 2"]


def test_a_run_says_which_epoch_was_best(checker):
    result = parse_result({"metrics": QUALITY, "best_epoch": 2}, checker, config=config())
    run = Run(path=Path("x"), config=config(), epochs=[], result=result)
    assert run.state == "finished, best epoch by validation: 2"
    plain = parse_result({"metrics": QUALITY, "best_epoch": None}, checker, config=config())
    assert Run(path=Path("x"), config=config(), epochs=[], result=plain).state == "finished"
    assert Run(path=Path("x"), config=config(), epochs=[]).state == "epoch 0 of 3"
    assert checker.notices() == []


def test_the_outcome_of_an_unfinished_run_is_that_of_its_last_evaluation():
    epochs = [
        EpochMetrics(epoch=1, quality=QUALITY, seconds=30.0, mining_seconds=20.0),
        EpochMetrics(epoch=2, quality={**QUALITY, "recall@1": 0.7}, seconds=10.0, mining_seconds=1.0),
        EpochMetrics(epoch=3, seconds=10.0, mining_seconds=3.0, kept_bytes=800),
    ]
    run = Run(path=Path("x"), config=config(), epochs=epochs)
    outcome = run.outcome()
    assert outcome.metrics["recall@1"] == 0.7
    assert outcome.config["seed"] == 1
    assert (outcome.seconds, outcome.kept_bytes) == (50.0, 800)
    assert (outcome.mining_seconds_per_epoch, outcome.mining_share) == (2.0, 0.2)  # without the first epoch
    assert run.progress == "epoch 3 of 3"
    assert Run(path=Path("x"), config=config(), epochs=epochs[2:]).outcome() is None


def test_a_result_needs_all_its_metrics(checker):
    result = parse_result({"metrics": QUALITY, "seconds": 3, "kept_bytes": -1}, checker, config=config())
    assert (result.metrics, result.seconds, result.kept_bytes) == (QUALITY, 3, None)
    assert parse_result({"metrics": {"recall@1": 0.5}}, checker, config=config()) is None
    assert checker.notices() == [
        "x: kept_bytes is not an integer of at least 0 or null; ignored.",
        "x: recall@5 is missing; showing the run's metrics only.",
    ]


def test_the_identity_of_a_configuration_leaves_out_what_the_sampler_ignores():
    random = config(sampler="random", hardness=0.5, data_root="/here", model_options={"width": 8})
    assert set(random.identity) == {"sampler", "epochs", "width"}
    assert not random.mines
    assert config(learning_rate=1.0).identity["learning_rate"] == ("1.0", "1")
    assert (config().strategy, config(bits="auto").strategy, config(bits=0).strategy) == (
        "lsh:64",
        "lsh:auto",
        "lsh:?",
    )
