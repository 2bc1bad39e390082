import json
import sys

import pytest
import torch

from lookalike.data import load_data
from tests.data.miniatures import damage, write_csv, write_image, write_parquet

pytestmark = pytest.mark.usefixtures("cache")


def test_a_table_of_labels(tmp_path):
    rows = [(write_image(tmp_path / f"{i}.png", i).name, f"class, {i // 2}") for i in range(60)]
    path = write_csv(tmp_path / "own.csv", ["path", "label"], rows)
    data = load_data("table", path, size=8, test_share=0.5)
    assert data.train.pairs is None
    assert data.counts["training images"] + data.counts["test images"] == 60
    split = write_csv(
        tmp_path / "split.csv",
        ["file", "product", "split"],
        [(tmp_path / name, label, "train" if i < 50 else "test") for i, (name, label) in enumerate(rows)],
    )
    data = load_data("table", split, size=8, columns={"path": "file", "label": "product"})
    assert data.counts == {"training images": 50, "training classes": 25, "test images": 10, "test classes": 5}
    damage(tmp_path / "7.png")
    data = load_data("table", split, size=8, columns={"path": "file", "label": "product"}, on_error="skip")
    assert data.counts["training images"] == 49


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_table_of_pairs(tmp_path, suffix):
    rows = []
    for i in range(20):
        write_image(tmp_path / "q" / f"{i}.png", i)
        write_image(tmp_path / "r" / f"{i // 2}.png", 100 + i // 2)
        rows.append((f"q/{i}.png", f"r/{i // 2}.png", "train" if i < 12 else "val"))
    path = write_csv(tmp_path / "own.csv", ["query", "reference", "split"], rows)
    if suffix == "jsonl":
        path = tmp_path / "own.jsonl"
        lines = [json.dumps(dict(zip(("query", "reference", "split"), row, strict=True))) for row in rows]
        path.write_text("\n".join(lines))
    if suffix == "parquet":
        columns = dict(zip(("query", "reference", "split"), map(list, zip(*rows, strict=True)), strict=True))
        path = write_parquet(tmp_path / "own.parquet", **columns)
    data = load_data("table", path, query_size=(8, 12), reference_size=6)
    assert data.counts == {"training pairs": 12, "test queries": 8, "test references": 4}
    labels = data.train.labels
    assert (labels[::2] == labels[1::2]).all()
    assert len(labels.unique()) == 6
    ids = torch.tensor([3, 8])
    assert data.train.plain("query", ids).shape == (2, 3, 8, 12)
    assert data.train.plain("query", ids)[:, 0, 0, 0].tolist() == [3, 8]
    assert data.train.plain("reference", ids)[:, 0, 0, 0].tolist() == [101, 104]
    assert data.test.references(data.test.query_labels)[:, 0, 0, 0].tolist() == [106, 106, 107, 107, 108, 108, 109, 109]


def test_mistakes_in_tables(tmp_path, monkeypatch):
    path = write_csv(tmp_path / "own.csv", ["image", "label"], [("a", "b")])
    for arguments, sentence in {
        (path,): "must have the columns path and label, or query and reference, got image, label",
        (tmp_path / "absent.csv",): "there is no such file",
        (None,): "table is read from a file: give its path with root=FILE",
    }.items():
        with pytest.raises((ValueError, FileNotFoundError), match=sentence):
            load_data("table", *arguments)
    (tmp_path / "own.txt").touch()
    with pytest.raises(ValueError, match=r"must be one of .csv, .tsv, .jsonl, .json, .parquet"):
        load_data("table", tmp_path / "own.txt")
    short = write_csv(tmp_path / "short.csv", ["path", "label"], [("a", "b"), ("c",)])
    with pytest.raises(ValueError, match=r"short.csv, line 3 has 1 fields where the first line has 2"):
        load_data("table", short)
    few = write_csv(tmp_path / "few.csv", ["path", "label", "split"], [("a", "b", "train"), ("c", "b", "test")])
    with pytest.raises(ValueError, match="at least two images are needed to train and two to test, got 1 and 1"):
        load_data("table", few)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "own.parquet").touch()
    with pytest.raises(ImportError, match="reading parquet needs pyarrow: pip install 'lookalike\\[tables\\]'"):
        load_data("table", tmp_path / "own.parquet")


def test_images_of_a_table_need_their_values(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"path": "a.png", "label": 1, "note": null}\n{"path": null, "label": 2, "note": "x"}\n')
    with pytest.raises(ValueError, match=r"own.jsonl, line 2 has no 'path'"):
        load_data("table", path)
    with pytest.raises(
        TypeError, match=r"columns must say what each column is called, as in .'path': 'file'., got 'a,b'"
    ):
        load_data("table", path, columns="a,b")
