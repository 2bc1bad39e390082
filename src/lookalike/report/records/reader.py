"""Find runs, comparisons, analyses and benchmarks in folders, read them and check them.

Everything that leaves this module is typed and checked: figures draw it without looking again. What does not fit is
left out and named in `Records.notices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lookalike.report.records.analyses import Analysis, parse_analysis
from lookalike.report.records.benchmarks import SearchBenchmark, parse_benchmark
from lookalike.report.records.checks import Checker
from lookalike.report.records.comparisons import RUNS_INSTEAD, Comparison, parse_comparison
from lookalike.report.records.json_files import DamagedError, read_lines, read_object
from lookalike.report.records.kinds import LIST
from lookalike.report.records.runs import METRICS_ONLY, Run, parse_config, parse_epochs, parse_result
from lookalike.report.text import printable
from lookalike.training.run_folder import CONFIG, METRICS, RESULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from lookalike.training.results import EpochMetrics

T = TypeVar("T")
TABLE, ANALYSIS = "compare.json", "analysis.json"
EXPECTED = f"{CONFIG} (a run), {TABLE} (a comparison) or {ANALYSIS} (an analysis)"


@dataclass
class Records:
    """Everything that a report can show."""

    runs: list[Run]
    comparisons: list[Comparison]
    analyses: list[Analysis]
    benchmarks: list[SearchBenchmark]
    notices: list[str]
    """What is left out and why, in sentences."""


def read_records(paths: Iterable[Path]) -> Records:
    """Read everything that folders and files hold.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A path holds nothing that a report can show, or everything is damaged.
    """
    reader = _Reader()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist; a report needs folders with {EXPECTED}.")
        if not reader.add(path):
            raise ValueError(f"{path} holds nothing to report: it has no {EXPECTED}.")
    records = reader.records
    if not (records.runs or records.comparisons or records.analyses or records.benchmarks):
        raise ValueError(" ".join(records.notices) or "a report needs at least one run.")
    return records


class _Reader:
    def __init__(self) -> None:
        self.records = Records([], [], [], [], [])
        self._seen: set[Path] = set()
        self._tables: set[Path] = set()  # those that could be read

    def add(self, path: Path) -> bool:
        """Read everything at a path, and return whether there is anything."""
        if path.is_file():
            if path.name in (CONFIG, TABLE):
                return self.add(path.parent)
            return path.suffix == ".json" and self._add_file(path)
        found = (path / ANALYSIS).is_file() and self._add_file(path / ANALYSIS)
        if (path / CONFIG).is_file():
            self._add_run(path)
            return True
        is_comparison = (path / TABLE).is_file()
        has_table = is_comparison and self._add_table(path / TABLE)
        folders = sorted(file.parent for file in path.glob(f"*/{CONFIG}"))
        for folder in folders:
            self._add_run(folder, in_comparison=has_table)
        for file in sorted(path.glob(f"*/{ANALYSIS}")):
            found = self._add_file(file) or found
        return bool(found or is_comparison or folders)

    def _add_run(self, path: Path, *, in_comparison: bool = False) -> None:
        if self._is_seen(path):
            return
        config = self._read(path / CONFIG, parse_config, "skipped the run")
        if config is None:
            return
        has_result, result = (path / RESULT).is_file(), None
        epochs = self._epochs(path / METRICS)
        if has_result:
            result = self._read(path / RESULT, partial(parse_result, config=config), METRICS_ONLY)
        run = Run(path=path, config=config, epochs=epochs, result=result, in_comparison=in_comparison)
        self.records.runs.append(run)
        if not epochs:
            self._note(f"{path} has not finished an epoch, so there are no metrics.")
        elif not has_result:
            self._note(f"{path} is unfinished, shown up to {run.progress}.")
        if (path / ANALYSIS).is_file():
            self._add_file(path / ANALYSIS)

    def _epochs(self, path: Path) -> list[EpochMetrics]:
        if not path.is_file():
            return []
        checker = Checker(path)
        try:
            return parse_epochs(read_lines(path), checker)
        except DamagedError as error:
            self._note(f"{path} {error}; the run has no metrics.")
            return []
        finally:
            self._note(*checker.notices())

    def _add_table(self, path: Path) -> bool:
        """Read compare.json, and return whether the report shows it."""
        if not self._is_seen(path):
            table = self._read(path, partial(parse_comparison, data=path.parent.name), RUNS_INSTEAD)
            if table is not None:
                self.records.comparisons.append(table)
                self._tables.add(path.resolve())
        return path.resolve() in self._tables

    def _add_file(self, path: Path) -> bool:
        """Read an analysis, a search benchmark, or a comparison whose file was renamed."""
        if not self._is_seen(path):
            self._read(path, partial(self._add_content, path=path), "skipped the file")
        return True

    def _add_content(self, content: dict[str, Any], checker: Checker, path: Path) -> None:
        if not {"search", "rows", "histogram"} & set(content):
            self._note(f"{path} is not a run, a comparison, an analysis or a search benchmark; skipped the file.")
        elif "seeds" in content:
            table = parse_comparison(content, checker, data=path.stem)
            self.records.comparisons += [] if table is None else [table]
        elif LIST.fits(content.get("search")):
            benchmark = parse_benchmark(content, checker)
            self.records.benchmarks += [] if benchmark is None else [benchmark]
        else:
            analysis = parse_analysis(content, checker, path=path)
            self.records.analyses += [] if analysis is None else [analysis]

    def _read(self, path: Path, parse: Callable[[dict[str, Any], Checker], T], otherwise: str) -> T | None:
        """Read and parse a file, and note what is wrong with it."""
        checker = Checker(path)
        try:
            return parse(read_object(path), checker)
        except DamagedError as error:
            self._note(f"{path} {error}; {otherwise}.")
            return None
        finally:
            self._note(*checker.notices())

    def _is_seen(self, path: Path) -> bool:
        """Return whether this was read before, by whatever name."""
        resolved = path.resolve()
        seen = resolved in self._seen
        self._seen.add(resolved)
        return seen

    def _note(self, *sentences: str) -> None:
        self.records.notices += [printable(sentence) for sentence in sentences]
