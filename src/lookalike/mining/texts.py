"""Pairs of texts and a model -> negatives: encode, search, score, select."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lookalike.mining.candidates import Searched
from lookalike.mining.encoding import Encoded, Encoder
from lookalike.mining.options import MISSING, Options
from lookalike.mining.rescoring import Floats
from lookalike.mining.selection import Tally, selected
from lookalike.search import search_device
from lookalike.utils.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lookalike.mining.candidates import Candidates
    from lookalike.mining.pairs import Pairs


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """What stands before texts when they are encoded."""

    query: str | None = None
    query_name: str | None = None
    corpus: str | None = None
    corpus_name: str | None = None


class MiningInterrupted(KeyboardInterrupt):
    """Somebody pressed Ctrl-C while texts were encoded or searched; says how much of the encoding is kept."""

    def __init__(self, kept: int, total: int, folder: Path) -> None:
        super().__init__(f"{kept:,} of {total:,} texts are encoded and kept in {folder}")
        self.kept, self.total, self.folder = kept, total, folder


@dataclass(frozen=True)
class Mined:
    """The negatives of every query, best first, padded with -1 and minus infinity."""

    pairs: Pairs
    indices: Tensor  # int64 [q, num_negatives], into the corpus
    scores: Tensor  # float32 [q, num_negatives]
    positive_scores: Tensor  # float32 [p]
    tally: Tally


def mine_texts(
    pairs: Pairs,
    model: Any,
    options: Options,
    *,
    prompts: Prompts | None = None,
    cross_encoder: Any = None,
    batch_size: int = 32,
    multi_process: list[str] | bool = False,
    cache_folder: str | Path | None = None,
    progress: bool = False,
) -> Mined:
    """Find the negatives of every query.

    Args:
        pairs: Queries, corpus and positives.
        model: A `SentenceTransformer`.
        options: How many negatives and which.
        prompts: What stands before texts.
        cross_encoder: A `CrossEncoder` whose scores the filters are applied to.
        batch_size: Texts encoded at a time.
        multi_process: Encode on several devices.
        cache_folder: Where codes and floats are kept; by default a temporary folder.
        progress: Show bars on a terminal.

    Raises:
        MiningInterrupted: Ctrl-C was pressed, and there is a cache folder to resume from.
        FolderInUseError: Another process encodes the same texts in the same cache folder.
    """
    prompts = prompts or Prompts()
    kept: dict[str, int] = {}
    with _folder(cache_folder) as folder, _interruptions(kept, pairs, cache_folder):
        with _pool(model, multi_process) as pool:
            encoder = Encoder(
                model, folder, options.bits, options.center, bool(options.rescore), batch_size, pool, progress, kept
            )
            corpus = encoder.encoded("document", pairs.corpus, prompts.corpus, prompts.corpus_name)
            # Queries are centred by the mean of the corpus: codes are comparable only if both are seen from one point.
            queries = encoder.encoded("query", pairs.queries, prompts.query, prompts.query_name, corpus.mean)
        farthest = options.farthest(pairs.most_rows, cross_encoded=cross_encoder is not None)
        wanted = farthest + pairs.most_rows
        shortlist = options.shortlist(wanted)
        device = search_device(torch.device(model.device), options.bits, shortlist)
        searched = Searched(
            queries.codes,
            corpus.codes.to(device),
            pairs.offsets,
            pairs.positives,
            _floats(queries, corpus, model),
        )
        tally = Tally()
        parts = []
        rescored = cross_encoder is not None and options.filters_on_scores
        with (
            _pool(cross_encoder, multi_process and rescored) as pool,
            progress_bar(f"mining {len(pairs.queries):,} queries", len(pairs.queries), shown=progress) as bar,
        ):
            for part in searched.candidates(wanted, shortlist, options.queries_at_a_time):
                if rescored:
                    part = cross_encoded(part, pairs, cross_encoder, batch_size, pool)  # noqa: PLW2901
                parts.append((*selected(part, options, farthest, tally), part.positive_scores))
                bar.advance(len(part.scores))
        scores, indices, positive_scores = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return Mined(pairs, indices, scores, positive_scores, tally)


def cross_encoded(part: Candidates, pairs: Pairs, cross_encoder: Any, batch_size: int, pool: Any) -> Candidates:
    """The same candidates with the scores of a cross-encoder."""
    there = part.indices >= 0
    rows = there.nonzero()[:, 0] + part.first
    candidates = [
        (pairs.queries[q], pairs.corpus[i]) for q, i in zip(rows.tolist(), part.indices[there].tolist(), strict=True)
    ]
    first, last = pairs.offsets[part.first], pairs.offsets[part.first + len(part.scores)]
    listed = zip((part.owners + part.first).tolist(), pairs.positives[first:last].tolist(), strict=True)
    answers = [(pairs.queries[q], pairs.corpus[i]) for q, i in listed]
    more = {} if pool is None else {"pool": pool}
    found = cross_encoder.predict(
        [*candidates, *answers], batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False, **more
    )
    found = found.float().cpu()
    scores = torch.full(part.scores.shape, MISSING)
    scores[there] = found[: len(candidates)]
    return replace(part, scores=scores, positive_scores=found[len(candidates) :])


def _floats(queries: Encoded, corpus: Encoded, model: Any) -> Floats | None:
    """Embeddings are normalised, so that dot products and cosines are one; other similarities are asked for."""
    if queries.floats is None or corpus.floats is None:
        return None
    similarity = None if model.similarity_fn_name in ("cosine", "dot") else model.similarity_pairwise
    return Floats(queries.floats, corpus.floats, similarity)


@contextmanager
def _folder(given: str | Path | None) -> Iterator[Path]:
    """The folder that was given, or one that is gone afterwards."""
    if given is not None:
        yield Path(given)
        return
    folder = Path(tempfile.mkdtemp(prefix="lookalike-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _interruptions(kept: dict[str, int], pairs: Pairs, folder: str | Path | None) -> Iterator[None]:
    """Say on Ctrl-C what a run can resume from."""
    try:
        yield
    except KeyboardInterrupt:
        if folder is None:
            raise
        raise MiningInterrupted(sum(kept.values()), len(pairs.corpus) + len(pairs.queries), Path(folder)) from None


@contextmanager
def _pool(model: Any, devices: list[str] | bool) -> Iterator[Any]:
    """Processes that encode, where they are asked for."""
    if not devices:
        yield None
        return
    pool = model.start_multi_process_pool(target_devices=None if isinstance(devices, bool) else devices)
    try:
        yield pool
    finally:
        model.stop_multi_process_pool(pool)
