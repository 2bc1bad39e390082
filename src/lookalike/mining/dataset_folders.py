"""Data set folders: mined rows as `datasets.load_dataset` reads them, with a card; written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lookalike.utils.cards import CARD, CITATION, DATA_SET, TAG, front_matter, markdown_table, shareable
from lookalike.utils.files import replacing_folder, writable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

DATA, MANIFEST = "data", "manifest.json"
SIZES = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6), ("1M<n<10M", 10**7))
LOSSES = {
    "triplet": "MultipleNegativesRankingLoss",
    "n-tuple": "MultipleNegativesRankingLoss",
    "labeled-pair": "OnlineContrastiveLoss",
}


@contextmanager
def writing_folder(output: Path, shards: Sequence[tuple[Path, int]]) -> Iterator[Path]:
    """Yield a new data set folder with the rows of all shards; it takes its place at the end, or goes after an error.

    `manifest.json` lists its files of rows with their sizes and checksums.

    Args:
        output: The folder.
        shards: Parquet files and how many rows they hold, in order; those without rows are left out.
    """
    kept = [(path, number) for path, number in shards if number]
    with writable(output.parent), replacing_folder(output) as temporary:
        (temporary / DATA).mkdir()
        files = []
        for i, (path, number) in enumerate(kept):
            target = temporary / DATA / f"train-{i:05}-of-{len(kept):05}.parquet"
            shutil.copyfile(path, target)
            with target.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            name = target.relative_to(temporary).as_posix()
            files.append({"path": name, "rows": number, "bytes": target.stat().st_size, "sha256": digest})
        (temporary / MANIFEST).write_text(json.dumps({"files": files}, indent=1) + "\n", encoding="utf-8")
        yield temporary


def write_card(folder: Path, name: str, columns: Sequence[str], model: str | None, record: dict[str, Any]) -> None:
    """Write the card of a data set folder, and the whole summary beside it.

    Args:
        folder: The folder.
        name: Name of the folder.
        columns: Names of the columns.
        model: Name of the model that encoded the texts, if it has one.
        record: What `summary_record` returned.
    """
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
    return front_matter(content, DATA_SET) + "\n" + "\n\n".join(sections) + "\n"


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
