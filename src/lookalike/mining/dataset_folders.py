"""Data set folders: mined rows as `datasets.load_dataset` reads them, with a card; written whole or not at all."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lookalike.utils.cards import CARD, CITATION, TAG, front_matter, markdown_table, shareable
from lookalike.utils.files import replacing_folder, writable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ROWS = "data/train-00000-of-00001.parquet"
SIZES = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6), ("1M<n<10M", 10**7))
LOSSES = {
    "triplet": "MultipleNegativesRankingLoss",
    "n-tuple": "MultipleNegativesRankingLoss",
    "labeled-pair": "OnlineContrastiveLoss",
}


@contextmanager
def rows_place(output: Path) -> Iterator[Path]:
    """Yield the file to write rows to: the output itself or, if it has no suffix, a file in a new data set folder.

    The folder takes its place at the end, and is removed after an error.
    """
    if output.suffix:
        yield output
        return
    with writable(output.parent), replacing_folder(output) as temporary:
        rows = temporary / ROWS
        rows.parent.mkdir()
        yield rows


def write_card(rows: Path, name: str, columns: Sequence[str], model: str | None, record: dict[str, Any]) -> None:
    """Write the card of a data set folder, and the whole summary beside it.

    Args:
        rows: The file of rows in the folder.
        name: Name of the folder.
        columns: Names of the columns.
        model: Name of the model that encoded the texts, if it has one.
        record: What `summary_record` returned.
    """
    folder = rows.parent.parent
    record = shareable(record)
    (folder / "summary.json").write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    (folder / CARD).write_text(_card(name, columns, model, record), encoding="utf-8")


def _card(name: str, columns: Sequence[str], model: str | None, record: dict[str, Any]) -> str:
    source = record.get("source") or {}
    output_format = record["output_format"]
    number = record["rows"]
    content = {
        "tags": [TAG, "hard-negatives", "sentence-transformers"],
        "task_categories": ["feature-extraction", "sentence-similarity"],
        "size_categories": [next((size for size, end in SIZES if number < end), "10M<n<100M")],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*"}]}],
    }
    counts = [
        ("rows", f"{number:,}"),
        ("pairs", f"{record['pairs']:,}"),
        ("queries", f"{record['queries']:,}"),
        ("texts searched", f"{record['references']:,}"),
        ("queries with all negatives", f"{record['queries_complete']:,}"),
        ("queries with fewer", f"{sum(record['queries_short'].values()):,}"),
        ("queries without any, left out", f"{sum(record['queries_without'].values()):,}"),
        *((f"candidates dropped by {reason}", f"{dropped:,}") for reason, dropped in record["dropped"].items()),
    ]
    settings = {"model": shareable(model) if model else "given in Python", **source, **record["options"]}
    chosen = [(option, value) for option, value in settings.items() if value is not None]
    scores = record["scores"]
    statistics = [
        (each, *(_number(scores[group].get(each)) for group in scores)) for each in ("mean", "min", "median", "max")
    ]
    named = ", ".join(f"`{column}`" for column in columns)
    about = (
        f"Pairs of texts with hard negatives, mined by lookalike: {number:,} rows in the format `{output_format}`, "
        f"with the columns {named}."
    )
    sections = [
        f"# {name}",
        about,
        "## Train on it",
        f"```python\n{_snippet(name, output_format)}\n```",
        "## Counts",
        markdown_table(["", "number"], counts),
        "## Scores",
        markdown_table(["score", *scores], statistics),
        "## How it was mined",
        markdown_table(["setting", "value"], chosen),
        "## Citation",
        f"```bibtex\n{CITATION}\n```",
    ]
    return front_matter(content) + "\n" + "\n\n".join(sections) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _snippet(name: str, output_format: str) -> str:
    load = f'from datasets import load_dataset\n\ndataset = load_dataset("{name}", split="train")'
    if output_format not in LOSSES:
        return load
    return (
        "from datasets import load_dataset\n"
        "from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer\n"
        f"from sentence_transformers.sentence_transformer.losses import {LOSSES[output_format]}\n\n"
        f'dataset = load_dataset("{name}", split="train")\n'
        'model = SentenceTransformer("all-MiniLM-L6-v2")\n'
        f"loss = {LOSSES[output_format]}(model)\n"
        "SentenceTransformerTrainer(model=model, train_dataset=dataset, loss=loss).train()"
    )
