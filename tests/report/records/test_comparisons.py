import json
from pathlib import Path

import pytest

from lookalike.report.records.checks import Checker
from lookalike.report.records.comparisons import parse_comparison
from lookalike.training.comparison_results import ComparisonResult

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("compare_*.json")), ids=lambda path: path.stem)
def test_published_comparisons_are_read_whole(path):
    content, checker = json.loads(path.read_text()), Checker(path)
    comparison = parse_comparison(content, checker, data="other")
    assert checker.notices() == []
    assert comparison.data == content["data"]
    assert comparison.pairs_per_batch > 1  # by its name of then
    for row, known in zip(comparison.rows, ComparisonResult.from_json(content).rows, strict=True):
        assert vars(row) == {**vars(known), "strategy": row.strategy, "trained": row.trained}
    assert [row.sampler for row in comparison.rows if not row.trained] == ["before training"]


def test_a_row_may_leave_out_its_bits():
    spread = {"mean": 0.5, "sd": None, "values": [0.5]}
    rows = [{"sampler": name, "recall@1": spread} for name in ("ours", "lsh:128", "before training")]
    content = {"rows": rows, "settings": {"ours": {"sampler": "lsh", "bits": 64}, "lsh:128": {}}}
    comparison = parse_comparison(content, Checker(Path("x")), data="d")
    assert [row.strategy for row in comparison.rows] == ["lsh:64", "lsh:128", "before training"]
    assert [row.trained for row in comparison.rows] == [True, True, False]
    assert (comparison.data, comparison.seeds, comparison.jobs) == ("d", 1, 1)
    del content["settings"]
    assert [row.trained for row in parse_comparison(content, Checker(Path("x")), data="d").rows] == [True, True, False]
