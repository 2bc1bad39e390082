"""`lookalike mine`: from pairs of texts and a model, or from embeddings, to a file of negatives and a summary."""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console

from lookalike.analysis.command import load_labels
from lookalike.data.embeddings import open_embeddings
from lookalike.files import write_text
from lookalike.machine import checked_device
from lookalike.mining import check_model
from lookalike.mining.formats import ALL_FORMATS, EXCHANGED, Layout, rows
from lookalike.mining.options import MISSING
from lookalike.mining.outputs import check_output, id_writer, scores_path, write_rows
from lookalike.mining.pairs import paired
from lookalike.mining.sources import load_model, read_corpus, read_pairs
from lookalike.mining.summary import print_summary, statistics, summarized, tallied
from lookalike.mining.texts import Prompts, mine_texts
from lookalike.mining.vectors import Vectors

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.mining.options import Options


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """Pairs of texts, and the model that finds their negatives."""

    source: str
    model: str
    anchor_column: str | None = None
    positive_column: str | None = None
    split: str | None = None
    corpus: str | None = None
    corpus_column: str | None = None
    cross_encoder: str | None = None
    query_prompt: str | None = None
    query_prompt_name: str | None = None
    corpus_prompt: str | None = None
    corpus_prompt_name: str | None = None
    batch_size: int = 32
    device: str | None = None
    cache_folder: Path | None = None


@dataclass(frozen=True, kw_only=True)
class VectorSource:
    """Embeddings in files."""

    embeddings: str
    corpus: str | None = None
    labels: Path | None = None
    positives: Path | None = None
    device: str | None = None


def run_text_mining(
    source: TextSource, options: Options, output: Path, output_format: str, *, scores: bool, seed: int, force: bool
) -> None:
    """Mine negatives of pairs of texts, print a table, and write rows and summary."""
    console = Console()
    device = None if source.device is None else checked_device(source.device)  # the library chooses by itself
    if output_format not in ALL_FORMATS:
        raise ValueError(f"--format must be one of {', '.join(ALL_FORMATS)}, got {output_format!r}.")
    check_output(output, (".jsonl",) if output_format in EXCHANGED else (".jsonl", ".parquet"), force=force)
    columns = read_pairs(source.source, source.anchor_column, source.positive_column, source.split)
    corpus = None if source.corpus is None else read_corpus(source.corpus, source.corpus_column)
    pairs = paired(columns.anchors, columns.positives, corpus)
    model = load_model(source.model, device)
    check_model(model, source.query_prompt_name, source.corpus_prompt_name)
    judge = None if source.cross_encoder is None else load_model(source.cross_encoder, device, "CrossEncoder")
    prompts = Prompts(
        query=source.query_prompt, query_name=source.query_prompt_name, corpus=source.corpus_prompt,
        corpus_name=source.corpus_prompt_name,
    )  # fmt: skip
    console.print(
        f"{pairs.num_rows:,} pairs of {len(pairs.queries):,} queries, {len(pairs.corpus):,} texts to search.",
        highlight=False,
    )
    cache = source.cache_folder or output.with_name(f"{output.name}.cache")
    random.seed(seed)
    began = time.perf_counter()
    try:
        mined = mine_texts(
            pairs, model, options, prompts=prompts, cross_encoder=judge, batch_size=source.batch_size,
            cache_folder=cache, progress=True,
        )  # fmt: skip
    except KeyboardInterrupt:
        console.print(f"\nInterrupted; what was encoded is kept in {cache}. Run the same command again to go on.")
        sys.exit(130)
    summary = summarized(mined)
    if not summary["scores"]["negatives"]["count"]:
        reasons = ", ".join(summary["queries_without"])
        raise ValueError(f"no query has a negative left ({reasons}), so nothing is written; loosen the filters.")
    kept = f"what was encoded is kept in {cache}; make room and run the same command again"
    layout = Layout(output_format, scores, columns.anchor, columns.positive)
    number = write_rows(output, rows(mined, layout), kept)
    _report(console, output, summary, options, seconds=time.perf_counter() - began, rows=number, source=asdict(source))
    if source.cache_folder is None:
        shutil.rmtree(cache, ignore_errors=True)


def run_vector_mining(source: VectorSource, options: Options, output: Path, *, seed: int, force: bool) -> None:
    """Mine negatives of embeddings, print a table, and write row numbers, scores and summary."""
    console = Console()
    device = checked_device(source.device)
    check_output(output, (".npy", ".parquet"), force=force)
    if output.suffix == ".npy":
        check_output(scores_path(output), (".npy",), force=force)
    embeddings = open_embeddings(source.embeddings)
    corpus = None if source.corpus is None else open_embeddings(source.corpus, min_rows=1)
    labels = None if source.labels is None else load_labels(source.labels, len(embeddings))
    positives = None if source.positives is None else _load_positives(source.positives)
    names = (source.embeddings, source.corpus or "")
    vectors = Vectors(embeddings, corpus, labels, positives, names)
    searched = "themselves" if corpus is None else f"{len(corpus):,} others"
    console.print(f"{len(embeddings):,} embeddings of dimension {embeddings.shape[1]}, in {searched}.", highlight=False)
    random.seed(seed)
    began = time.perf_counter()
    found, positive_scores, differences, complete = [], [], [], 0
    with id_writer(output, len(embeddings), options.num_negatives) as writer:
        for part in vectors.mined(options, device=device, progress=True):
            writer.write(part)
            there = part.scores != MISSING
            found.append(part.scores[there].numpy())
            positive_scores.append(part.positive_scores.numpy())
            above = part.positive_scores[:, None] - part.scores[part.owners]
            differences.append(above[there[part.owners]].numpy())
            complete += int(there.all(dim=1).sum())
    summary = {
        "queries": len(embeddings),
        "corpus": len(embeddings if corpus is None else corpus),
        "scores": {
            "positives": statistics(np.concatenate(positive_scores)),
            "negatives": statistics(np.concatenate(found)),
            "difference": statistics(np.concatenate(differences)),
        },
        **tallied(vectors.tally, complete),
    }
    _report(
        console, output, summary, options, seconds=time.perf_counter() - began, rows=len(embeddings),
        source=asdict(source),
    )  # fmt: skip


def _report(console: Console, output: Path, summary: dict[str, Any], options: Options, **more: Any) -> None:
    """The table on the screen, and the same as JSON next to the output."""
    target = output.with_name(f"{output.stem}.summary.json")
    whole = {"output": output.name, **more, "options": asdict(options), "threads": torch.get_num_threads(), **summary}
    write_text(target, json.dumps(whole, indent=1, default=str) + "\n")
    print_summary(console, summary, options.num_negatives)
    console.print(
        f"Written: {output} ({more['rows']:,} rows), {target.name}", highlight=False, soft_wrap=True
    )  # fmt: skip


def _load_positives(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of positives.")
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{path} cannot be read as positives ({error}): a .npy of row numbers, one or several per embedding."
        ) from None
