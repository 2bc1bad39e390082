"""A judge drops candidates that it scores as high as a positive, and they are written to a file of their own."""

import numpy as np
import pytest
import torch

from lookalike.mining import text_mining
from lookalike.mining.judging import likely_path
from tests.mining.shares import mine_texts
from tests.mining.words import make_columns, read_jsonl, write_jsonl

pytest.importorskip("datasets")


@pytest.fixture
def pairs(tmp_path):
    return write_jsonl(tmp_path / "pairs.jsonl", make_columns())


def vowels(text):
    return float(sum(text.count(letter) for letter in "aeu"))


class Judge:
    """Scores a pair by the vowels of the text, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, pairs):
        self.asked += pairs
        return [vowels(text) for _, text in pairs]


def lowest(query):
    columns = make_columns()
    return min(vowels(a) for q, a in zip(columns["query"], columns["answer"], strict=True) if q == query)


@pytest.mark.parametrize("name", ["out.jsonl", "out"])
def test_likely_positives_are_dropped_and_written(pairs, tmp_path, name):
    judge, output = Judge(), tmp_path / name
    summary = mine_texts(pairs, output, judge=judge, judge_margin=0.2)
    likely = read_jsonl(likely_path(output))
    assert summary.dropped["judge"] == len(likely) > 20
    for row in likely:
        assert row["judged"] == vowels(row["text"]) >= row["lowest_positive"] == lowest(row["query"])
    asked = {tuple(pair) for pair in judge.asked}
    assert {(row["query"], row["text"]) for row in likely} <= asked
    if output.suffix:
        dropped = {(row["query"], row["text"]) for row in likely}
        written = [(row["query"], row["negative"]) for row in read_jsonl(output)]
        assert not dropped & {*written}
        assert all(vowels(text) < lowest(query) for query, text in asked & {*written})


def test_likely_positives_of_an_earlier_run_do_not_stay(pairs, tmp_path):
    output = tmp_path / "out.jsonl"
    mine_texts(pairs, output, judge=Judge(), judge_margin=0.2)
    mine_texts(pairs, output, judge=Judge(), judge_margin=0, force=True)
    mine_texts(pairs, tmp_path / "fresh.jsonl", judge=Judge(), judge_margin=0)
    assert likely_path(output).read_bytes() == likely_path(tmp_path / "fresh.jsonl").read_bytes()
    mine_texts(pairs, output, force=True)
    assert not likely_path(output).exists()


def test_only_what_is_as_near_as_the_positives_is_asked_about(pairs, tmp_path):
    few, many = Judge(), Judge()
    mine_texts(pairs, tmp_path / "few.jsonl", judge=few, judge_margin=0)
    mine_texts(pairs, tmp_path / "many.jsonl", judge=many, judge_margin=2)
    assert len(few.asked) < len(many.asked)


def test_an_object_with_predict_judges_the_same(pairs, tmp_path):
    class CrossEncoder:
        def predict(self, pairs, **options):
            assert options == {"show_progress_bar": False}
            return np.array([vowels(text) for _, text in pairs])

    mine_texts(pairs, tmp_path / "a.jsonl", judge=Judge())
    mine_texts(pairs, tmp_path / "b.jsonl", judge=CrossEncoder())
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert likely_path(tmp_path / "a.jsonl").read_bytes() == likely_path(tmp_path / "b.jsonl").read_bytes()


class Weighted(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(weight))

    def judge(self, pairs):
        return self.weight * torch.tensor([vowels(text) for _, text in pairs])


def judge(pairs):
    return [-vowels(text) for _, text in pairs]


def other_judge(pairs):
    return [vowels(text) for _, text in pairs]


other_judge.__qualname__, other_judge.__module__ = judge.__qualname__, "another"


@pytest.mark.parametrize(("first", "second"), [(judge, other_judge), (Weighted(-1.0).judge, Weighted(1.0).judge)])
def test_a_resumed_run_takes_nothing_that_another_judge_decided(pairs, tmp_path, monkeypatch, first, second):
    with monkeypatch.context() as patched:
        patched.setattr(text_mining, "writing_rows", None)  # all cells are done, and nothing is written
        with pytest.raises(TypeError):
            mine_texts(pairs, tmp_path / "out.jsonl", judge=first, judge_margin=0.2)
    mine_texts(pairs, tmp_path / "out.jsonl", judge=second, judge_margin=0.2)
    mine_texts(pairs, tmp_path / "alone.jsonl", judge=second, judge_margin=0.2)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (lambda pairs: [1.0] * (len(pairs) + 1), r"got \[\d+\]\."),
        (lambda pairs: torch.ones(len(pairs), 2), r"got \[\d+, 2\]\."),
        (lambda pairs: [float("nan")] * len(pairs), r"with NaN or infinity\."),
        (lambda pairs: [float("inf")] * len(pairs), r"with NaN or infinity\."),
        (lambda _: None, "got NoneType"),
        (lambda pairs: ["yes"] * len(pairs), "got list"),
    ],
)
def test_a_judge_that_returns_something_else_is_refused(pairs, tmp_path, wrong, got):
    with pytest.raises(ValueError, match=rf"the judge must return one finite score per pair, \[\d+\], .*{got}"):
        mine_texts(pairs, tmp_path / "out.jsonl", judge=wrong)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_margin_outside_its_range_is_refused(pairs, tmp_path):
    with pytest.raises(ValueError, match="judge_margin must be"):
        mine_texts(pairs, tmp_path / "out.jsonl", judge=Judge(), judge_margin=-0.1)
