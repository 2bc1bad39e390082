"""Group runs that differ only in the seed; name and colour the groups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lookalike.report.records.runs import Setting
from lookalike.report.text import shortened
from lookalike.training.settings import CODES, SAMPLERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lookalike.report.records.runs import Run, RunConfig

SHADES = 5  # of blue, for codes of up to 64, 128, 256, 512 and more bits
LONGEST_VALUE = 40  # characters of a setting in a label
UNSET = Setting("", "unset")
WORDS = {"data_checksum": "data", "data": "", "learning_rate": "lr", "model": ""}  # for settings in labels


@dataclass(frozen=True)
class Group:
    """Runs of one configuration over seeds."""

    label: str
    runs: list[Run]
    dash: int = 0
    """Tells lines of the same colour apart."""

    @property
    def config(self) -> RunConfig:
        """What the runs have in common."""
        return self.runs[0].config

    @property
    def style(self) -> str:
        """CSS classes: the colour of the sampler, and a dash."""
        plain = colour(self.config.strategy)
        return f"{plain} dash{self.dash}" if self.dash else plain


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Group runs by configuration, samplers in the order of tables; a label names only what tells groups apart."""
    by_identity: dict[tuple[tuple[str, Setting], ...], list[Run]] = {}
    for run in runs:
        by_identity.setdefault(tuple(sorted(run.config.identity.items())), []).append(run)
    by_strategy: dict[str, list[list[Run]]] = {}
    for members in sorted(by_identity.values(), key=lambda members: _order(members[0].config)):
        by_strategy.setdefault(members[0].config.strategy, []).append(members)
    return [
        Group(", ".join([strategy, *differences]), members, dash % 4)
        for strategy, alternatives in by_strategy.items()
        for dash, (members, differences) in enumerate(zip(alternatives, _differences(alternatives), strict=True))
    ]


def colour(strategy: str) -> str:
    """Return the CSS class of a sampler; more bits, a stronger blue.

    Examples:
        >>> colour("random"), colour("lsh:128"), colour("lsh:512"), colour("scalar:128")
        ('c-random', 'c-lsh2', 'c-lsh4', 'c-scalar')
    """
    name, _, rest = strategy.partition(",")[0].partition(":")
    if name != "lsh":
        return "c-scalar" if name in CODES else f"c-{name}" if name in SAMPLERS else "c-other"
    bits = int(rest) if rest.isascii() and rest.isdigit() and int(rest[:18]) > 0 else 512
    return f"c-lsh{min(SHADES, max(1, math.ceil(math.log2(bits)) - 5))}"


def _order(config: RunConfig) -> tuple[int, float, float, str]:
    samplers = list(SAMPLERS)
    return (
        samplers.index(config.sampler) if config.sampler in samplers else len(samplers),
        math.inf if config.bits in (None, "auto") else float(config.bits),
        1.0 if config.hardness is None else config.hardness,
        config.data,
    )


def _differences(alternatives: list[list[Run]]) -> list[list[str]]:
    """Describe, for every group of one strategy, the settings in which the groups differ."""
    identities = [members[0].config.identity for members in alternatives]
    names = sorted({name for identity in identities for name in identity})
    varying = [name for name in names if len({identity.get(name, UNSET) for identity in identities}) > 1]
    if "data" in varying and "data_checksum" in varying:
        varying.remove("data_checksum")
    if "model" in varying and len(varying) > 1:  # its number of parameters follows from the options
        varying.remove("model")

    def worded(name: str, setting: Setting) -> str:
        return f"{WORDS.get(name, name.replace('_', ' '))} {shortened(setting.shown, LONGEST_VALUE)}".strip()

    return [[worded(name, identity.get(name, UNSET)) for name in varying] for identity in identities]
