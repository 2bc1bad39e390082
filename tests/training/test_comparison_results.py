"""Results of comparisons: means over seeds, and the JSON of committed results."""

import json

import pytest

from benchmarks import record
from lookalike.training.comparison_results import METRICS, ComparisonResult, summarize, zero_shot_rows
from lookalike.training.results import RunResult


def result(seed, recall, before=None):
    return RunResult(
        config={"seed": seed},
        metrics=dict.fromkeys(METRICS, recall),
        zero_shot=before and dict.fromkeys(METRICS, before),
        seconds=1.0,
        kept_bytes=5,
    )


def test_rows_have_means_deviations_and_standard_errors():
    rows = summarize({"random": [result(0, 0.5), result(1, 0.7)], "lsh:8": [result(1, 0.8), result(0, 0.8)]})
    assert rows[0].quality["recall@1"].mean == pytest.approx(0.6)
    assert rows[0].quality["recall@1"].sd == pytest.approx(0.1414, abs=1e-4)
    assert rows[1].gain_over_random.mean == pytest.approx(0.2)
    assert rows[1].gain_over_random.standard_error == pytest.approx(0.1)
    assert rows[0].gain_over_random is None
    assert "gain_over_random" not in rows[0].as_json()


def test_values_are_in_the_order_of_the_seeds():
    (row,) = summarize({"full": [result(2, 0.3), result(0, 0.1), result(1, 0.2)]})
    assert row.quality["mrr@10"].values == [0.1, 0.2, 0.3]


def test_a_single_seed_has_no_deviation_and_no_gain():
    rows = summarize({"random": [result(0, 0.5)], "lsh:8": [result(0, 0.8)]})
    assert [row.quality["recall@1"].sd for row in rows] == [None, None]
    assert [row.gain_over_random for row in rows] == [None, None]


def test_the_model_before_training_is_a_row_if_every_run_recorded_it():
    (row,) = zero_shot_rows({"random": [result(1, 0.5, 0.2), result(0, 0.5, 0.1)], "lsh:8": [result(0, 0.8, 0.1)]})
    assert (row.sampler, row.runs, row.quality["recall@5"].values) == ("before training", 2, [0.1, 0.2])
    assert zero_shot_rows({"random": [result(0, 0.5, 0.1), result(1, 0.5)]}) == []


@pytest.mark.parametrize("path", sorted(record.RESULTS.glob("compare_*.json")), ids=lambda path: path.stem)
def test_committed_comparisons_are_read_and_written_alike(path):
    content = json.loads(path.read_text())
    table = ComparisonResult.from_json(content)
    assert table.as_json() == content
    text = table.as_markdown()
    assert text.count("\n| ") == len(table.rows) + 1
    assert f"{next(iter(table.settings.values()))['pairs_per_batch']} pairs per batch" in text
    assert ("mining, epoch" in text) == (table.jobs == 1)
