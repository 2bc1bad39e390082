"""Embeddings -> the row numbers of hard negatives: `mine_embeddings`, from arrays or files larger than memory."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from lookalike.data.embeddings import open_embeddings
from lookalike.data.labels import load_labels
from lookalike.hashing import SignHasher
from lookalike.mining import Search, Selection, Strategy
from lookalike.mining.formats import writing_ids
from lookalike.mining.outputs import (
    Summary,
    Tally,
    checked_output,
    interruptible,
    print_written,
    reserved,
    write_summary,
)
from lookalike.mining.pipeline import Problem, Side
from lookalike.mining.rows import UnitRows, rows_of
from lookalike.mining.same import same_references, same_rows
from lookalike.negatives import Filters, hardest_positives
from lookalike.negatives.same import merge_labels, read_same
from lookalike.utils.lists import Lists, checked_lists, joined_lists
from lookalike.utils.machine import checked_device
from lookalike.utils.progress import progress_bar
from lookalike.utils.tensors import checked_labels

ROWS = 8192  # to read and hash at a time; also the sample that the mean is computed from
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
    bits: int = 512,
    rescore: bool = True,
    oversampling: int | None = None,
    device: str | None = None,
    output: str | Path | None = None,
    force: bool = False,
    verbose: bool = True,
) -> MinedEmbeddings:
    """Find hard negatives of embeddings, by cosine.

    Each of the first five arguments is an array or the path of a file. A `.npy` file of embeddings stays on disk and is
    read a few megabytes at a time, however large it is.

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
        bits: Length of the codes, a multiple of 8.
        rescore: Score a shortlist with floats; otherwise a score is the cosine that a Hamming distance implies.
        oversampling: Length of the shortlist, in multiples of the candidates considered; by default 4, and at least 64
            candidates.
        device: Where to search; by default a GPU if there is one.
        output: Write row numbers to this .npy file and scores to another one beside it, or both to a .parquet file; and
            a summary.
        force: Overwrite the output.
        verbose: Print statistics, and show progress on a terminal.

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
    search = Search(bits=bits, rescore=rescore, oversampling=oversampling)
    filters.check_room(num_negatives, "num_negatives")
    device = checked_device(device)
    path = checked_output(output, (".npy", ".parquet"), force=force)
    queries = NormalizedRows("embeddings", embeddings, min_rows=2)
    searched = queries if reference is None else NormalizedRows("reference", reference, min_rows=1)
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
    indices, scores = torch.empty(n, num_negatives, dtype=torch.int64), torch.empty(n, num_negatives)
    with interruptible(path, lambda: None if path is None else "Interrupted: nothing is written."):
        with reserved(path, force=force):
            problem = replace(_hashed(queries, searched, checked, lists, search, progress=verbose), exclude=exclude)
            parts = problem.mine(selection, filters, search, device=torch.device(device), progress=verbose)
            for part in tally.counted(parts):
                rows = slice(part.first, part.first + len(part.indices))
                indices[rows], scores[rows] = part.indices, part.scores
            summary = tally.summary(m)
            if path is not None:
                given = {"embeddings": embeddings, "reference": reference, "labels": labels, "positives": positives}
                given |= {"same": same} if len(marked) else {}
                source = {name: str(value) if _is_path(value) else None for name, value in given.items()}
                with writing_ids(path, indices.numpy(), scores.numpy()):
                    more = {"seconds": time.perf_counter() - began, "rows": n, "source": source}
                    write_summary(path, summary, selection, filters, search, **more)
        summary.show(console, num_negatives)
        if path is not None:
            print_written(console, path, n)
    return MinedEmbeddings(indices, scores, summary)


class NormalizedRows(UnitRows):
    """Rows of an array or a file at unit length, whose dot products are cosines.

    Raises:
        FileNotFoundError: There is no such file.
        TypeError: It does not hold floats.
        ValueError: It is not two-dimensional, or too short.
    """

    def __init__(self, argument: str, given: Any, *, min_rows: int) -> None:
        self.name = str(given) if _is_path(given) else argument
        if isinstance(given, Tensor):
            given = given.detach().cpu().float().numpy()
        array = open_embeddings(given, min_rows=min_rows) if _is_path(given) else np.asanyarray(given)
        if array.dtype.kind != "f" or array.ndim != 2 or len(array) < min_rows:
            raise TypeError(
                f"{argument} must be floats of the shape [n, dim], at least {min_rows} of them, got {array.dtype} "
                f"{list(array.shape)}."
            )
        super().__init__(rows_of(array))

    def hash(self, hasher: SignHasher, *, progress: bool) -> Tensor:
        """Return the codes of all rows, uint8 [n, bits / 8], reading each row once.

        Raises:
            ValueError: A row is not finite.
        """
        n = self.shape[0]
        codes = torch.empty(n, hasher.bits // 8, dtype=torch.uint8)
        with progress_bar(f"hashing {n:,} rows", n, shown=progress) as bar:
            for start in range(0, n, ROWS):
                x = self.read_range(start, min(start + ROWS, n))
                codes[start : start + len(x)], finite = hasher.encode_flagged(x)
                if not bool(finite.all()):
                    row = start + int((~finite).nonzero()[0])
                    raise ValueError(
                        f"{self.name} must hold finite embeddings, but row {row} has NaN or infinity; remove such rows "
                        "or find out where they come from."
                    )
                bar.advance(len(x))
        return codes


def _hashed(
    queries: NormalizedRows,
    reference: NormalizedRows,
    labels: Tensor | None,
    positives: Lists,
    search: Search,
    *,
    progress: bool,
) -> Problem:
    """Read and hash both sides."""
    n, dim = reference.shape
    sample = reference.read(np.linspace(0, n - 1, min(ROWS, n)).astype(np.int64))
    hasher = SignHasher(dim, search.bits, center=search.center)
    # A row that is not finite is found, and named, when it is hashed.
    hasher.set_mean(torch.nan_to_num(sample.mean(0, dtype=torch.float64)), len(sample))
    codes = reference.hash(hasher, progress=progress)
    asked = codes if queries is reference else queries.hash(hasher, progress=progress)
    if labels is not None:
        positives = _without_padding(hardest_positives(codes, labels)[:, None])
    elif queries is reference:
        labels = torch.arange(n)  # every row is its own class, so that no row finds itself
    floats = (queries, reference) if search.rescore else (None, None)
    most = int(positives[0].diff().max())
    return Problem(Side(asked, floats[0]), Side(codes, floats[1]), positives, most, labels)


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
