"""Runs that differ only in the seed belong together: their name, their colour, their place in the order."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lookalike.report.markup import shortened
from lookalike.training.settings import SAMPLERS

if TYPE_CHECKING:
    from lookalike.report.sources import Run

SHADES = 5  # of blue, for codes of up to 64, 128, 256, 512 and more bits
LONGEST_VALUE = 40  # characters of a setting in a label
MINED = ("hardness", "clusters", "method")  # settings without a meaning for random batches


@dataclass(frozen=True)
class Group:
    """Runs of one configuration over seeds."""

    label: str
    strategy: str
    runs: list[Run]
    dash: int = 0  # tells apart what has the same colour

    @property
    def style(self) -> str:
        """CSS classes: the colour of the sampler, and a dash."""
        return f"{colour(self.strategy)} dash{self.dash}" if self.dash else colour(self.strategy)

    @property
    def config(self) -> dict[str, Any]:
        """What they have in common."""
        return self.runs[0].config


def grouped(runs: list[Run]) -> list[Group]:
    """Runs by configuration, in the order of the paper; a label says what distinguishes it and no more."""
    by_key: dict[str, list[Run]] = {}
    for run in runs:
        by_key.setdefault(json.dumps(essential(run.config), sort_keys=True), []).append(run)
    found = sorted(by_key.values(), key=lambda members: _place(members[0].config))
    by_strategy: dict[str, list[list[Run]]] = {}
    for members in found:
        by_strategy.setdefault(strategy_of(members[0].config), []).append(members)
    return [
        Group(", ".join([strategy, *suffix]), strategy, members, dash % 4)
        for strategy, alternatives in by_strategy.items()
        for dash, (members, suffix) in enumerate(zip(alternatives, _suffixes(alternatives), strict=True))
    ]


def essential(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without the seed and without settings that have no meaning for its sampler."""
    sampler = config["sampler"]
    dropped = {
        "seed",
        "data_root",
        *(() if sampler == "lsh" else ("bits",)),
        *(MINED if sampler in ("random", "batchhard") else ()),
    }
    options = [config.get(name) for name in ("data_options", "model_options")]
    flat = {**config, **{name: value for part in options if isinstance(part, dict) for name, value in part.items()}}
    return {name: value for name, value in flat.items() if name not in {*dropped, "data_options", "model_options"}}


def strategy_of(config: dict[str, Any]) -> str:
    """The sampler as tables name it: lsh with its bits."""
    return f"lsh:{config.get('bits', '?')}" if config["sampler"] == "lsh" else str(config["sampler"])


def colour(strategy: str) -> str:
    """The CSS class of a sampler; more bits, a stronger blue."""
    name, _, rest = strategy.partition(",")[0].partition(":")
    if name != "lsh":
        return f"c-{name}" if name in SAMPLERS else "c-other"
    bits = int(rest) if rest.isascii() and rest.isdigit() and int(rest[:18]) > 0 else 512
    return f"c-lsh{min(SHADES, max(1, math.ceil(math.log2(bits)) - 5))}"


def _place(config: dict[str, Any]) -> tuple[int, float, float, str]:
    order, bits, hardness = list(SAMPLERS), config.get("bits"), config.get("hardness")
    return (
        order.index(config["sampler"]) if config["sampler"] in order else len(order),
        bits if isinstance(bits, int) else math.inf,
        1.0 if hardness is None else hardness,
        str(config.get("data", "")),
    )


def _suffixes(alternatives: list[list[Run]]) -> list[list[str]]:
    """For groups of one strategy, the settings in which they differ."""
    configs = [essential(members[0].config) for members in alternatives]
    names = sorted({name for config in configs for name in config})
    varying = [name for name in names if len({json.dumps(config.get(name)) for config in configs}) > 1]
    if "data" in varying and "data_checksum" in varying:
        varying.remove("data_checksum")
    if "model" in varying and len(varying) > 1:  # it counts parameters, which follow from the options
        varying.remove("model")
    words = {"data_checksum": "data", "data": "", "learning_rate": "lr", "model": ""}

    def said(name: str, value: Any) -> str:
        text = f"{value:g}" if isinstance(value, float) else str(value)
        return f"{words.get(name, name.replace('_', ' '))} {shortened(text, LONGEST_VALUE)}".strip()

    return [[said(name, config.get(name)) for name in varying] for config in configs]
