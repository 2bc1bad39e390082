"""What a report is made of: runs, comparisons, analyses and benchmarks, found in folders, read and checked.

Everything that leaves this module was checked: figures draw it without looking again. What did not fit is left out and
named in `notices`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lookalike.report.checking import Checker
from lookalike.report.markup import printable
from lookalike.report.reading import Damaged, parse_object, read_bytes
from lookalike.report.schema import (
    checked_analysis,
    checked_benchmark,
    checked_comparison,
    checked_config,
    checked_epochs,
    checked_result,
)
from lookalike.training.run_folder import CONFIG, METRICS, MODEL, RESULT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TABLE, ANALYSIS = "compare.json", "analysis.json"
EXPECTED = f"{CONFIG} (a run), {TABLE} (a comparison) or {ANALYSIS} (an analysis)"


@dataclass(frozen=True)
class Run:
    """A run as far as it got."""

    path: Path
    config: dict[str, Any]
    epochs: list[dict[str, Any]]
    result: dict[str, Any] | None  # None: not finished
    of_comparison: bool = False  # whether a comparison's table has it already

    @property
    def state(self) -> str:
        """Empty for a finished run."""
        return "" if self.result else f"epoch {len(self.epochs)} of {self.config.get('epochs', '?')}"

    @property
    def weights(self) -> Path:
        """Where its final weights are."""
        return self.path / MODEL


@dataclass
class Sources:
    """Everything that was found."""

    runs: list[Run] = field(default_factory=list)
    comparisons: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)
    analyses: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)
    benchmarks: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)  # of the search
    notices: list[str] = field(default_factory=list)  # what is left out and why, in sentences
    _read: set[Path] = field(default_factory=set)

    def add(self, path: Path) -> bool:
        """Read what there is at a path, and return whether there is anything."""
        if path.is_file():
            if path.name in (CONFIG, TABLE):
                return self.add(path.parent)
            return path.suffix == ".json" and self._add_file(path)
        found = (path / ANALYSIS).is_file() and self._add_file(path / ANALYSIS)
        if (path / CONFIG).is_file():
            self._add_run(path)
            return True
        is_comparison = (path / TABLE).is_file()
        has_table = is_comparison and self._add_comparison(path / TABLE)
        inner = sorted(file.parent for file in path.glob(f"*/{CONFIG}"))
        for folder in inner:
            self._add_run(folder, of_comparison=has_table)
        for file in sorted(path.glob(f"*/{ANALYSIS}")):
            found = self._add_file(file) or found
        return bool(found or is_comparison or inner)

    def _add_run(self, path: Path, *, of_comparison: bool = False) -> None:
        if self._is_known(path):
            return
        config = self._checked(path / CONFIG, checked_config, "the run is left out")
        if config is None:
            return
        epochs = self._epochs(path / METRICS)
        result = None
        if (path / RESULT).is_file():
            result = self._checked(path / RESULT, checked_result, "the run is shown as far as its metrics go")
        if result is not None:
            result["config"] = {"seed": 0, **config}
        run = Run(path, config, epochs, result, of_comparison)
        self.runs.append(run)
        if not epochs:
            self.say(f"{path}: no epoch is finished, so there are no metrics.")
        elif not (path / RESULT).is_file():
            self.say(f"{path} is not finished and shown as far as it got, {run.state}.")
        if (path / ANALYSIS).is_file():
            self._add_file(path / ANALYSIS)

    def _add_comparison(self, path: Path) -> bool:
        if not self._is_known(path):
            content = self._checked(path, checked_comparison, "its runs are shown one by one")
            if content is None:
                return False
            self.comparisons.append((path.parent, {"data": path.parent.name, **content}))
        return any(folder.resolve() == path.parent.resolve() for folder, _ in self.comparisons)

    def _add_file(self, path: Path) -> bool:
        """Read an analysis, a benchmark of the search, or a comparison whose file was renamed."""
        if self._is_known(path):
            return True
        content = self._object(path, "the analysis is left out")
        if content is None:
            return True
        if not {"search", "rows", "histogram"} & set(content):
            self.say(f"{path} is not a run: it is none of {EXPECTED}, and no benchmark of the search.")
            return True
        checker = Checker(path)
        if "seeds" in content:  # a comparison under another name
            table = checked_comparison(content, checker)
            self.comparisons += [] if table is None else [(path, {"data": path.stem, **table})]
        elif isinstance(content.get("search"), list):
            benchmark = checked_benchmark(content, checker)
            self.benchmarks += [] if benchmark is None else [(path, benchmark)]
        else:
            analysis = checked_analysis(content, checker)
            self.analyses += [] if analysis is None else [(path, analysis)]
        self.say(*checker.notices())
        return True

    def _epochs(self, path: Path) -> list[dict[str, Any]]:
        """Read metrics.jsonl without its damaged lines."""
        if not path.is_file():
            return []
        try:
            data = read_bytes(path)
        except Damaged as error:
            self.say(f"{path} {error}: there are no metrics of the run.")
            return []
        lines, checker = [], Checker(path)
        for number, line in enumerate(data.split(b"\n"), 1):
            try:
                lines += [(f"line {number}", parse_object(line))] if line.strip() else []
            except Damaged:
                checker.leave_out("the line is damaged and left out", f"line {number}")
        epochs = checked_epochs(lines, checker)
        self.say(*checker.notices())
        return epochs

    def _checked(self, path: Path, check: Any, otherwise: str) -> dict[str, Any] | None:
        content, checker = self._object(path, otherwise), Checker(path)
        found: dict[str, Any] | None = None if content is None else check(content, checker)
        self.say(*checker.notices())
        return found

    def _object(self, path: Path, otherwise: str) -> dict[str, Any] | None:
        try:
            return parse_object(read_bytes(path))
        except Damaged as error:
            self.say(f"{path} {error}: {otherwise}.")
            return None

    def _is_known(self, path: Path) -> bool:
        """Whether this was read before, by whatever name."""
        resolved = path.resolve()
        known = resolved in self._read
        self._read.add(resolved)
        return known

    def say(self, *sentences: str) -> None:
        """Add notices."""
        self.notices += [printable(sentence) for sentence in sentences]


def read_sources(paths: Iterable[Path]) -> Sources:
    """Read runs, comparisons and analyses.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A folder holds none of these, or nothing in all paths can be read.
    """
    sources = Sources()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}; a report needs folders with {EXPECTED}.")
        if not sources.add(path):
            raise ValueError(f"{path} is not a run: it has no {EXPECTED}.")
    if not (sources.runs or sources.comparisons or sources.analyses or sources.benchmarks):
        raise ValueError(" ".join(sources.notices) or "a report needs at least one run.")
    return sources
