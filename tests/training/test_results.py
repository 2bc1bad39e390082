"""Results of runs: they survive JSON, and sum up their epochs."""

import json

import pytest

from lookalike.training.results import EpochMetrics, RunResult

QUALITY = {"recall@1": 0.5, "recall@1%": 1.0, "mrr@10": 0.7, "queries": 8}
EPOCHS = [
    EpochMetrics(epoch=0, step=0, quality={"recall@1": 0.1}),
    EpochMetrics(epoch=1, step=10, loss=2.0, seconds=4.0, mining_seconds=0.0, mining_share=0.0, kept_bytes=9),
    EpochMetrics(epoch=2, step=20, seconds=5.0, mining_seconds=1.0, kept_bytes=9),
    EpochMetrics(epoch=3, step=30, seconds=3.0, mining_seconds=1.0, kept_bytes=7, quality=QUALITY, bits=64),
]


VALIDATED = [
    EpochMetrics(epoch=0, step=0, quality={"recall@1": 0.1}, validation={**QUALITY, "mrr@10": 0.99}),
    EpochMetrics(epoch=1, step=10, kept_bytes=9, quality=QUALITY, validation={**QUALITY, "mrr@10": 0.9}),
    EpochMetrics(epoch=2, step=20, kept_bytes=9, validation={**QUALITY, "mrr@10": 0.8}),
]


@pytest.mark.parametrize("epoch", [*EPOCHS, *VALIDATED])
def test_an_epoch_is_a_flat_line_of_json(epoch):
    line = json.loads(json.dumps(epoch.as_json()))
    assert EpochMetrics.from_json(line) == epoch
    assert EpochMetrics.from_json({**line, "something": "else"}) == epoch
    assert set(line) >= set(epoch.quality)
    assert None not in line.values()


def test_what_is_zero_is_not_unknown():
    assert EPOCHS[1].as_json()["mining_seconds"] == 0.0


def test_a_result_sums_up_its_epochs():
    result = RunResult.of_epochs(EPOCHS, config={"seed": 1}, parameters=5)
    assert (result.metrics, result.zero_shot) == (QUALITY, {"recall@1": 0.1})
    assert (result.epochs, result.seconds, result.kept_bytes, result.parameters) == (3, 12.0, 7, 5)
    assert (result.mining_seconds_per_epoch, result.mining_share) == (1.0, 0.25)  # without the first epoch
    assert RunResult.from_json(json.loads(json.dumps(result.as_json()))) == result


def test_with_a_validation_part_the_best_epoch_is_the_result():
    result = RunResult.of_epochs(VALIDATED, config={})
    assert (result.best_epoch, result.metrics, result.validation) == (1, QUALITY, {**QUALITY, "mrr@10": 0.9})
    assert (result.epochs, result.zero_shot) == (2, {"recall@1": 0.1})
    assert RunResult.from_json(json.loads(json.dumps(result.as_json()))) == result


def test_the_mining_of_a_single_epoch_is_that_of_its_warm_start():
    result = RunResult.of_epochs(EPOCHS[1:2], config={})
    assert (result.zero_shot, result.mining_seconds_per_epoch, result.mining_share) == (None, 0.0, 0.0)
    assert RunResult.of_epochs(EPOCHS[2:3], config={}).mining_seconds_per_epoch == EPOCHS[2].mining_seconds
