"""Tables that users bring: images with labels, or pairs of images, in CSV, TSV, JSON lines, JSON or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookalike.data.augment import Augmentation
from lookalike.data.build import labelled_images, paired_images
from lookalike.data.folders import is_test
from lookalike.data.reading import SUFFIXES, read_table
from lookalike.data.text_pairs import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.data.images import Size
    from lookalike.data.retrieval import RetrievalData

TRAINING = {"train", "training", ""}


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
        root: A .csv, .tsv, .jsonl, .json or .parquet file; its first line or its keys name the columns.
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
        ValueError: There are no such columns, or a row lacks a value.
    """
    path = opened_file("table", root)
    if not isinstance(columns, dict | None):
        raise TypeError(f"columns must say what each column is called, as in {{'path': 'file'}}, got {columns!r}.")
    names = {name: (columns or {}).get(name, name) for name in ("path", "label", "query", "reference", "split")}
    read = read_table(path)
    folder = path.parent if images is None else Path(images)
    splits = read.column(names["split"]) if names["split"] in read.names else None
    options: dict[str, Any] = {"on_error": on_error, "progress": progress}
    if names["path"] in read.names and names["label"] in read.names:
        labels = read.values(names["label"])
        training = _training(splits, labels, test_share)
        paths = [folder / str(value) for value in read.values(names["path"])]
        return labelled_images("table", path.name, paths, labels, training, size=size, augment=augment, **options)
    if names["query"] in read.names and names["reference"] in read.names:
        queries, references = read.values(names["query"]), read.values(names["reference"])
        training = _training(splits, references, test_share)
        pairs = [(folder / str(q), folder / str(r)) for q, r in zip(queries, references, strict=True)]
        train, test = ([p for p, is_train in zip(pairs, training, strict=True) if is_train == t] for t in (True, False))
        return paired_images(
            "table",
            path.name,
            train,
            test,
            query_size=query_size or size,
            reference_size=reference_size or size,
            augment=Augmentation() if augment else None,
            **options,
        )
    raise ValueError(
        f"{path} must have the columns path and label, or query and reference, got {listed(read.names)}; "
        "columns={'path': ..., 'label': ...} says what they are called."
    )


def opened_file(name: str, root: str | Path | None) -> Path:
    """Return the path of a file that `read_table` reads.

    Raises:
        ValueError: None was given, or its name ends in something else.
        FileNotFoundError: There is no such file.
    """
    if root is None:
        raise ValueError(f"{name} needs a file: say which with root (ROOT on the command line).")
    path = Path(root).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file.")
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path} must be one of {', '.join(SUFFIXES)}.")
    return path


def _training(splits: Sequence[Any] | None, names: Sequence[Any], test_share: float) -> list[bool]:
    if splits is not None:
        return [str(split or "").lower() in TRAINING for split in splits]
    if not 0 < test_share < 1:
        raise ValueError(f"test_share must be between 0 and 1, got {test_share}.")
    return [not is_test(str(name), test_share) for name in names]
