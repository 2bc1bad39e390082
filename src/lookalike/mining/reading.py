"""Pairs of texts -> the folder of a job: read once, and not again when the job is resumed with the same files."""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from lookalike.mining.cells import checksum_of
from lookalike.mining.job import NEW_PAIRS, PAIRS, waiting_for
from lookalike.mining.pair_files import CORPUS_ROWS, ROWS, open_pair_files, write_pairs
from lookalike.utils.lists import lists_checksum

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lookalike.mining.job import Job
    from lookalike.mining.pair_files import PairFiles
    from lookalike.mining.text_sources import TextSource
    from lookalike.utils.lists import Lists

LISTS = 1 << 20  # to read at a time


def read_once(
    job: Job, pairs: TextSource[Any], corpus: Iterable[list[str]], corpus_identity: dict[str, Any] | None
) -> PairFiles:
    """Return the pairs of a job; shards of it that start together wait for the one that reads.

    Each reading has a folder that is named after it: a shard that reads anew, or reads something else and is refused
    for it, leaves alone what others are working on.

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
    told = _tells(pairs.identity) and corpus_identity is not None and (not corpus_identity or _tells(corpus_identity))
    with waiting_for(job.folder / "reading"):
        for folder in sorted(job.folder.glob(PAIRS)) if told else []:
            if (there := _opened(folder)) is not None and there.source == identity:
                return there
        found = write_pairs(job.folder / NEW_PAIRS, pairs, corpus, source=identity)
        place = job.pairs(_name_of(found))
        if (there := _opened(place)) is not None:
            shutil.rmtree(found.folder)
            return there
        if place.exists():
            shutil.rmtree(place)
        return open_pair_files(found.folder.rename(place))


def _opened(folder: Path) -> PairFiles | None:
    """Open pairs; None if they are missing or damaged."""
    try:
        return open_pair_files(folder)
    except (FileNotFoundError, ValueError):
        return None


def _name_of(found: PairFiles) -> str:
    """Name pairs after where they come from, their texts, and which row holds which."""
    rows = [checksum_of(found.folder / name) for name in (ROWS, CORPUS_ROWS)]
    known = json.dumps([found.source, found.queries.checksum, found.corpus.checksum, *rows])
    return hashlib.sha256(known.encode()).hexdigest()[:16]


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
