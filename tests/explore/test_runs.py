"""Runs to explore: codes are kept, batches are those that the sampler composes, and pairs have two sides."""

import json
import shutil

import numpy as np
import pytest
import torch

from lookalike.explore import runs
from lookalike.explore.mates import Mates
from lookalike.explore.runs import explored_run
from lookalike.negatives.same import Marks
from lookalike.training.run import train
from lookalike.training.settings import Settings
from tests.explore.serving import paired_texts, serving
from tests.toys import write_glyph_file

SMALL = {"epochs": 1, "pairs_per_batch": 8, "bits": 64}
NETWORK = {"width": 8, "dim": 32}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    data = write_glyph_file(folder / "own.npz", classes=60)
    train(str(data), Settings(**SMALL), out=folder / "lsh", model=NETWORK, progress=False)
    for name, changes in {
        "random": {"sampler": "random"},
        "scalar": {"code": "scalar", "bits": 128},
        "incremental": {"sampler": "incremental"},
    }.items():
        train(str(data), Settings(**{**SMALL, **changes}), out=folder / name, model=NETWORK, progress=False)
    return folder


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made / "lsh", tmp_path / "lsh")


def test_the_second_start_embeds_nothing_unless_the_model_has_changed(run, monkeypatch):
    first = explored_run(run)
    assert first.neighbours.bits == 64

    def refuse(*_, **__):
        raise AssertionError("embedded again")

    with monkeypatch.context() as patch:
        patch.setattr(runs, "embed_part", refuse)
        patch.setattr(runs, "load_run_model", refuse)
        second = explored_run(run)
        assert torch.equal(first.neighbours.query, second.neighbours.query)
        weights = next(run.glob("model/*.safetensors"))
        weights.write_bytes(weights.read_bytes())
        with pytest.raises(AssertionError, match="embedded again"):
            explored_run(run)
    (run / "explore.npz").write_bytes(b"PK damaged")
    assert torch.equal(explored_run(run).neighbours.query, first.neighbours.query)
    assert explored_run(run, bits=128).neighbours.bits == 128


def test_a_run_that_was_trained_with_marks_goes_on_with_their_file(run):
    file = run.parent / "marks.jsonl"
    config = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(config | {"same_file": str(file)}))
    assert explored_run(run).marks == run / "same.jsonl"  # the file is gone
    with Marks(file, samples=explored_run(run).content.n) as marks:
        marks.mark(0, 20)
    explored = explored_run(run)
    assert explored.marks == file
    with serving(explored) as client:
        assert 20 in [each["id"] for each in client.json("api/sample/0?k=200")["positives"]]
    ids = run.parent / "marks.csv"
    ids.write_text("0,20\n")
    (run / "run.json").write_text(json.dumps(config | {"same_file": str(ids)}))
    assert explored_run(run).marks == run / "same.jsonl"  # marks cannot be appended to other files


@pytest.mark.parametrize(
    ("name", "strategy", "compared"),
    [("scalar", "scalar:128", "codes of several bits"), ("incremental", "incremental", "floats")],
)
def test_a_run_without_sign_codes_is_shown_in_them_and_says_so(made, name, strategy, compared):
    explored = explored_run(made / name)
    assert explored.neighbours.bits == 512
    assert explored.details[-1] == f"trained with {strategy}, seed 0"
    assert "composed from these sign codes" in explored.mates_note
    assert f"the run itself compared {compared}" in explored.mates_note
    with serving(explored) as client:
        answer = client.json("api/sample/0")
        assert len(answer["mates"]) >= 2
        assert answer["negatives"][0]["distance"] <= 512
        assert client.json("api/suspects")["problem"] == ""


@pytest.mark.parametrize("name", ["lsh", "random"])
def test_batch_mates_are_those_of_a_composed_epoch(made, name):
    explored = explored_run(made / name)
    with serving(explored) as client:
        answer = client.json("api/sample/0")
        assert answer["mates_note"].startswith("Batch ")
        assert ("random" in answer["mates_note"]) == (name == "random")
        labels = [each["label"] for each in answer["mates"]]
        assert answer["sample"]["label"] not in labels
        assert 2 <= len(labels) <= 14  # two of each of seven other pairs, or fewer in the last batch
        distances = [each["distance"] for each in answer["mates"]]
        assert distances == sorted(distances)
        status, headers, png = client.ask("image/sample/0")
        assert (status, headers["content-type"], png[:4]) == (200, "image/png", b"\x89PNG")
        assert client.ask("image/query/0")[0] == client.ask("image/sample/99999")[0] == 404
    assert json.loads((made / name / "same.jsonl").read_text().splitlines()[0])["checksum"] == explored.checksum


def test_pairs_show_both_sides(tmp_path):
    explored = paired_texts(tmp_path)
    with serving(explored, tmp_path / "m.jsonl") as client:
        assert client.json("api/about")["paired"]
        found = client.json("api/search?q=answer+17")["samples"]
        assert found[0]["views"]["query"].startswith("question 17")
        answer = client.json(f"api/sample/{found[0]['id']}")
        assert [each["id"] for each in answer["positives"]] == [found[0]["id"]]  # its own reference
        assert len(answer["negatives"]) == explored.content.n - 1
        assert client.json("api/suspects")["problem"] == ""


def test_unfinished_runs_are_refused(run):
    (run / "result.json").unlink()
    with pytest.raises(ValueError, match=r"no finished run: .* lookalike train --out .*lsh --resume"):
        explored_run(run)


def test_a_sample_in_no_batch_has_no_mates():
    mates = Mates(np.array([0, 1, 3, 4], np.int32), np.array([0, 2, 4]), 5)
    assert mates.of(2)[0] == -1
    assert (mates.of(4)[0], mates.of(4)[1].tolist()) == (1, [3])
