"""The comparisons of docs/results.md: the paper's samplers with the paper's settings, as `lookalike compare` runs them.

They are trained as cells of the pool, but each is also one command, which the page shows.
"""

import re
from dataclasses import asdict
from typing import Any

from benchmarks.quality.sources import SOURCES
from lookalike.cli.compare import SAMPLERS
from lookalike.training.recipes import recipe
from lookalike.training.settings import PRESETS

PAPER = PRESETS["paper"]
PAPER_FLAGS = ("--preset", "paper")

PUBLISHED: dict[str, dict[str, Any]] = {  # what differs from the settings that `SOURCES` declares
    "medquad": {"samplers": (*SAMPLERS, "lsh:auto"), "settings": {"epochs": 4}, "seeds": 3},
    "debian": {"seeds": 3},
    "emoji": {"settings": {"epochs": 10}, "seeds": 3},
    "grocery": {"seeds": 3},
    "glyphs": {"settings": {"evaluate_every": 1}, "seeds": 5},
    "cjk": {"settings": {"evaluate_every": 1}, "seeds": 5},
}


def _settings(data: str) -> dict[str, Any]:
    return {"evaluate_every": 0, **SOURCES[data].settings, **PUBLISHED[data].get("settings", {})}


def entry(data: str) -> dict[str, Any]:
    """Return the comparison on a data set as `expanded` takes it."""
    declared = PUBLISHED[data]
    rows = {sampler: {"sampler": sampler} for sampler in declared.get("samplers", SAMPLERS)}
    settings = {**PAPER, **_settings(data)}
    return {"data": data, "part": data, "seeds": declared["seeds"], "settings": settings, "rows": rows}


def command(data: str) -> list[str]:
    """Return the same comparison as a command, to be run in the folder of inputs.

    Examples:
        >>> command("glyphs")
        ['lookalike', 'compare', 'glyphs', '--seeds', '5']
    """
    source, declared = SOURCES[data], PUBLISHED[data]
    model = dict(source.model or {})
    named: list[tuple[str, Any]] = [] if source.data.root is None else [("root", source.data.root)]
    named += [("data-option", f"{name}={value}") for name, value in source.data.options.items()]
    named += [("model", model.pop("encoder"))] if model else []
    named += [("model-option", f"{name}={value}") for name, value in model.items()]
    named += [("samplers", ",".join(declared["samplers"]))] if "samplers" in declared else []
    usual = asdict(recipe(source.data.name).settings)
    named += [
        (name.replace("_", "-"), _short(value)) for name, value in _settings(data).items() if value != usual[name]
    ]
    named.append(("seeds", declared["seeds"]))
    flags = [text for name, value in named for text in (f"--{name}", str(value))]
    return ["lookalike", "compare", source.data.name, *PAPER_FLAGS, *flags]


def _short(value: float) -> str:
    return re.sub(r"(\.0+)?e-0", "e-", f"{value:.0e}") if 0 < value < 1e-3 else f"{value:g}"
