"""Tables that users bring: images with labels, or pairs of images, in CSV, TSV, JSON lines or parquet."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookalike.data.augment import Augmentation
from lookalike.data.build import labelled_images, paired_images
from lookalike.data.folders import is_test, optional

if TYPE_CHECKING:
    from lookalike.data.images import Size
    from lookalike.data.retrieval import RetrievalData

TRAINING = {"train", "training", ""}
SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")


def table(
    root: str | Path | None,
    *,
    columns: dict[str, str] | None = None,
    images: str | Path | None = None,
    test_share: float = 0.2,
    size: Size = 384,
    query_size: Size | None = None,
    reference_size: Size | None = None,
    augment: bool = True,
    on_error: str = "stop",
    progress: bool = False,
) -> RetrievalData:
    """A table of images: columns `path` and `label`, or `query` and `reference`, which are paths of one pair.

    With a column `split`, rows that say train are trained on and all others tested on. Without, `test_share` of the
    labels, or of the references, are held out, decided by their names alone.

    Args:
        root: A .csv, .tsv, .jsonl or .parquet file with a heading.
        columns: What the columns are called, where not as above: `{"path": "file", "label": "product"}`.
        images: The folder that paths begin from; by default the table's.
        test_share: Share of labels or references to test on.
        size: Height and width the images are brought to, or one number for both.
        query_size: Likewise, of queries; by default `size`.
        reference_size: Likewise, of references.
        augment: Augment in training.
        on_error: "stop" at an image that cannot be read, or "skip": decode all of them now, once, and leave those out.
        progress: Show a bar where that takes long.

    Raises:
        ValueError: There are no such columns.
    """
    path = opened_file("table", root)
    names = {name: (columns or {}).get(name, name) for name in ("path", "label", "query", "reference", "split")}
    read = read_table(path)
    folder = path.parent if images is None else Path(images)
    splits = read.get(names["split"])
    options: dict[str, Any] = {"on_error": on_error, "progress": progress}
    if names["path"] in read and names["label"] in read:
        labels = read[names["label"]]
        training = _training(splits, labels, test_share)
        paths = [folder / str(value) for value in read[names["path"]]]
        return labelled_images("table", path.name, paths, labels, training, size=size, augment=augment, **options)
    if names["query"] in read and names["reference"] in read:
        references = read[names["reference"]]
        training = _training(splits, references, test_share)
        pairs = [(folder / str(q), folder / str(r)) for q, r in zip(read[names["query"]], references, strict=True)]
        train, test = ([p for p, is_train in zip(pairs, training, strict=True) if is_train == t] for t in (True, False))
        return paired_images(
            "table", path.name, train, test, query_size=query_size or size, reference_size=reference_size or size,
            augment=Augmentation() if augment else None, **options,
        )  # fmt: skip
    raise ValueError(
        f"{path} must have the columns path and label, or query and reference, got {', '.join(read)}; "
        "columns={'path': ..., 'label': ...} says what they are called."
    )


def opened_file(name: str, root: str | Path | None) -> Path:
    """A file of a kind that `read_table` reads."""
    if root is None:
        raise ValueError(f"{name} needs a file: say which with root (ROOT on the command line).")
    path = Path(root).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} must be one of {', '.join(SUFFIXES)}.")
    return path


def read_table(path: Path, *, heading: bool = True) -> dict[str, list[Any]]:
    """The columns of a file by their names; without a heading they are called 0, 1, ...

    Raises:
        ValueError: A line is something else; says which.
    """
    if path.suffix == ".parquet":
        columns: dict[str, list[Any]] = optional("pyarrow.parquet", "reading parquet").read_table(path).to_pydict()
        return columns
    rows = _json_rows(path) if path.suffix == ".jsonl" else _separated_rows(path, heading=heading)
    if not rows:
        raise ValueError(f"{path} has no rows.")
    names = list(rows[0])
    for number, row in enumerate(rows, 1):
        if missing := [name for name in names if row.get(name) is None]:
            raise ValueError(f"{path}, row {number} has no {missing[0]!r}.")
    return {name: [row[name] for row in rows] for name in names}


def _json_rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number} is no JSON: {error}.") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: expected an object, got {line.strip()[:60]!r}.")
            rows.append(row)
    return rows


def _separated_rows(path: Path, *, heading: bool) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".tsv":  # quotes mean nothing there
            rows = [line.rstrip("\r\n").split("\t") for line in file if line.strip()]
        else:
            rows = [row for row in csv.reader(file) if row]
    if not rows:
        return []
    names = rows[0] if heading else [str(i) for i in range(len(rows[0]))]
    return [dict(zip(names, row, strict=False)) for row in (rows[1:] if heading else rows)]


def _training(splits: list[Any] | None, names: list[Any], test_share: float) -> list[bool]:
    if splits is not None:
        return [str(split).lower() in TRAINING for split in splits]
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must be between 0 and 1, got {test_share}.")
    return [not is_test(str(name), test_share) for name in names]
