"""Your own images, listed in a CSV, TSV, JSON lines, JSON or Parquet file: with labels, or in pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lookalike.data.paper import PRODUCTS
from lookalike.data.registry import DataSet
from lookalike.data.roots import FileRoot
from lookalike.data.table_files import SUFFIXES, read_table
from lookalike.data.text_pairs import listed

if TYPE_CHECKING:
    from lookalike.data.image_files import Size
    from lookalike.data.retrieval import RetrievalData


def read(
    root: Path,
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
    """Read a table with columns `path` and `label`, or `query` and `reference`, which are paths of a pair of images.

    A column `split` defines the split: rows that say train are trained on, all others tested on. Without it,
    `test_share` of the labels, or of the references, are held out, by their names alone.

    Args:
        root: A .csv, .tsv, .jsonl, .json or .parquet file whose first line or keys name the columns.
        columns: Other names for the columns: `{"path": "file", "label": "product"}`.
        images: The folder that relative paths start from; by default the table's.
        test_share: Fraction of labels or references to hold out.
        size: Height and width to resize images to, or one number for both.
        query_size: Likewise for queries; by default `size`.
        reference_size: Likewise for references; by default `size`.
        augment: Augment images in training.
        on_error: As in `labelled_images`.
        progress: Show a progress bar.

    Raises:
        TypeError: `columns` is not a dictionary.
        ValueError: There are no such columns, or a row lacks a value.
    """
    from lookalike.data.augment import Augmentation
    from lookalike.data.build import labelled_images, paired_images
    from lookalike.data.fingerprints import training_rows

    if not isinstance(columns, dict | None):
        raise TypeError(f"columns must say what each column is called, as in {{'path': 'file'}}, got {columns!r}.")
    names = {name: (columns or {}).get(name, name) for name in ("path", "label", "query", "reference", "split")}
    table = read_table(root)
    folder = root.parent if images is None else Path(images)
    splits = table.column(names["split"]) if names["split"] in table.names else None
    if names["path"] in table.names and names["label"] in table.names:
        labels = table.values(names["label"])
        training = training_rows(labels, test_share, splits)
        paths = [folder / str(value) for value in table.values(names["path"])]
        return labelled_images(
            "table",
            root.name,
            paths,
            labels,
            training,
            size=size,
            augment=augment,
            on_error=on_error,
            progress=progress,
        )
    if names["query"] in table.names and names["reference"] in table.names:
        queries, references = table.values(names["query"]), table.values(names["reference"])
        training = training_rows(references, test_share, splits)
        pairs = [(folder / str(q), folder / str(r)) for q, r in zip(queries, references, strict=True)]
        train, test = ([p for p, is_train in zip(pairs, training, strict=True) if is_train == t] for t in (True, False))
        return paired_images(
            "table",
            root.name,
            train,
            test,
            query_size=query_size or size,
            reference_size=reference_size or size,
            augment=Augmentation() if augment else None,
            on_error=on_error,
            progress=progress,
        )
    raise ValueError(
        f"{root} must have the columns path and label, or query and reference, got {listed(table.names)}; "
        "columns={'path': ..., 'label': ...} says what they are called."
    )


DATA_SETS = (
    DataSet(
        "table",
        "your images in a CSV or parquet file: path and label, or query and reference",
        read,
        PRODUCTS,
        root=FileRoot(SUFFIXES),
    ),
)
