"""Pairs of texts -> the folder of a job: read once, and not again when the job is resumed with the same files."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.mining.job import waiting_for
from lookalike.mining.pair_files import open_pair_files, write_pairs
from lookalike.utils.lists import lists_checksum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lookalike.mining.job import Job
    from lookalike.mining.pair_files import PairFiles
    from lookalike.mining.text_sources import TextSource
    from lookalike.utils.lists import Lists

LISTS = 1 << 20  # to read at a time


def read_once(
    job: Job, pairs: TextSource[Any], corpus: Iterable[list[str]], corpus_identity: dict[str, Any] | None
) -> PairFiles:
    """Return the pairs of a job; shards of it that start together wait for the one that reads.

    Args:
        job: The job.
        pairs: Where pairs come from.
        corpus: Batches of further texts.
        corpus_identity: What tells the files of the corpus from others; None if nothing does.

    Raises:
        ValueError: A text cannot be used; the message names the place.
    """
    columns = [list(pairs.columns), list(getattr(corpus, "columns", ()))]  # the same files may be read otherwise
    identity = {"pairs": pairs.identity, "corpus": corpus_identity, "columns": columns}
    with waiting_for(job.folder / "reading"):
        if _tells(pairs.identity) and corpus_identity is not None and (not corpus_identity or _tells(corpus_identity)):
            try:
                there = open_pair_files(job.pairs)
            except (FileNotFoundError, ValueError):
                pass
            else:
                if there.source == identity:
                    return there
        return write_pairs(job.pairs, pairs, corpus, source=identity)


def _tells(identity: dict[str, Any]) -> bool:
    """Return whether what has this identity is the same whenever it is read: not so a stream, or a name on a hub."""
    return "files" in identity or identity.get("fingerprint") is not None


def about(pairs: PairFiles, exclude: Lists | None) -> dict[str, Any]:
    """Tell these pairs from others: by their texts and by which answers which."""
    answers = 0
    for first in range(0, len(pairs.queries), LISTS):
        lists = pairs.positives.read(first, min(first + LISTS, len(pairs.queries)))
        answers = zlib.crc32(np.int64(lists_checksum(lists)).tobytes(), answers)
    return {
        "queries": f"{len(pairs.queries):,} texts, checksum {pairs.queries.checksum[:8]}",
        "corpus": f"{len(pairs.corpus):,} texts, checksum {pairs.corpus.checksum[:8]}",
        "positives": f"{pairs.num_rows:,} pairs, checksum {answers:08x}",
        "excluded": None if exclude is None else f"{len(exclude[1]):,} texts, checksum {lists_checksum(exclude):08x}",
    }
