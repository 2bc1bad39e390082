"""Marks decide a run: they keep samples apart, and a run resumes with the marks it was begun with."""

import json

import pytest

from lookalike.negatives.same import Marks
from lookalike.training.run import Plan, train
from lookalike.training.settings import SAMPLERS
from tests.toys import toy_data, toy_model
from tests.training.runs import brief, quick, stopped, trained, weights

SAME = [[0, 7], [7, 21], [30, 31]]


def marked(path, pairs=SAME, **data):
    with Marks(path, samples=120, **data) as marks:
        for pair in pairs:
            marks.mark(*pair)
    return path


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_marked_pairs_never_meet_in_a_batch(tmp_path, monkeypatch, sampler, share):
    data, read = toy_data(paired=True), []

    def noting(self, ids, seed=None):
        if seed is not None:  # a batch to train on
            read.append(set(ids.tolist()))
        return self.x[ids]

    monkeypatch.setattr(type(data.train), "queries", noting)
    settings = quick(sampler, epochs=2, pairs_per_batch=4, warm_start="off", validation_share=share)
    train(data, settings, out=tmp_path / "run", model=toy_model(), progress=False, same=SAME[:2])
    assert max(map(len, read)) == 4  # batches, under the ids of the whole training part
    assert all(len(ids & {0, 7, 21}) < 2 for ids in read)


def test_the_configuration_records_the_marks_and_a_resumed_run_needs_the_same(tmp_path):
    file = marked(tmp_path / "marks.jsonl", checksum=toy_data().checksum)
    stopped(tmp_path / "run", 5, same=file)
    config = json.loads((tmp_path / "run" / "run.json").read_text())
    assert config["same"]["pairs"] == 3
    assert config["same_file"] == str(file)
    moved = marked(tmp_path / "moved.jsonl", [pair[::-1] for pair in SAME[::-1]])
    for other, now in ((None, "now None"), (SAME[:2], r"now \{'pairs': 2, 'checksum': '\w{8}'\}")):
        with pytest.raises(ValueError, match=rf"same was \{{'pairs': 3, 'checksum': '\w{{8}}'\}}, {now}"):
            trained(tmp_path / "run", resume=True, same=other)
    trained(tmp_path / "run", resume=True, same=moved)
    trained(tmp_path / "whole", same=SAME)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_a_run_without_marks_is_not_continued_with_some(tmp_path):
    stopped(tmp_path / "run", 5)
    with pytest.raises(ValueError, match=r"same was None, now {'pairs': 3"):
        trained(tmp_path / "run", resume=True, same=SAME)
    trained(tmp_path / "run", resume=True, same=[])


def test_mistakes_come_before_anything_is_written(tmp_path):
    other = marked(tmp_path / "marks.jsonl", checksum="other")
    for same, error, sentence in (
        (tmp_path / "nowhere.jsonl", FileNotFoundError, "there is no such file of pairs that are the same"),
        (other, ValueError, r"they are of 120 samples \(checksum other\), here there are 120 samples \(checksum 30-"),
        ([[0, 120]], ValueError, "second must be an id between 0 and 119, got 120"),
    ):
        with pytest.raises(error, match=sentence):
            trained(tmp_path / "run", brief(), same=same)
    assert not (tmp_path / "run").exists()


def test_a_recorded_plan_knows_its_file(tmp_path):
    plan = Plan.of("glyphs", None, None, tmp_path / "marks.jsonl")
    (tmp_path / "run.json").write_text(json.dumps({**plan.config(), "model": "x"}))
    assert Plan.recorded(tmp_path).same == str(tmp_path / "marks.jsonl")
