"""Miniature copies of the official folder layouts, and where the real files are."""

import csv
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SHARED = Path(os.environ.get("LOOKALIKE_DATA", Path(__file__).parents[3] / "shared" / "data"))


def unzipped(name, folder):
    """A real data set, or a skipped test."""
    archive = SHARED / name
    if not archive.exists():
        pytest.skip(f"{archive} is absent; LOOKALIKE_DATA names another folder")
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    return next(path for path in folder.iterdir() if path.is_dir())


def write_image(path, number=0, size=(24, 30)):
    """An image of one colour, which its number decides: red is the number, in a format that loses nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((*size, 3), (number % 256, 255 - number % 256, 7), np.uint8)
    Image.fromarray(pixels).save(path, "PNG")  # whatever the path is called: Pillow looks at the content
    return path


def write_csv(path, heading, rows, separator=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=separator).writerows([heading, *rows])
    return path


def write_parquet(path, **columns):
    arrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    parquet.write_table(arrow.table(columns), path)
    return path


def damage(path):
    path.write_bytes(path.read_bytes()[:40])


def write_sop(root, classes=6, per_class=4):
    number = 0
    for split, first in (("train", 0), ("test", classes)):
        lines = ["image_id class_id super_class_id path"]
        for label in range(first, first + classes):
            for view in range(per_class):
                path = f"chair_final/{label:04d}_{view}.JPG"
                write_image(root / path, number)
                number += 1
                lines.append(f"{number} {label + 1} 1 {path}")
        (root / f"Ebay_{split}.txt").write_text("\n".join(lines) + "\n")
    return root


def write_inshop(root, items=5):
    rows, number = [], 0
    for item in range(2 * items):
        parts = ["train"] * 3 if item < items else ["query", "gallery", "gallery"]
        for view, part in enumerate(parts):
            name = f"img/WOMEN/Dresses/id_{item:08d}/{view:02d}_1_front.jpg"
            write_image(root / name, number)
            number += 1
            rows.append(f"{name:<70} id_{item:08d}    {part}")
    (root / "Eval").mkdir()
    heading = "image_name                              item_id evaluation_status"
    (root / "Eval" / "list_eval_partition.txt").write_text("\n".join([str(len(rows)), heading, *rows]) + "\n")
    return root


def write_msmarco(root):
    root.mkdir(exist_ok=True)
    (root / "collection.tsv").write_text(
        "".join(f"{pid}\tpassage {pid} \u00e9\n" for pid in range(30)), encoding="utf-8"
    )
    (root / "queries.train.tsv").write_text("".join(f"{qid}\tquestion {qid}\n" for qid in (900, 17, 45, 2)))
    (root / "queries.dev.small.tsv").write_text("".join(f"{qid}\tquestion {qid}\n" for qid in (5, 6, 7)))
    (root / "qrels.train.tsv").write_text(
        "17\t0\t3\t1\n900\t0\t3\t1\n45\t0\t20\t1\n45\t0\t21\t1\n2\t0\t9\t0\n2\t0\t8\t1\n"
    )
    (root / "qrels.dev.small.tsv").write_text("6\t0\t29\t1\n5\t0\t11\t1\n5\t0\t12\t1\n")
    return root


def write_beir(root, documents=30):
    """Graded judgements, a document with the id of a query, and judgements of no relevance."""
    (root / "qrels").mkdir(parents=True)
    corpus = [
        {"_id": f"d{i}", "title": f"title {i}" if i % 2 else "", "text": f"text {i} \u00e9"} for i in range(documents)
    ]
    corpus.append({"_id": "q7", "title": "", "text": "the text of query 7"})
    write_json_lines(root / "corpus.jsonl", corpus)
    names = (9, 1, 7, 4, 2, 3, 5, 6, 8)
    write_json_lines(root / "queries.jsonl", [{"_id": f"q{i}", "text": f"query {i}", "metadata": {}} for i in names])
    judgements = {
        "train": "q9\td3\t1\nq1\td3\t2\nq4\td20\t1\nq4\td21\t2\nq2\td8\t1\nq2\td9\t0\nq3\td10\t-1\n",
        "dev": "q5\td11\t1\n",
        "test": "q7\td12\t2\nq7\td13\t1\nq7\td14\t0\nq6\td15\t1\n",
    }
    for split, rows in judgements.items():
        (root / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    return root


def write_json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_cvusa(root, train=6, val=4):
    (root / "splits").mkdir(parents=True)
    for split, first, last in (("train", 0, train), ("val", train, train + val)):
        names = [f"{i + 1:07d}" for i in range(first, last)]
        for i, name in enumerate(names, first):
            write_image(root / f"bingmap/19/{name}.jpg", 100 + i, (20, 20))
            write_image(root / f"streetview/panos/{name}.jpg", i, (8, 44))
        lines = [f"bingmap/19/{n}.jpg,streetview/panos/{n}.jpg,streetview/annotations/{n}.png\n" for n in names]
        (root / f"splits/{split}-19zl.csv").write_text("".join(lines))
    return root


def write_cvact(root, train=6, val=4, test=5):
    """As `scipy.io.loadmat` sees the official file: ids as text, splits as structures of indices from 1."""
    io = pytest.importorskip("scipy.io")
    ids = [f"pano{i:018d}" for i in range(train + val)]
    order = np.random.default_rng(0).permutation(train + val) + 1
    root.mkdir(parents=True, exist_ok=True)
    sets = {
        f"{name}Set": {f"{name}Ind": chosen[:, None], "utm": np.zeros((len(chosen), 2))}
        for name, chosen in (("train", order[:train]), ("val", order[train:]))
    }
    io.savemat(root / "ACT_data.mat", {"panoIds": np.array(ids), "utm": np.zeros((len(ids), 2)), **sets})
    for part, names in (("small", ids), ("test", [f"test{i:018d}" for i in range(test)])):
        for i, name in enumerate(names):
            write_image(root / f"ANU_data_{part}/streetview/{name}_grdView.jpg", i, (16, 32))
            write_image(root / f"ANU_data_{part}/satview_polish/{name}_satView_polish.jpg", 100 + i, (20, 20))
    return root, order - 1


def write_vigor(root, aerial=6, street=8):
    """Panorama i of a city is in aerial image i // 2 + 1; the next three are its semi-positives."""
    for c, city in enumerate(("Chicago", "NewYork", "SanFrancisco", "Seattle")):
        names = [f"satellite_{c}_{i}.png" for i in range(aerial)]
        for i, name in enumerate(names):
            write_image(root / city / "satellite" / name, 100 + 10 * c + i, (20, 20))
        lines = []
        for i in range(street):
            write_image(root / city / "panorama" / f"pano{c}_{i},.jpg", 10 * c + i, (10, 20))
            near = [(i // 2 + 1 + step) % aerial for step in range(4)]
            lines.append(f"pano{c}_{i},.jpg " + " ".join(f"{names[n]} 12.5 -80.25" for n in near) + "\n")
        folder = root / "splits" / city
        folder.mkdir(parents=True)
        (folder / "satellite_list.txt").write_text("\n".join(names) + "\n")
        (folder / "pano_label_balanced.txt").write_text("".join(lines))
        (folder / "same_area_balanced_train.txt").write_text("".join(lines[: street - 2]))
        (folder / "same_area_balanced_test.txt").write_text("".join(lines[street - 2 :]))
    return root
