"""Embeddings -> the row numbers of hard negatives: `mine_embeddings`, from arrays or files larger than memory."""

from __future__ import annotations

import json
import os
import time
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from lookalike.data.labels import load_labels
from lookalike.mining import Code, Rescore, Search, Selection, Strategy
from lookalike.mining.cells import Grid, default_block
from lookalike.mining.embedding_shards import embeddings_identity, open_shards
from lookalike.mining.engines import InProcess, Shard, checked_engine
from lookalike.mining.estimating import DryRun, Estimate
from lookalike.mining.fitting import STATISTICS, row_fitting
from lookalike.mining.formats import writing_ids
from lookalike.mining.job import FLOATS, held_job, settings_of
from lookalike.mining.outputs import (
    Summary,
    Tally,
    checked_output,
    interruptible,
    print_written,
    work_folder,
    write_summary,
)
from lookalike.mining.pipeline import Pipeline
from lookalike.mining.rows import FileRows, UnitRows, rows_of
from lookalike.mining.run import SAMPLE, AnswersInMemory, Run
from lookalike.mining.same import same_references, same_rows
from lookalike.mining.shard_files import files_identity
from lookalike.mining.stages import complete, fitted
from lookalike.negatives import Filters
from lookalike.negatives.same import merge_labels, read_same
from lookalike.utils.checks import checked_positive
from lookalike.utils.lists import Lists, checked_lists, joined_lists, lists_checksum
from lookalike.utils.machine import checked_device
from lookalike.utils.tensors import checked_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lookalike.mining.engines import Engine
    from lookalike.mining.job import Job

ROWS = 8192  # to read and hash at a time
NO_FILTERS = Filters()


@dataclass(frozen=True)
class MinedEmbeddings:
    """The negatives of every row."""

    indices: Tensor
    """Row numbers in the reference, int64 `[n, num_negatives]`, best first, padded with -1."""
    scores: Tensor
    """Their cosines, float32 `[n, num_negatives]`, padded with minus infinity."""
    summary: Summary


def mine_embeddings(
    embeddings: Any,
    reference: Any = None,
    *,
    labels: Any = None,
    positives: Any = None,
    same: Any = None,
    num_negatives: int = 3,
    filters: Filters = NO_FILTERS,
    sampling_strategy: Strategy = "top",
    seed: int | None = 0,
    bits: int | None = None,
    code: Code | None = None,
    rescore: Rescore = "floats",
    oversampling: int | None = None,
    device: str | None = None,
    output: str | Path | None = None,
    force: bool = False,
    verbose: bool = True,
    block: int | None = None,
    engine: Engine | None = None,
) -> MinedEmbeddings | Estimate | None:
    """Find hard negatives of embeddings, by cosine.

    Each of the first five arguments is an array or the path of a file. Embeddings may also be shards: a list of `.npy`
    or `.parquet` files, a pattern such as "x/*.npy", or a folder of them. Files of embeddings stay on disk and are read
    a few megabytes at a time, however large they are.

    Args:
        embeddings: Floats `[n, dim]`: the queries.
        reference: Floats `[m, dim]` to find negatives in; by default the embeddings themselves, each without itself.
        labels: One label per embedding: rows that share a label are positives of each other. Not with a `reference`.
        positives: The rows of the reference that are positives of each embedding: integers `[n]` or `[n, p]`, -1 for
            none, or a CSR pair `(offsets, ids)`. Instead of labels.
        same: Pairs of rows that a person marked as the same: row numbers `[m, 2]`, or a file as `read_same` reads it.
            The two count as one label. With a `reference`, a pair is a row of the embeddings and a row of the
            reference. No negative is the same as its query or as one of its positives.
        num_negatives: Negatives per embedding.
        filters: Which candidates count. Margins are measured from the lowest score of the positives or, with labels,
            from that of the positive that is farthest in bits.
        sampling_strategy: Take the "top" candidates that pass the filters, or "random" ones.
        seed: Seed of random sampling; None draws from Python's global generator.
        bits: Length of the codes, a multiple of 8; by default 512, or 1024 if codes score.
        code: What the bits hold: "signs", one bit per rotated dimension, or "scalar", several bits for each principal
            component of a sample of the references; by default signs, or scalar if codes score.
        rescore: Score a shortlist with "floats" or, without reading those of references, by "codes": codes of several
            bits by their dot product with the floats of the query, signs by the cosine that a Hamming distance implies.
        oversampling: Length of the shortlist, in multiples of the candidates considered; by default 4, and at least 64
            candidates, or 2 and 16 where codes score.
        device: Where to search; by default a GPU if there is one.
        output: Write row numbers to this .npy file and scores to another one beside it, or both to a .parquet file; and
            a summary.
        force: Overwrite the output.
        verbose: Print statistics, and show progress: a bar on a terminal, elsewhere a line a minute.
        block: Rows that are hashed, searched and finished together, which is what a killed run loses at most; by
            default 131,072, or four times as many from 16 million rows on, and fewer where a row has more than 64
            positives. The result does not depend on it, unless negatives are drawn at random.
        engine: What does the work: by default this process; `Shard`, `Merge` or `OnRay` share it out.

    Returns:
        The negatives; None from a `Shard`, whose share is kept beside the output until it is merged.

    Raises:
        FileNotFoundError: There is no such file.
        TypeError: An array holds values of the wrong type.
        ValueError: Shapes do not fit together, a row is not finite, or an argument is out of range.
        FolderInUseError: Another process writes the same output.
        MiningInterrupted: Ctrl-C was pressed.

    Examples:
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.6, 0.6], [-0.1, 1.0]])
        >>> mined = mine_embeddings(x, labels=[0, 0, 1, 1], num_negatives=1, verbose=False)
        >>> mined.indices.flatten().tolist(), mined.summary.queries_complete
        ([2, 2, 0, 0], 4)
    """
    selection = Selection(num_negatives=num_negatives, sampling_strategy=sampling_strategy, seed=seed)
    search = Search(bits=bits, code=code, rescore=rescore, oversampling=oversampling)
    filters.check_room(num_negatives, "num_negatives")
    if device is not None:
        checked_device(device)
    path = checked_output(output, (".npy", ".parquet"), force=force)
    engine = checked_engine(engine, path, selection, force=force)
    floats = None if path is None else work_folder(path) / FLOATS
    queries = NormalizedRows("embeddings", embeddings, min_rows=2 if reference is None else 1, cache=floats)
    searched = queries if reference is None else NormalizedRows("reference", reference, min_rows=1, cache=floats)
    (n, dim), (m, _) = queries.shape, searched.shape
    if dim != searched.shape[1]:
        raise ValueError(
            f"{queries.name} and {searched.name} must have the same dimension, got {dim} and {searched.shape[1]}; "
            "encode both with one model."
        )
    checked = None if labels is None else _checked_labels(labels, n, reference, positives)
    lists = _checked_positives(positives, n, m)
    exclude = None if filters.exclude is None else checked_lists("exclude", filters.exclude, n, m, torch.device("cpu"))
    marked = np.empty((0, 2)) if same is None else read_same(same, n, references=None if reference is None else m)
    if len(marked) and reference is None and positives is None:
        checked = torch.from_numpy(merge_labels(checked, marked, n))
    elif len(marked):
        apart = same_rows(marked, n, lists) if reference is None else same_references(marked, n, m, lists)
        exclude = apart if exclude is None else joined_lists(apart, exclude)
    console, tally = Console(quiet=not verbose), Tally()
    where = "themselves" if reference is None else f"{m:,} others"
    console.print(f"{n:,} embeddings of dimension {dim}, searched in {where}.", highlight=False)
    began = time.perf_counter()
    by_label = checked is not None
    most = 1 if by_label else int(lists[0].diff().max())
    pipeline = Pipeline(selection, filters, search, most, has_floats=True)
    block = default_block(n, most) if block is None else checked_positive("block", block)
    data = {
        "embeddings": queries.identity,
        "reference": searched.identity,
        "labels": None if checked is None else f"checksum {zlib.crc32(checked.numpy().data):08x}",
        "positives": f"checksum {lists_checksum(lists):08x}",
        "exclude": None if exclude is None else f"checksum {lists_checksum(exclude):08x}",
    }
    holding: list[Job] = []
    with interruptible(path, lambda: _kept(*holding)):
        with held_job(path, engine, force=force) as job:
            holding.append(job)
            job.check_same({"data": data})
            scalar = None
            if search.is_scalar and not isinstance(engine, DryRun):
                scalar = fitted(row_fitting(job.cells(STATISTICS), searched, search.length), InProcess())
            scheme = None if scalar is None else scalar.scheme.identity
            run = Run(
                folder=job.cells(search.length, search.center, scheme, pipeline.shortlist, block),
                finished=job.cells(settings_of(pipeline), scheme, block),
                grid=Grid(n, m, itself=reference is None, encodes=False, block=block),
                sides={"query": queries, "reference": searched},
                pipeline=pipeline,
                positives=None if by_label else AnswersInMemory(lists),
                labels=checked,
                exclude=exclude,
                device=device,
                scalar=scalar,
            )
            if isinstance(engine, DryRun):
                return engine.measured(run, console)
            complete(run, engine, progress=verbose)
            if isinstance(engine, Shard):
                return None
            indices, scores = torch.empty(n, num_negatives, dtype=torch.int64), torch.empty(n, num_negatives)
            for part in tally.counted(run.parts()):
                rows = slice(part.first, part.first + len(part.indices))
                indices[rows], scores[rows] = part.indices, part.scores
            summary = tally.summary(m)
            if path is not None:
                given = {"embeddings": embeddings, "reference": reference, "labels": labels, "positives": positives}
                given |= {"same": same} if len(marked) else {}
                source = {name: str(value) if _is_path(value) else None for name, value in given.items()}
                with writing_ids(path, indices.numpy(), scores.numpy()):
                    more: dict[str, Any] = {"seconds": time.perf_counter() - began, "rows": n, "source": source}
                    write_summary(path, summary, selection, filters, search, **more)
        summary.show(console, num_negatives)
        if path is not None:
            print_written(console, path, n)
    return MinedEmbeddings(indices, scores, summary)


class NormalizedRows(UnitRows):
    """One side of a run: rows of an array or a file at unit length, whose dot products are cosines.

    Raises:
        FileNotFoundError: There is no such file.
        TypeError: It does not hold floats.
        ValueError: It is not two-dimensional, or too short.
    """

    def __init__(self, argument: str, given: Any, *, min_rows: int, cache: Path | None = None) -> None:
        self.name = str(given) if _is_path(given) else argument
        self._files: dict[str, Any] | None = None  # those that the rows come from
        if isinstance(given, Tensor):
            given = given.detach().cpu().float().numpy()
        if _is_path(given) or (isinstance(given, list | tuple) and all(map(_is_path, given))):
            super().__init__(open_shards(given, cache=cache, min_rows=min_rows))
            self._files = embeddings_identity(given)
            return
        array = np.asanyarray(given)
        if array.dtype.kind != "f" or array.ndim != 2 or len(array) < min_rows:
            raise TypeError(
                f"{argument} must be floats of the shape [n, dim], at least {min_rows} of them, got {array.dtype} "
                f"{list(array.shape)}."
            )
        super().__init__(rows_of(array))
        if isinstance(self.rows, FileRows):  # of a mapped array, which may be larger than memory
            self._files = {**files_identity([Path(self.rows.path)]), "offset": self.rows.offset}

    @property
    def floats(self) -> NormalizedRows:
        """The rows themselves."""
        return self

    def encode(self, rows: range, advance: Callable[[float], None]) -> dict[str, Tensor]:
        """Encode nothing: embeddings are there."""
        raise NotImplementedError

    def holds(self, rows: range, *, read: bool = True) -> bool:  # noqa: ARG002
        """Return True: they are as they were given."""
        return True

    def blocks(self, rows: range) -> Iterator[tuple[slice, Tensor]]:
        """Yield the rows of a block, a few thousand at a time, and which of them they are."""
        for start in range(rows.start, rows.stop, ROWS):
            stop = min(start + ROWS, rows.stop)
            yield slice(start - rows.start, stop - rows.start), self.read_range(start, stop)

    def name_row(self, row: int) -> str:
        """Say that a row is not finite."""
        return (
            f"{self.name} must hold finite embeddings, but row {row} has NaN or infinity; remove such rows or find out "
            "where they come from."
        )

    @cached_property
    def identity(self) -> str:
        """Tell these embeddings from others: by when files changed and a sample of their rows, or by all rows."""
        n, dim = self.shape
        name = self.name if self._files is None else Path(self.name).resolve().name  # however the path was typed
        about = f"{name}, {n:,} x {dim}, checksum"
        if self._files is not None:
            sample = self.rows.read(np.linspace(0, n - 1, min(SAMPLE, n)).astype(np.int64))
            files = zlib.crc32(json.dumps(self._files).encode())
            return f"{about} {zlib.crc32(sample.numpy().data):08x}, sizes and times of files {files:08x}"
        checksum = 0
        for start in range(0, n, ROWS):
            rows = self.rows.read_range(start, min(start + ROWS, n)).contiguous()
            checksum = zlib.crc32(rows.numpy().data, checksum)
        return f"{about} {checksum:08x}"


def _kept(job: Job | None = None) -> str | None:
    """Say what the next run can resume from."""
    if job is None or job.output is None:
        return None
    if not (cells := job.kept()):
        return "Interrupted: nothing is written."
    return f"Interrupted: {cells:,} cells are done and kept in {job.folder}; the next run resumes from there."


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _checked_labels(labels: Any, n: int, reference: Any, positives: Any) -> Tensor:
    """Return integers [n].

    Raises:
        ValueError: There are a reference or positives as well, or all labels differ.
    """
    if reference is not None or positives is not None:
        raise ValueError("labels belong to embeddings that are searched in themselves; give them or positives.")
    checked = checked_labels("labels", load_labels(Path(labels), n) if _is_path(labels) else labels, n)
    if len(torch.unique(checked)) == n > 1:
        raise ValueError(
            f"all {n:,} labels are different, so no row has a positive: give labels that repeat, or none, and each row "
            "is a class of its own."
        )
    return checked


def _checked_positives(positives: Any, n: int, m: int) -> Lists:
    """Return the positives of n rows among m rows.

    Raises:
        ValueError: They are not rows of the reference.
    """
    if positives is None:
        return torch.zeros(n + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    if isinstance(positives, tuple):
        return checked_lists("positives", positives, n, m, torch.device("cpu"))
    given = np.asarray(_load_positives(Path(positives)) if _is_path(positives) else positives)
    rows = given[:, None] if given.ndim == 1 else given
    if rows.dtype.kind not in "iu" or rows.ndim != 2 or len(rows) != n:
        raise ValueError(
            f"positives must be integers of the shape [{n}] or [{n}, p], got {given.dtype} {list(given.shape)}."
        )
    if rows.size and not -1 <= int(rows.min()) <= int(rows.max()) < m:
        raise ValueError(f"positives must be between 0 and {m - 1}, or -1 for none: rows of the reference.")
    return _without_padding(torch.from_numpy(rows.astype(np.int64)))


def _load_positives(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of positives.")
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{path} cannot be read as positives ({error}): a .npy of row numbers, one or several per embedding."
        ) from None


def _without_padding(rows: Tensor) -> Lists:
    """Turn rows that are padded with -1 into lists."""
    there = rows >= 0
    return torch.cat([torch.zeros(1, dtype=torch.int64), there.sum(1).cumsum(0)]), rows[there]
