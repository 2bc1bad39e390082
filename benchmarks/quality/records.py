"""Keep the results of cells in one file, from which every table can be written without training again."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.quality.cells import Cell
from benchmarks.quality.worker import Outcome
from lookalike.training.comparison_results import ComparisonResult, spreads, summarize, zero_shot_rows
from lookalike.training.results import RunResult
from lookalike.utils.files import write_text

KEPT = "cells.jsonl"  # in the folders of runs and of results


class Records:
    """Results by the key of a cell.

    Args:
        folders: Folders with a file that results are appended to, one line per cell; what it holds already is read.
        known: Other such files, such as those of earlier calls on a machine that is gone.
    """

    def __init__(self, folders: Iterable[Path], known: Iterable[Path] = ()) -> None:
        self._paths = [folder / KEPT for folder in folders]
        self._records: dict[str, dict[str, Any]] = {}
        for file in (*known, *(path for path in self._paths if path.exists())):
            self._records |= {each["key"]: each for each in map(json.loads, file.read_text().splitlines())}
        for path in self._paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, "".join(json.dumps(each) + "\n" for each in self._records.values()))

    def __contains__(self, cell: Cell) -> bool:
        return cell.key in self._records

    def add(self, cell: Cell, outcome: Outcome, jobs: int) -> None:
        """Keep the result of a finished cell."""
        record = {"key": cell.key, "name": f"{cell.table}, {cell.part}: {cell.row}", "jobs": jobs}
        self._records[cell.key] = record | asdict(outcome)
        for path in self._paths:
            with path.open("a") as file:
                file.write(json.dumps(self._records[cell.key]) + "\n")

    def result(self, cell: Cell) -> RunResult:
        """Return the result of a cell."""
        return RunResult.from_json(self._records[cell.key]["result"])

    def _notes(self, cell: Cell) -> str:
        notes = self._records[cell.key]["notes"]
        shown = []
        if "beats" in notes:
            beats = " ".join(f"{rank}:{share:.2f}" for rank, share in notes["beats"].items())
            shown.append(f"beats {beats}, {'used' if notes.get('is_used') else 'not used'}")
        if flips := notes.get("flips"):
            shown.append(f"flips {min(flips):.3f} to {max(flips):.3f}, last {flips[-1]:.3f}")
        if "warm_start_seconds" in notes:
            shown.append(f"warm start {notes['warm_start_seconds']:.1f} s")
        return "".join(f" | {each}" for each in shown)

    def line(self, cell: Cell) -> str:
        """Describe the result of a cell: recall@1 by epoch, then what the run ended with."""
        record, result = self._records[cell.key], self.result(cell)
        first = " ".join(f"{100 * recall:5.2f}" for recall in _recalls(record["history"]))
        quality = f"R@10 {100 * result.metrics['recall@10']:5.2f}  MRR@10 {100 * result.metrics['mrr@10']:5.2f}"
        hardest = " ".join(f"{epoch['hardest_negative']:.2f}" for epoch in record["history"][1:])
        where = f"{cell.data}, {cell.part} | {cell.row} | seed {cell.settings.seed}"
        return f"{where} | R@1 {first} | {quality} | hardest {hardest} | {result.seconds or 0:.0f} s{self._notes(cell)}"

    def table(self, name: str, cells: list[Cell]) -> dict[str, Any]:
        """Return a table: one comparison per part, and the names of cells that have no result yet."""
        parts: dict[str, list[Cell]] = {}
        for cell in cells:
            parts.setdefault(cell.part, []).append(cell)
        missing = [f"{cell.part}: {cell.row}, seed {cell.settings.seed}" for cell in cells if cell not in self]
        compared = {part: self._comparison([cell for cell in own if cell in self]) for part, own in parts.items()}
        return {"table": name, "missing": missing, "parts": {part: each for part, each in compared.items() if each}}

    def overview(self, name: str, cells: list[Cell]) -> str:
        """Return means over seeds as lines of text."""
        lines = []
        for part, content in self.table(name, cells)["parts"].items():
            lines.append(f"{name}, {part}:")
            for row in ComparisonResult.from_json(content).rows:
                first, tenth, rank = (row.quality[metric] for metric in ("recall@1", "recall@10", "mrr@10"))
                spread = "" if first.sd is None else f" ±{100 * first.sd:.2f}"
                quality = (
                    f"R@1 {100 * first.mean:.2f}{spread}  R@10 {100 * tenth.mean:.2f}  MRR@10 {100 * rank.mean:.2f}"
                )
                lines.append(f"  {row.sampler:30} {quality}  ({row.runs})")
        return "\n".join(lines)

    def _comparison(self, cells: list[Cell]) -> dict[str, Any] | None:
        if not cells:
            return None
        results: dict[str, list[RunResult]] = {}
        for cell in cells:
            results.setdefault(cell.row, []).append(self.result(cell))
        first = self.result(cells[0])
        table = ComparisonResult(
            data=Path(cells[0].source.name).name,
            data_options=cells[0].source.options,
            encoder=cells[0].model["encoder"],
            description=self._records[cells[0].key]["description"],
            data_checksum=first.config["data_checksum"],
            model=first.config["model"],
            settings={cell.row: _settings(cell) for cell in cells},
            seeds=max(map(len, results.values())),
            jobs=max(self._records[cell.key]["jobs"] for cell in cells),
            rows=[*zero_shot_rows(results), *summarize(results)],
            machine=first.machine,
            versions=first.versions,
        )
        content = table.as_json()
        for row in content["rows"]:
            own = [cell for cell in cells if cell.row == row["sampler"]]
            row.update(
                self._more([self._records[cell.key] for cell in sorted(own, key=lambda cell: cell.settings.seed)])
            )
        return content

    def _more(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what a comparison does not hold, by seed: recall@1 by epoch, what was validated, and times of runs."""
        if not records:
            return {}
        more: dict[str, Any] = {"by_epoch": [_recalls(each["history"]) for each in records]}
        if validated := [each["result"]["validation"] for each in records if each["result"].get("validation")]:
            more["validation"] = {name: asdict(spread) for name, spread in spreads(validated).items()}
        if all(each["jobs"] == 1 for each in records):
            more["timed"] = [
                {
                    "seconds": [epoch["seconds"] for epoch in each["history"][1:]],
                    "mining_seconds": [epoch["mining_seconds"] for epoch in each["history"][1:]],
                    **{name: value for name, value in each["notes"].items() if name.endswith("_seconds")},
                }
                for each in records
            ]
        return more


def _recalls(history: list[dict[str, Any]]) -> list[float]:
    """Return recall@1 of every epoch that was evaluated, on the validation part if there is one."""
    evaluated = [epoch.get("validation") or epoch for epoch in history]
    return [epoch["recall@1"] for epoch in evaluated if "recall@1" in epoch]


def _settings(cell: Cell) -> dict[str, Any]:
    """Return the settings of a row, which its seeds share."""
    settings = asdict(cell.settings)
    del settings["seed"]
    return settings | ({"explicit_negatives": cell.negatives} if cell.negatives else {})
