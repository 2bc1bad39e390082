"""Write the documentation's tables of commands and options from the dataclasses that declare them."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from lookalike.cli import COMMANDS
from lookalike.cli.options import Option, options_of
from lookalike.cli.runs import defaults_shown
from lookalike.data import data_sets
from lookalike.training.recipes import recipe

PAGES = {  # that tell more about a command
    "train": "training.md",
    "compare": "training.md",
    "mine": "mining.md",
    "export": "models.md",
    "analyze": "analysis.md",
    "plan": "strategy.md",
    "report": "report.md",
    "explore": "explore.md",
    "data": "data.md",
    "completion": "install.md#shell-completion",
}
CLASSES = {  # the options of a table: module and class
    **{
        name: (name, "Options")
        for name in ("train", "compare", "mine", "export", "analyze", "plan", "report", "explore", "demo", "completion")
    },
    "data_check": ("data", "Options"),
    "bench_search": ("bench", "SearchOptions"),
    "bench_batches": ("bench", "Options"),
}


def _rows(options: Iterable[Option], defaults: Mapping[str, Any]) -> str:
    lines = ["| option | default | |", "| --- | --- | --- |"]
    for each in options:
        typed = each.value_shown if each.is_positional else " ".join(filter(None, [each.flag, each.value_shown]))
        negated = "".join(f", `{flag}`" for flag in each.flags[1:])
        cells = [f"`{typed}`{negated}", each.default_shown(defaults), each.help]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _commands() -> str:
    lines = ["| command | |", "| --- | --- |"]
    for name, summary in COMMANDS.items():
        page = f" ([more]({PAGES[name]}))" if name in PAGES else ""
        lines.append(f"| `lookalike {name}` | {summary}{page} |")
    return "\n".join(lines)


def _options(command: str) -> str:
    """List the options of a command, without the settings of a run."""
    options = _declared(command)
    return _rows((each for each in options if each.group != "settings"), {})


def _settings() -> str:
    return _rows((each for each in _declared("train") if each.group == "settings"), defaults_shown([]))


def _recipes() -> str:
    """List data sets that share a recipe in one row, with what distinguishes it from the others."""
    rows: dict[tuple[Any, ...], list[str]] = {}
    for name in data_sets():
        usual = recipe(name)
        settings = usual.settings
        key = (usual.model["encoder"], settings.epochs, settings.pairs_per_batch, settings.learning_rate)
        rows.setdefault(key, []).append(f"`{name}`")
    lines = ["| data | encoder | epochs | pairs per batch | learning rate |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {', '.join(names)} | `{key[0]}` | {' | '.join(map(str, key[1:]))} |" for key, names in rows.items()]
    return "\n".join(lines)


def _declared(command: str) -> Iterable[Option]:
    module, name = CLASSES[command]
    return options_of(getattr(importlib.import_module(f"lookalike.cli.{module}"), name)).values()


TABLES: dict[str, Callable[[], str]] = {
    "commands": _commands,
    "settings": _settings,
    "recipes": _recipes,
    **{f"options_{command}": partial(_options, command) for command in CLASSES},
}
