"""What users bring: folders, tables, pairs of texts, data sets of the Hugging Face library."""

import csv
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from lookalike.data import load_data
from lookalike.data.huggingface import from_dataset
from tests.data.miniatures import damage, unzipped, write_image


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOKALIKE_CACHE", str(tmp_path / "cache"))


def write_classes(root, classes, per_class=3, first=0):
    for label in range(classes):
        for view in range(per_class):
            write_image(root / f"kind{label % 2}" / f"class{label}" / f"{view}.png", first + label * per_class + view)
    return root


def test_a_folder_per_class(tmp_path):
    data = load_data("folder", write_classes(tmp_path / "own", 40), size=8)
    counts = data.counts
    assert counts["training images"] + counts["test images"] == 120
    assert counts["training classes"] + counts["test classes"] == 40
    assert 8 < counts["test classes"] < 32
    assert torch.bincount(data.train.labels).max() == 3
    again = load_data("folder", write_classes(tmp_path / "own", 44), size=8)  # others do not change sides
    before, after = (
        {d.train.query_items.paths[i].parent.name for i in d.train.query_ids.tolist()} for d in (data, again)
    )
    assert before <= after


def test_folders_for_training_and_test(tmp_path):
    write_classes(tmp_path / "own" / "train", 4)
    write_classes(tmp_path / "own" / "val", 3, first=100)
    data = load_data("folder", tmp_path / "own", size=8)
    assert data.counts == {"training images": 12, "training classes": 4, "test images": 9, "test classes": 3}
    assert data.test.queries(torch.arange(9))[:, 0, 0, 0].min() == 100
    with pytest.raises(FileNotFoundError, match=r"has no images in folders below it: expected CLASS/IMAGE.jpg"):
        load_data("folder", tmp_path / "own" / "train" / "kind0" / "class0")


def test_real_photographs(tmp_path):
    data = load_data("folder", unzipped("grocery128.zip", tmp_path), size=(32, 48))
    assert data.counts == {
        "training images": 2_640,
        "training classes": 81,
        "test images": 2_485,
        "test classes": 81,
    }
    images = data.train.plain("query", torch.arange(0, 2_640, 100))
    assert images.shape == (27, 3, 32, 48)
    assert 40 < images.float().mean() < 200


def write_csv(path, heading, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
    return path


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
        arrow = pytest.importorskip("pyarrow")
        columns = dict(zip(("query", "reference", "split"), map(list, zip(*rows, strict=True)), strict=True))
        path = tmp_path / "own.parquet"
        pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns), path)
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
        (None,): "table needs a file: say which with root",
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
    with pytest.raises(ImportError, match="reading parquet needs pyarrow: pip install pyarrow"):
        load_data("table", tmp_path / "own.parquet")


PAIRS = [(f'what is "{i // 2}"?', f"answer, {i}") for i in range(60)]


def test_pairs_of_texts_in_any_file(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"anchor": q, "positive": a, "negative": "no"}) + "\n" for q, a in PAIRS)
    )
    (tmp_path / "b.json").write_text(json.dumps([{"text1": q, "text2": a} for q, a in PAIRS]))
    (tmp_path / "c.tsv").write_text("query\treference\n" + "".join(f"{q}\t{a}\n" for q, a in PAIRS))
    write_csv(tmp_path / "d.csv", ["question", "answer"], PAIRS)
    read = [load_data("texts", tmp_path / name, test_share=0.3) for name in ("a.jsonl", "b.json", "c.tsv", "d.csv")]
    assert len({(data.checksum, data.description.partition(":")[2]) for data in read}) == 1
    data = read[0]
    number = data.counts["training pairs"]
    assert 30 < number < 55
    trained = list(
        zip(data.train.queries(torch.arange(number), 0), data.train.references(torch.arange(number), 0), strict=True)
    )
    assert set(trained) <= set(PAIRS)
    labels = dict(zip(trained, data.train.labels.tolist(), strict=True))
    both = [i for i in range(0, 60, 2) if PAIRS[i] in labels and PAIRS[i + 1] in labels]
    assert both
    assert all(labels[PAIRS[i]] == labels[PAIRS[i + 1]] for i in both)  # one question
    assert data.counts["test references"] == 60 - number


def test_texts_with_a_test_of_their_own(tmp_path):
    (tmp_path / "train.tsv").write_text("".join(f"{q}\t{a}\n" for q, a in PAIRS[:40]))
    (tmp_path / "test.tsv").write_text("".join(f"{q}\t{a}\n" for q, a in PAIRS[40:]))
    data = load_data("texts", tmp_path / "train.tsv", test=tmp_path / "test.tsv", header=False)
    assert data.counts == {"training pairs": 40, "test queries": 10, "test references": 20}
    assert data.test_positives.ge(0).sum() == 20
    first = data.test.references(data.test_positives[0])
    assert first == ["answer, 40", "answer, 41"]


class Rows:
    """As much of a `datasets.Dataset` as is asked for."""

    def __init__(self, **columns):
        self.columns = columns
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        return self.columns[key] if isinstance(key, str) else {name: c[key] for name, c in self.columns.items()}


def picture(number):
    return Image.fromarray(np.full((9, 12, 3), number, np.uint8))


def test_rows_of_images_with_labels():
    rows = Rows(image=[picture(i) for i in range(40)], label=[i // 2 for i in range(40)])
    data = from_dataset(rows, size=8, test_share=0.4)
    assert data.counts["training images"] + data.counts["test images"] == 40
    both = from_dataset(rows, Rows(image=[picture(200)] * 4, label=[77, 77, 78, 78]), size=8)
    assert both.counts["training images"] == 40
    assert both.test.queries(torch.arange(4))[:, 0, 0, 0].tolist() == [200] * 4
    rows.columns["image"][3] = None
    with pytest.raises(ValueError, match="row 3 of the column 'image' is no image"):
        both.train.plain("query", torch.arange(40))


def test_rows_of_pairs():
    rows = Rows(street=[picture(i) for i in range(40)], above=[picture(100 + i) for i in range(40)])
    data = from_dataset(rows, columns=("street", "above"), size=(4, 8), reference_size=6, test_share=0.4)
    ids = torch.arange(data.counts["training pairs"])
    query, reference = (data.train.plain(tower, ids) for tower in ("query", "reference"))
    assert query.shape[1:] == (3, 4, 8)
    assert torch.equal(query[:, 0, 0, 0] + 100, reference[:, 0, 0, 0])
    with pytest.raises(ValueError, match="must have the columns image and label, or query and reference, got street"):
        from_dataset(rows)


def test_a_real_dataset():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"anchor": [q for q, _ in PAIRS], "positive": [a for _, a in PAIRS]})
    data = from_dataset(rows, test_share=0.3)
    assert 30 < data.counts["training pairs"] < 55
    images = datasets.Dataset.from_dict(
        {"image": [picture(i) for i in range(20)], "label": [i // 2 for i in range(20)]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
    )
    data = from_dataset(images, images, size=8)
    assert data.train.plain("query", torch.arange(20))[:, 0, 0, 0].tolist() == list(range(20))
