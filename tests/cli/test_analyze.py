"""`lookalike analyze`, and files of embeddings that every command reads."""

import json
import shutil

import numpy as np
import pytest

from lookalike.data.synthetic import clustered_embeddings
from lookalike.training.run import train
from lookalike.training.settings import Settings
from tests.cli.runs import MODEL


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embeddings")
    x, labels = clustered_embeddings(2000, dim=64)
    np.save(folder / "x.npy", x.numpy())
    np.save(folder / "labels.npy", labels.numpy())
    return folder


def test_embeddings_from_a_file(run_here, embeddings):
    labels = ("--labels", embeddings / "labels.npy")
    arguments = ("analyze", embeddings / "x.npy", *labels, "--bits", "64,256", "--k", "20")
    code, out, err = run_here(*arguments)
    assert (code, err) == (0, "")
    rows = [line.split("│")[1:3] for line in out.splitlines() if line.startswith("│")]
    names = [" ".join(cell.strip() for cell in row).strip() for row in rows]
    assert names[:3] == ["exact", "lsh 64", "lsh 256"]
    assert "codes with the compiled kernel (backend cpu)" in " ".join(out.split())
    result = json.loads((embeddings / "x.npy.analysis.json").read_text())
    assert result["settings"]["labels"] is True
    assert result["rows"][1]["overlap"]["mean"] > result["rows"][0]["overlap"]["mean"]
    code, _, err = run_here(*arguments)
    assert code == 2
    assert "exists; --force overwrites it" in err
    assert run_here(*arguments, "--force")[0] == 0


def test_a_training_run(run_here, glyph_file, tmp_path):
    settings = Settings(epochs=1, pairs_per_batch=8, bits=64)
    train(str(glyph_file), settings, out=tmp_path / "run", model=MODEL, progress=False)
    code, _, err = run_here("analyze", tmp_path / "run", "--bits", "64", "--k", "10")
    assert (code, err) == (0, "")
    result = json.loads((tmp_path / "run" / "analysis.json").read_text())
    assert result["settings"]["dim"] == 32
    shutil.rmtree(tmp_path / "run" / "model")
    code, _, err = run_here("analyze", tmp_path / "run", "--force")
    assert code == 2
    assert "holds no finished run" in err


@pytest.mark.parametrize("command", [("analyze",), ("plan",), ("mine", "--output", "mined.npy", "--embeddings")])
@pytest.mark.parametrize(("dtype", "sentence"), [(str, "holds text, not embeddings"), (object, "holds Python objects")])
def test_text_instead_of_embeddings_is_one_line(run_here, tmp_path, command, dtype, sentence):
    np.save(tmp_path / "x.npy", np.array(["a text", "another"] * 200, dtype), allow_pickle=True)
    code, _, err = run_here(*command, tmp_path / "x.npy")
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_labels_that_are_all_different_are_noticed_before_mining(run_here, embeddings):
    np.save(embeddings / "different.npy", np.arange(2000))
    arguments = ("--embeddings", embeddings / "x.npy", "--labels", embeddings / "different.npy")
    code, _, err = run_here("mine", *arguments, "--output", embeddings / "mined.npy")
    assert code == 2
    assert "all 2,000 labels are different, so no row has a positive" in err
    assert not (embeddings / "mined.npy").exists()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: np.zeros((200, 8), np.float32), "nothing but zeros"),
        (lambda: np.ones((200, 8), np.float32), "the same embedding 200 times"),
        (lambda: np.full((200, 8), np.nan, np.float32), "row 0 has NaN"),
        (lambda: np.eye(100, 8, dtype=np.float32), "has 100 rows and at least 129 are needed"),
        (lambda: np.arange(100), r"must hold embeddings of the shape [n, dim]"),
    ],
)
def test_mistakes_are_one_line(run_here, tmp_path, make, sentence):
    np.save(tmp_path / "x.npy", make())
    code, _, err = run_here("analyze", tmp_path / "x.npy")
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1
