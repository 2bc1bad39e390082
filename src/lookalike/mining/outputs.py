"""Write the output of a run, whole or not at all, and a summary of it."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.table import Table

from lookalike.mining.pipeline import MISSING
from lookalike.mining.store import NOTE
from lookalike.utils.cards import DATA_SET, check_replaceable
from lookalike.utils.files import replacing
from lookalike.utils.imports import optional_import
from lookalike.utils.lists import row_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console

    from lookalike.mining import Search, Selection
    from lookalike.mining.pipeline import Part
    from lookalike.negatives import Filters
    from lookalike.utils.arrays import Array

STATISTICS = ("count", "mean", "std", "min", "25%", "median", "75%", "max")
TOO_FEW = "range and corpus"  # why a query came up short if no filter dropped anything


class MiningInterrupted(KeyboardInterrupt):
    """Ctrl-C stopped mining; the message says what is written, or what the next run resumes from."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Counts and statistics of what was mined; counts of what did not happen are left out."""

    queries: int
    references: int
    """Texts or rows that were searched."""
    scores: dict[str, dict[str, float]]
    """Count, mean and quantiles of positives, of negatives, and of the difference of each positive and negative."""
    candidates: int
    """Candidates that the filters looked at."""
    dropped: dict[str, int]
    """Candidates that each filter dropped."""
    queries_complete: int
    """Queries with as many negatives as were asked for."""
    queries_short: dict[str, int]
    """Queries with fewer, by the filter that dropped most of their candidates."""
    queries_without: dict[str, int]
    """Queries with none, by the same filter."""

    def show(self, console: Console, num_negatives: int) -> None:
        """Print the scores as a table, and a line for everything that was left out."""
        table = Table("score", *self.scores)
        for column in table.columns[1:]:
            column.justify = "right"
        for name in STATISTICS:
            values = [group.get(name) for group in self.scores.values()]
            table.add_row(name, *("" if v is None else f"{v:,}" if name == "count" else f"{v:.4f}" for v in values))
        console.print(table)
        for name, number in self.dropped.items():
            share = number / max(1, self.candidates)
            console.print(f"{name} dropped {number:,} candidates ({share:.1%}).", highlight=False)
        for reasons, what in (
            (self.queries_short, f"have fewer than {num_negatives} negatives"),
            (self.queries_without, "have no negative and are left out"),
        ):
            for reason, number in reasons.items():
                console.print(f"{number:,} queries ({number / self.queries:.1%}) {what}: {reason}.", highlight=False)


class Tally:
    """Count parts as they pass by."""

    def __init__(self) -> None:
        self._queries = self._candidates = self._complete = 0
        self._dropped, self._short, self._without = Counter[str](), Counter[str](), Counter[str]()
        self._scores: dict[str, list[Array]] = {"positives": [], "negatives": [], "difference": []}

    def counted(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Pass parts on, and count them."""
        for part in parts:
            self._add(part)
            yield part

    def summary(self, references: int) -> Summary:
        """Summarize what was counted."""
        return Summary(
            queries=self._queries,
            references=references,
            scores={name: statistics(np.concatenate(arrays)) for name, arrays in self._scores.items()},
            candidates=self._candidates,
            dropped=dict(+self._dropped),
            queries_complete=self._complete,
            queries_short=dict(+self._short),
            queries_without=dict(+self._without),
        )

    def check_any(self) -> None:
        """Check that there is a negative.

        Raises:
            ValueError: There is none; names the filters.
        """
        if not self._queries - self._without.total():
            reasons = ", ".join(+self._without)
            raise ValueError(f"no query has a negative left ({reasons}), so nothing is written; loosen the filters.")

    def _add(self, part: Part) -> None:
        found, owners = part.scores != MISSING, row_numbers(part.positives)
        differences = part.positive_scores[:, None] - part.scores[owners]
        self._scores["positives"].append(part.positive_scores.numpy())
        self._scores["negatives"].append(part.scores[found].numpy())
        self._scores["difference"].append(differences[found[owners]].numpy())
        number, wanted = found.sum(1), found.shape[1]
        self._queries += len(number)
        self._candidates += part.candidates
        self._complete += int((number == wanted).sum())
        reason = torch.stack([torch.zeros_like(number), *part.dropped.values()]).argmax(0)
        for i, name in enumerate([TOO_FEW, *part.dropped]):
            self._without[name] += int(((number == 0) & (reason == i)).sum())
            self._short[name] += int(((number > 0) & (number < wanted) & (reason == i)).sum())
        for name, counts in part.dropped.items():
            self._dropped[name] += int(counts.sum())


def statistics(values: Array) -> dict[str, float]:
    """Compute count, mean and quantiles; of no values only the count.

    Examples:
        >>> import numpy as np
        >>> statistics(np.array([1.0, 2.0, 6.0]))["median"], statistics(np.array([]))
        (2.0, {'count': 0})
    """
    if len(values) == 0:
        return {"count": 0}
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75))
    found = (values.mean(), values.std(), values.min(), low, median, high, values.max())
    return dict(zip(STATISTICS, (len(values), *(round(float(value), 6) for value in found)), strict=True))


def checked_output(
    output: str | Path | None, suffixes: tuple[str, ...], *, force: bool, folders: bool = False
) -> Path | None:
    """Refuse an output that could not be written in the end, before anything is computed.

    With `folders`, an output without a suffix is a data set folder.

    Raises:
        ImportError: Writing it needs a library that is not installed.
        ValueError: It exists, has another suffix, or its folder cannot be written to.
    """
    if output is None:
        return None
    path = Path(output)
    if path.suffix not in (*suffixes, "") or not (path.suffix or folders):
        more = "; without a suffix it is a data set folder" if folders else ""
        raise ValueError(f"output must end in {' or '.join(suffixes)}, got {path.name}{more}.")
    for each in _files(path):
        refuse_existing(each, force=force)
    if path.suffix and path.is_dir():
        raise ValueError(f"{path} is a folder; output names a file.")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is not a folder; create it or choose another output.")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"{path.parent} cannot be written to; choose another output.")
    if path.suffix in (".parquet", ""):
        optional_import("pyarrow.parquet", "writing parquet")
    return path


@contextlib.contextmanager
def interruptible(output: Path | None, kept: Callable[[], str | None]) -> Iterator[None]:
    """Turn Ctrl-C into an error that says whether the output is complete or, if not, what is `kept`.

    Raises:
        MiningInterrupted: Ctrl-C was pressed, and there is something to report.
    """
    before = None if output is None else output_version(output)
    try:
        yield
    except KeyboardInterrupt:
        said = kept()
        if output is not None and output_version(output) not in (None, before):
            work = work_folder(output)
            left = f" {work} is left over and can be deleted." if work.exists() else ""
            said = f"Interrupted, but the output is complete. Written: {output}, {summary_path(output).name}.{left}"
        if said is None:
            raise
        raise MiningInterrupted(said) from None


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse an output that exists, unless it may be overwritten."""
    if not path.suffix:
        check_replaceable(path, DATA_SET, "output", force=force)
    elif path.exists() and not force:
        work = work_folder(path)
        kept = any(each for pattern in (f"*/{NOTE}", "cells-*") for each in work.glob(pattern))
        left = f" {work.name} beside it is from an interrupted run." if kept else ""
        raise ValueError(f"{path} exists; force=True overwrites it, output= chooses another file.{left}")
    elif not force and (summary := summary_path(path)).exists():
        others = [path.with_suffix(suffix) for suffix in (".jsonl", ".parquet", ".npy") if suffix != path.suffix]
        if other := next((each for each in others if each.exists()), None):
            raise ValueError(
                f"{summary} belongs to {other}, and would be replaced; force=True overwrites it, output= chooses "
                "another name."
            )


def output_version(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from one that replaces it: inode and time of change."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def work_folder(output: Path) -> Path:
    """Return the folder beside an output that holds its lock and what was encoded for it."""
    return output.with_name(f"{output.name}.cache")


def summary_path(output: Path) -> Path:
    """Return the path of the summary of an output."""
    if not output.suffix:
        return output / "summary.json"
    return output.with_name(f"{output.stem}.summary.json")


def scores_path(output: Path) -> Path:
    """Return the path of the scores that belong to a .npy file of row numbers."""
    return output.with_name(f"{output.stem}.scores.npy")


def _files(output: Path) -> list[Path]:
    return [output, scores_path(output)] if output.suffix == ".npy" else [output]


def summary_record(
    output: Path, summary: Summary, selection: Selection, filters: Filters, search: Search, **more: Any
) -> dict[str, Any]:
    """Return everything that the summary of an output holds."""
    chosen = {each.name: getattr(filters, each.name) for each in fields(filters) if each.name != "exclude"}
    settings = {"options": {**asdict(selection), **chosen, **search.settings()}, "threads": torch.get_num_threads()}
    return {"output": output.name, **more, **settings, **asdict(summary)}


def write_summary(
    output: Path,
    summary: Summary,
    selection: Selection,
    filters: Filters,
    search: Search,
    *,
    likely: Path | None = None,
    **more: Any,
) -> None:
    """Write the summary as JSON, last before the output itself takes its place.

    Remove the files that these replace first, and the likely positives of an earlier run: a process that is killed in
    between leaves fewer files, but never the rows of one run with the summary or the scores of another.
    """
    whole = summary_record(output, summary, selection, filters, search, **more)
    path = summary_path(output)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(whole, indent=1, default=str) + "\n", encoding="utf-8")
        for old in (path, *_files(output), *([] if likely is None else [likely])):
            old.unlink(missing_ok=True)


def print_written(console: Console, output: Path, rows: int) -> None:
    """Print which files were written."""
    written = f"Written: {output} ({rows:,} rows), {summary_path(output).name}"
    console.print(written, highlight=False, markup=False, soft_wrap=True)
