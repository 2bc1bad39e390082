"""Reading what a report is made of: folders of runs, of comparisons, of analyses; what is damaged is said."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lookalike.runs import CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

EXPECTED = f"{CONFIG} (a run), compare.json (a comparison) or analysis.json (an analysis)"
MOST_EPOCHS = 10**6


@dataclass(frozen=True)
class Run:
    """A run as far as it got."""

    path: Path
    config: dict[str, Any]
    epochs: list[dict[str, Any]]  # the lines of metrics.jsonl
    result: dict[str, Any] | None  # None: not finished
    of_comparison: bool = False  # whether a comparison's table has it already

    @property
    def state(self) -> str:
        """Empty for a finished run."""
        return "" if self.result else f"epoch {len(self.epochs)} of {self.config.get('epochs', '?')}"


@dataclass
class Sources:
    """Everything that was found."""

    runs: list[Run] = field(default_factory=list)
    comparisons: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)
    analyses: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)
    benchmarks: list[tuple[Path, dict[str, Any]]] = field(default_factory=list)  # of the search
    notices: list[str] = field(default_factory=list)  # what could not be read, in sentences

    def add(self, path: Path) -> bool:
        """Read what there is at a path, if it is anything, and say whether it is."""
        if path.is_file():
            name = {CONFIG: "", "compare.json": "", "analysis.json": "analysis.json"}.get(path.name)
            if name == "":
                return self.add(path.parent)
            return path.suffix == ".json" and self._add_analysis(path, named=name is None)
        found = (path / "analysis.json").is_file() and self._add_analysis(path / "analysis.json")
        if (path / CONFIG).is_file():
            self._add_run(path)
            return True
        has_table = (path / "compare.json").is_file() and self._add_comparison(path / "compare.json")
        inner = sorted(file.parent for file in path.glob(f"*/{CONFIG}"))
        for folder in inner:
            self._add_run(folder, of_comparison=has_table)
        for file in sorted(path.glob("*/analysis.json")):
            found = self._add_analysis(file) or found
        return bool(found or has_table or inner or (path / "compare.json").is_file())

    def _add_run(self, path: Path, *, of_comparison: bool = False) -> None:
        if any(run.path.resolve() == path.resolve() for run in self.runs):
            return
        config = self._read(path / CONFIG, "the run is left out")
        if config is None:
            return
        if not isinstance(config.get("sampler"), str):
            self.notices.append(f"{path / CONFIG} names no sampler: the run is left out.")
            return
        epochs = self._read_lines(path / "metrics.jsonl")
        result = None
        if (path / "result.json").is_file():
            result = self._read(path / "result.json", "the run is shown as far as its metrics go")
        run = Run(path, config, epochs, result, of_comparison)
        self.runs.append(run)
        if not epochs:
            self.notices.append(f"{path}: no epoch is finished, so there are no metrics.")
        elif result is None:
            self.notices.append(f"{path} is not finished and shown as far as it got, {run.state}.")
        if (path / "analysis.json").is_file():
            self._add_analysis(path / "analysis.json")

    def _add_comparison(self, path: Path) -> bool:
        if any(path.resolve() == other.resolve() for other, _ in self.comparisons):
            return True
        content = self._read(path, "its runs are shown one by one")
        if content is None:
            return False
        if not isinstance(content.get("rows"), list) or not content["rows"]:
            self.notices.append(f"{path} has no rows: its runs are shown one by one.")
            return False
        self.comparisons.append((path.parent, content))
        return True

    def _add_analysis(self, path: Path, *, named: bool = False) -> bool:
        if any(path.resolve() == other.resolve() for other, _ in self.analyses):
            return True
        content = self._read(path, "the analysis is left out")
        if content is None:
            return True
        if isinstance(content.get("search"), list):
            self.benchmarks.append((path, content))
            return True
        if "rows" not in content and "histogram" not in content:
            if not named:
                self.notices.append(f"{path} has neither rows nor a histogram: the analysis is left out.")
            return not named
        self.analyses.append((path, content))
        return True

    def _read(self, path: Path, otherwise: str) -> dict[str, Any] | None:
        """An object from a JSON file; None, with a notice, if there is none in it."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self.notices.append(f"{path} cannot be read ({error}): {otherwise}.")
            return None
        if not isinstance(content, dict):
            self.notices.append(f"{path} holds {type(content).__name__}, not an object: {otherwise}.")
            return None
        return content

    def _read_lines(self, path: Path) -> list[dict[str, Any]]:
        """The epochs of metrics.jsonl, without damaged lines."""
        if not path.is_file():
            return []
        epochs = []
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            try:
                epoch = json.loads(line)
                if not 0 <= epoch["epoch"] < MOST_EPOCHS:
                    raise ValueError
            except (ValueError, TypeError, KeyError):
                self.notices.append(f"{path}, line {number}, is damaged and left out.")
            else:
                epochs.append(epoch)
        return [epoch for epoch in epochs if epoch["epoch"] > 0]  # 0 is the model before training


def read_sources(paths: Iterable[Path]) -> Sources:
    """Read runs, comparisons and analyses.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A path is none of these, or nothing in all of them can be read.
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
