"""Miniature copies of the official folder layouts, and where the real files are."""

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
