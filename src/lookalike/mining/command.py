"""`lookalike mine`: from pairs of texts and a model, or from embeddings, to a file of negatives and a summary."""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from rich.console import Console

from lookalike.data.embeddings import open_embeddings
from lookalike.data.labels import load_labels
from lookalike.mining import check_model
from lookalike.mining.formats import ALL_FORMATS, EXCHANGED, Layout, rows
from lookalike.mining.options import MISSING
from lookalike.mining.outputs import (
    check_output,
    id_writer,
    reserved,
    row_writer,
    scores_path,
    summary_path,
    version,
    work_folder,
    write_summary,
)
from lookalike.mining.pairs import paired
from lookalike.mining.sources import check_corpus, check_model_path, load_model, read_corpus, read_pairs
from lookalike.mining.store import CHUNK
from lookalike.mining.summary import print_summary, statistics, summarized, tallied
from lookalike.mining.texts import MiningInterrupted, Prompts, mine_texts
from lookalike.mining.vectors import Vectors
from lookalike.utils.files import writable
from lookalike.utils.machine import checked_device

if TYPE_CHECKING:
    from pathlib import Path

    from lookalike.mining.options import Options
    from lookalike.mining.outputs import IdWriter, Version
    from lookalike.mining.pairs import Pairs

INTERRUPTED = 130  # what a shell returns for a command that Ctrl-C ended


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """Pairs of texts, and the model that finds their negatives."""

    source: str
    model: str
    columns: str | None = None
    header: bool = True
    split: str | None = None
    corpus: str | None = None
    corpus_column: str | None = None
    corpus_header: bool = True
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
    if output_format not in ALL_FORMATS:
        raise ValueError(f"--format must be one of {', '.join(ALL_FORMATS)}, got {output_format!r}.")
    check_output(output, (".jsonl",) if output_format in EXCHANGED else (".jsonl", ".parquet"), force=force)
    _check(source)
    cache = source.cache_folder or work_folder(output)
    before = version(output)
    try:
        with reserved(output, force=force):
            layout = Layout(output_format, scores)
            summary, number = _mine_texts(console, source, options, output, layout, cache, seed)
        _print(console, output, summary, options, number)
    except KeyboardInterrupt as stopped:
        _end_interrupted(console, output, before, _kept(stopped, cache))


def _check(source: TextSource) -> None:
    """Refuse what is wrong as it was typed, before anything is read."""
    if source.device is not None:
        checked_device(source.device)
    for model in (source.model, source.cross_encoder):
        if model is not None:
            check_model_path(model)
    if source.corpus is not None:
        check_corpus(source.corpus, source.corpus_column, header=source.corpus_header)


def _mine_texts(
    console: Console, source: TextSource, options: Options, output: Path, layout: Layout, cache: Path, seed: int
) -> tuple[dict[str, Any], int]:
    """Read, mine and write; return the summary and the number of rows."""
    with writable(cache):
        cache.mkdir(parents=True, exist_ok=True)  # what cannot be used is found before the model is loaded
    columns, pairs = _read(console, source)
    layout = _named(layout, columns, options)
    model, judge = _load(console, source)
    random.seed(seed)
    began = time.perf_counter()
    mined = mine_texts(
        pairs,
        model,
        options,
        prompts=_prompts(source),
        cross_encoder=judge,
        batch_size=source.batch_size,
        cache_folder=cache,
        progress=True,
    )
    try:
        summary = summarized(mined)
        if not summary["scores"]["negatives"]["count"]:
            reasons = ", ".join(summary["queries_without"])
            raise ValueError(f"no query has a negative left ({reasons}), so nothing is written; loosen the filters.")
        kept = f"what was encoded is kept in {cache}; make room and run the same command again"
        with row_writer(output, rows(mined, layout), kept) as number:
            seconds = time.perf_counter() - began
            _write_summary(output, summary, options, seconds=seconds, rows=number, source=asdict(source))
    except KeyboardInterrupt:
        total = len(pairs.corpus) + len(pairs.queries)
        raise MiningInterrupted(total, total, cache) from None
    return summary, number


def _read(console: Console, source: TextSource) -> tuple[tuple[str, str], Pairs]:
    """Read the pairs and the corpus, and say what was found; returns what the output calls its columns."""
    read = read_pairs(source.source, source.columns, source.split, header=source.header)
    query, positive = read.columns
    found = f"columns {query} and {positive}" if source.header else f"columns {query} and {positive} (no header)"
    console.print(f"{len(read.queries):,} pairs from the {found}.", highlight=False, markup=False)
    corpus = None
    if source.corpus is not None:
        corpus = read_corpus(source.corpus, source.corpus_column, header=source.corpus_header)
    pairs = paired(read.queries, read.references, corpus)
    console.print(f"{len(pairs.queries):,} queries, {len(pairs.corpus):,} texts to search.", highlight=False)
    return read.columns if source.header else ("anchor", "positive"), pairs


def _named(layout: Layout, columns: tuple[str, str], options: Options) -> Layout:
    """Give the output the names of the input's columns."""
    named = replace(layout, anchor=columns[0], positive=columns[1])
    if layout.output_format not in EXCHANGED:
        names = named.names(options.num_negatives)
        if twice := next((name for name in columns if names.count(name) > 1), None):
            raise ValueError(f"the output would have two columns called {twice!r}; rename that of the input.")
    return named


def _load(console: Console, source: TextSource) -> tuple[Any, Any]:
    """Load the model and, if there is one, the cross-encoder."""
    device = source.device  # without one, the library chooses by itself
    with console.status(f"loading {source.model}"):
        model = load_model(source.model, device)
        check_model(model, source.query_prompt_name, source.corpus_prompt_name)
        judge = None if source.cross_encoder is None else load_model(source.cross_encoder, device, "CrossEncoder")
    return model, judge


def _prompts(source: TextSource) -> Prompts:
    return Prompts(
        query=source.query_prompt,
        query_name=source.query_prompt_name,
        corpus=source.corpus_prompt,
        corpus_name=source.corpus_prompt_name,
    )


def _kept(stopped: KeyboardInterrupt, cache: Path) -> str:
    """Say what the next run can start from."""
    if not isinstance(stopped, MiningInterrupted):
        return "Interrupted before anything was encoded: nothing new is kept."
    if stopped.kept:
        return (
            f"Interrupted: {stopped.kept:,} of {stopped.total:,} texts are encoded and kept in {cache}; the same "
            "command resumes from there."
        )
    return f"Interrupted before the first chunk of up to {CHUNK:,} texts was encoded: nothing new is kept."


def _end_interrupted(console: Console, output: Path, before: Version | None, unwritten: str) -> NoReturn:
    """End the command after Ctrl-C: say that the output is complete, or if it is not written, what there is instead."""
    said = unwritten
    if version(output) not in (None, before):
        work = work_folder(output)
        left = f" {work} is left over and can be deleted." if work.exists() else ""
        said = f"Interrupted, but the output is complete. Written: {output}, {summary_path(output).name}.{left}"
    console.print(f"\n{said}", highlight=False, markup=False, soft_wrap=True)
    sys.exit(INTERRUPTED)


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
    vectors = Vectors(embeddings, corpus, labels, positives, (source.embeddings, source.corpus or ""))
    searched = "themselves" if corpus is None else f"{len(corpus):,} others"
    console.print(f"{len(embeddings):,} embeddings of dimension {embeddings.shape[1]}, in {searched}.", highlight=False)
    random.seed(seed)
    began = time.perf_counter()
    number = len(embeddings)
    before = version(output)
    try:
        with reserved(output, force=force), id_writer(output, number, options.num_negatives) as writer:
            counts = {"queries": number, "corpus": number if corpus is None else len(corpus)}
            summary = {**counts, **_written(vectors, options, writer, device)}
            seconds = time.perf_counter() - began
            _write_summary(output, summary, options, seconds=seconds, rows=number, source=asdict(source))
        _print(console, output, summary, options, number)
    except KeyboardInterrupt:
        _end_interrupted(console, output, before, "Interrupted: nothing is written.")


def _written(vectors: Vectors, options: Options, writer: IdWriter, device: str) -> dict[str, Any]:
    """Write all negatives and return their statistics."""
    found, positive_scores, differences, complete = [], [], [], 0
    for part in vectors.mined(options, device=device, progress=True):
        writer.write(part)
        there = part.scores != MISSING
        found.append(part.scores[there].numpy())
        positive_scores.append(part.positive_scores.numpy())
        above = part.positive_scores[:, None] - part.scores[part.owners]
        differences.append(above[there[part.owners]].numpy())
        complete += int(there.all(dim=1).sum())
    writer.finish()
    scores = {
        "positives": statistics(np.concatenate(positive_scores)),
        "negatives": statistics(np.concatenate(found)),
        "difference": statistics(np.concatenate(differences)),
    }
    return {"scores": scores, **tallied(vectors.tally, complete)}


def _write_summary(output: Path, summary: dict[str, Any], options: Options, **more: Any) -> None:
    """Write what is printed as JSON next to the output."""
    whole = {"output": output.name, **more, "options": asdict(options), "threads": torch.get_num_threads(), **summary}
    write_summary(output, json.dumps(whole, indent=1, default=str) + "\n")


def _print(console: Console, output: Path, summary: dict[str, Any], options: Options, number: int) -> None:
    print_summary(console, summary, options.num_negatives)
    console.print(
        f"Written: {output} ({number:,} rows), {summary_path(output).name}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _load_positives(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of positives.")
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{path} cannot be read as positives ({error}): a .npy of row numbers, one or several per embedding."
        ) from None
