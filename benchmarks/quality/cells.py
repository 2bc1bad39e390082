"""Cells: runs to train, each with a folder and a name of its own, made from plain dictionaries."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks.quality.sources import SOURCES
from lookalike.data import DataSource
from lookalike.training.recipes import recipe
from lookalike.training.settings import Settings

ENTRIES = ("data", "rows", "seeds", "settings", "part", "data_options", "model_options", "turn")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
YAML_WORDS = {True: "on", False: "off"}  # what it makes of them
NEGATIVES = "negatives"  # of a row, next to its settings: explicit negatives mined with the untrained model


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run."""

    table: str
    part: str
    """The comparison inside the table that the run belongs to: what all its rows share."""
    row: str
    data: str
    """One of `SOURCES`."""
    source: DataSource
    settings: Settings
    model: dict[str, Any] = field(default_factory=dict)
    """Arguments of `make_encoder`."""
    negatives: int = 0
    """Explicit negatives per pair, mined with the untrained model."""
    turn: int = 0
    """Cells of an earlier turn begin first."""

    @property
    def key(self) -> str:
        """A checksum of everything that decides the outcome; cells of two tables that share it are one run."""
        return self._checksum({name: value for name, value in asdict(self.settings).items() if self._uses(name)})

    @property
    def folder(self) -> str:
        """Name of the run's folder, which remembers settings that have no effect as well."""
        return f"{self.data}-{re.sub(r'[^A-Za-z0-9]+', '-', self.row)}-{self._checksum(asdict(self.settings))}"

    def _uses(self, setting: str) -> bool:
        try:
            self.settings.check_used([setting])
        except ValueError:
            return False
        return True

    def _checksum(self, settings: dict[str, Any]) -> str:
        decides = [self.source.name, self.source.options, self.model, settings, self.negatives]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def seconds(self) -> float:
        """Rough time of the run."""
        texts = 1 + self.negatives / 2
        return SOURCES[self.data].seconds * texts * (self.settings.epochs + 1)


def read_cells(path: Path) -> list[Cell]:
    """Read cells from a YAML file: a list of entries as `expanded` takes them.

    Raises:
        ValueError: The file does not hold such a list.
    """
    entries = yaml.safe_load(path.read_text())
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path} must hold a list of entries, each with {', '.join(ENTRIES[:3])}.")
    return [cell for entry in entries for cell in expanded(path.stem, entry)]


def expanded(table: str, entry: Mapping[str, Any]) -> Iterator[Cell]:
    """Yield the cells of an entry: every row with every seed.

    Args:
        table: Name of the table.
        entry: `data`, one of `SOURCES`; `rows`, by name, the settings of each row, which may also name explicit
            `negatives`; and optionally `seeds` (a number or a list, 1 by default), `settings` that all rows share, the
            `part` of the table, `data_options`, `model_options` and the `turn` in which the cells begin.

    Raises:
        ValueError: There is no such entry, data set or setting.
    """
    if unknown := [name for name in entry if name not in ENTRIES]:
        raise ValueError(f"{table}: there is no entry {unknown[0]!r} among {', '.join(ENTRIES)}.")
    if entry.get("data") not in SOURCES:
        raise ValueError(f"{table}: there is no data set {entry.get('data')!r} among {', '.join(SOURCES)}.")
    declared = SOURCES[entry["data"]]
    usual = recipe(declared.data.name)
    options = {**usual.data, **declared.data.options, **(entry.get("data_options") or {})}
    model = usual.model if declared.model is None else declared.model
    model = _without_nothing({**model, **(entry.get("model_options") or {})})
    shared = Settings.from_dict({**declared.settings, **_typed(entry.get("settings") or {})}, usual.settings)
    seeds = entry.get("seeds", 1)
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        for row, changes in entry["rows"].items():
            typed = _typed(changes or {})
            negatives = typed.pop(NEGATIVES, 0)
            settings = Settings.from_dict({**typed, "seed": seed}, shared)
            yield Cell(
                table=table,
                part=entry.get("part") or described(settings),
                row=YAML_WORDS.get(row, str(row)),
                data=entry["data"],
                source=replace(declared.data, options=options),
                settings=settings,
                model=model,
                negatives=negatives,
                turn=entry.get("turn", 0),
            )


def described(settings: Settings) -> str:
    """Name what rows usually share: batch size, learning rate and epochs."""
    return (
        f"{settings.pairs_per_batch} pairs per batch, learning rate {settings.learning_rate:g}, "
        f"{settings.epochs} epoch{'s' if settings.epochs > 1 else ''}"
    )


def distinct(cells: Iterable[Cell]) -> list[Cell]:
    """Return one cell per run, that of the earliest turn."""
    return list({cell.key: cell for cell in sorted(cells, key=lambda cell: -cell.turn)}.values())


def _typed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what YAML does to `1e-3`, which it reads as a text, and to `on` and `off`, which it reads as booleans."""
    typed: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, str) and NUMBER.fullmatch(value):
            typed[name] = float(value)
        elif name == "warm_start" and isinstance(value, bool):
            typed[name] = YAML_WORDS[value]
        else:
            typed[name] = value
    return typed


def _without_nothing(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
