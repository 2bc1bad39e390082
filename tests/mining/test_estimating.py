"""A dry run measures a few rows, does no cell and leaves nothing; what it counts is what a run does."""

from pathlib import Path

import numpy as np
import pytest

from lookalike import mine_hard_negatives
from lookalike.mining import DryRun, Estimate, estimating, mine_embeddings
from lookalike.mining.cells import STAGES, Grid
from lookalike.mining.estimating import found_bytes, hint_bytes, spoken_size, spoken_time
from lookalike.mining.run import Run
from tests.mining.cells import embeddings


@pytest.fixture
def _no_cell(monkeypatch):
    def done(_, cell, *__):
        raise AssertionError(f"did {cell.name}")

    monkeypatch.setattr(Run, "do", done)


@pytest.mark.usefixtures("_no_cell")
def test_embeddings_are_estimated_and_not_mined(tmp_path, capsys):
    estimate = mine_embeddings(
        embeddings(100), labels=np.arange(100) // 2, output=tmp_path / "out.npy", engine=DryRun(), block=16, bits=64
    )
    assert isinstance(estimate, Estimate)
    assert {each.stage: (each.cells, each.amount) for each in estimate.stages} == {
        "hash": (7, 100),
        "search": (7, 100 * 100),
        "finish": (7, 100),
    }
    assert all(each.rate > 0 for each in estimate.stages)
    assert estimate.seconds == pytest.approx(sum(each.amount / each.rate for each in estimate.stages))
    assert estimate.stages[0].disk == 100 * 64 // 8
    assert list(tmp_path.iterdir()) == []
    said = " ".join(capsys.readouterr().out.split())
    assert "For one process: under 1 s, " in said
    assert said.endswith(" of memory besides Python, libraries and the model. Nothing was mined.")


@pytest.mark.usefixtures("_no_cell")
def test_texts_are_read_and_a_few_are_encoded(dataset, model, tmp_path):
    pytest.importorskip("sentence_transformers")
    estimate = mine_hard_negatives(dataset, model, output=tmp_path / "mined", engine=DryRun(), verbose=False)
    encode = estimate.stages[0]
    size = 126 * 4 * len(model.encode("bal"))
    assert (encode.stage, encode.cells, encode.amount, encode.disk) == ("encode", 2, 126, size)
    assert list(tmp_path.iterdir()) == []
    for code, stages in (("signs", STAGES), ("scalar", ("fit", *STAGES))):
        options = {"code": code, "rescore": "codes", "engine": DryRun(), "verbose": False}
        codes = mine_hard_negatives(dataset, model, output=tmp_path / "mined", **options)
        assert tuple(each.stage for each in codes.stages) == stages
        assert {each.stage: each.disk for each in codes.stages}["encode"] == 126 * 1024 // 8
        assert all(each.rate > 0 for each in codes.stages)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_no_cell")
def test_candidates_are_read_from_the_rows_themselves(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", embeddings(100))
    scored = []
    monkeypatch.setattr(estimating, "list_scores", lambda queries, reference, *_: scored.append((queries, reference)))
    mine_embeddings(str(tmp_path / "x.npy"), engine=DryRun(), output=tmp_path / "out.npy", bits=64, verbose=False)
    assert {Path(each.rows.path) for each in scored[0]} == {tmp_path / "x.npy"}


def test_later_columns_cost_less_than_the_first():
    one = Grid(1000, 1000, itself=True, encodes=False, block=1000)
    many = Grid(1000, 64 * 1000 * 10, itself=False, encodes=False, block=1000)
    assert found_bytes(one, 64) == 1000 * 64 * 6
    assert hint_bytes(one, 64) == 0
    assert found_bytes(one, 64) < found_bytes(many, 64) < 10 * found_bytes(one, 64)
    assert hint_bytes(many, 64) == 1000 * 64 * 2


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "under 1 s"), (59.6, "60 s"), (119, "119 s"), (121, "2 min"), (7199, "120 min"), (7200, "2 h")],
)
def test_times_are_in_the_unit_that_suits_them(seconds, said):
    assert spoken_time(seconds) == said


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0 kB"), (1, "1 kB"), (10**6, "1 MB"), (10**9, "1.0 GB"), (2.5e12, "2.5 TB")]
)
def test_sizes_are_in_the_unit_that_suits_them(size, said):
    assert spoken_size(size) == said
