import json
import shutil

import numpy as np
import pytest

from lookalike.data import DataSource
from lookalike.data.labels import load_labels
from lookalike.data.synthetic import clustered_embeddings
from lookalike.training.run import train
from lookalike.training.settings import Settings
from tests.cli.test_cli_training import run
from tests.toys import write_glyph_file


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embeddings")
    x, labels = clustered_embeddings(2000, dim=64)
    np.save(folder / "x.npy", x.numpy())
    np.save(folder / "labels.npy", labels.numpy())
    return folder


def test_embeddings_from_a_file(embeddings):
    arguments = (
        "analyze",
        embeddings / "x.npy",
        "--labels",
        embeddings / "labels.npy",
        "--bits",
        "64,256",
        "--k",
        "20",
    )
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    rows = [line.split("│")[1:3] for line in out.splitlines() if line.startswith("│")]
    names = [" ".join(cell.strip() for cell in row).strip() for row in rows]
    assert names[:3] == ["exact", "lsh 64", "lsh 256"]
    assert "codes with the compiled kernel (backend cpu)" in " ".join(out.split())
    result = json.loads((embeddings / "x.npy.analysis.json").read_text())
    assert result["settings"]["labels"] is True
    assert result["rows"][1]["overlap"]["mean"] > result["rows"][0]["overlap"]["mean"]
    code, _, err = run(*arguments)
    assert code == 2
    assert "exists; --force overwrites it" in err
    assert run(*arguments, "--force")[0] == 0


def test_a_training_run(tmp_path):
    data = str(write_glyph_file(tmp_path / "own.npz", classes=120))
    settings = Settings(epochs=1, pairs_per_batch=8, bits=64)
    train(DataSource(data), settings, out=tmp_path / "run", model={"width": 8, "dim": 32}, progress=False)
    code, _, err = run("analyze", tmp_path / "run", "--bits", "64", "--k", "10")
    assert (code, err) == (0, "")
    result = json.loads((tmp_path / "run" / "analysis.json").read_text())
    assert result["settings"]["dim"] == 32
    shutil.rmtree(tmp_path / "run" / "model")
    code, _, err = run("analyze", tmp_path / "run", "--force")
    assert code == 2
    assert "holds no finished run" in err


def test_labels_from_text(tmp_path):
    (tmp_path / "labels.txt").write_text("b\na\nb\n")
    assert load_labels(tmp_path / "labels.txt", 3).tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match=r"one label per embedding, 4, got the shape \[3\]"):
        load_labels(tmp_path / "labels.txt", 4)
    with pytest.raises(FileNotFoundError, match="no such file of labels"):
        load_labels(tmp_path / "absent.txt", 4)


def test_lines_of_labels_are_read_as_those_of_texts(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_bytes("\ufeffan owl\r\na\u2028cat\n\n an owl \n".encode())
    assert load_labels(path, 3).tolist() == [0, 1, 0]
    path.write_bytes(b"owl\ncaf\xe9\n")
    with pytest.raises(ValueError, match=r"labels.txt, line 2 is not UTF-8 \(byte 0xe9\); save the file as UTF-8.$"):
        load_labels(path, 2)


def test_labels_may_be_any_text(tmp_path):
    (tmp_path / "labels.txt").write_text("golden retriever\n# 7\ngolden retriever\n\n")
    assert load_labels(tmp_path / "labels.txt", 3).tolist() == [1, 0, 1]
    np.save(tmp_path / "labels.npy", np.array(["owl", "cat", "owl"]))
    assert load_labels(tmp_path / "labels.npy", 3).tolist() == [1, 0, 1]
    np.save(tmp_path / "labels.npy", np.array(["owl", "cat", "owl"], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"holds Python objects, .* numpy.save\(path, labels.astype\(str\)\)"):
        load_labels(tmp_path / "labels.npy", 3)
    np.save(tmp_path / "labels.npy", np.array([[1], [2], [1]]))
    with pytest.raises(ValueError, match=r"one label per embedding, 3, got the shape \[3, 1\]"):
        load_labels(tmp_path / "labels.npy", 3)


@pytest.mark.parametrize("command", [("analyze",), ("plan",), ("mine", "--output", "x.npy", "--embeddings")])
@pytest.mark.parametrize(("dtype", "sentence"), [(str, "holds text, not embeddings"), (object, "holds Python objects")])
def test_text_instead_of_embeddings_is_said_in_one_line(tmp_path, command, dtype, sentence):
    np.save(tmp_path / "x.npy", np.array(["a text", "another"] * 200, dtype), allow_pickle=True)
    code, _, err = run(*command, tmp_path / "x.npy")
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_labels_that_are_all_different_are_said_before_mining(embeddings):
    np.save(embeddings / "different.npy", np.arange(2000))
    arguments = ("--embeddings", embeddings / "x.npy", "--labels", embeddings / "different.npy")
    code, _, err = run("mine", *arguments, "--output", embeddings / "mined.npy")
    assert code == 2
    assert "all 2,000 labels are different, so that no row has a positive" in err
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
def test_mistakes_are_said_in_one_line(tmp_path, make, sentence):
    np.save(tmp_path / "x.npy", make())
    code, _, err = run("analyze", tmp_path / "x.npy")
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1
