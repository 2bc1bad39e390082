"""What may be typed after each command, for shells: collected from the dataclasses that declare the options."""

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lookalike.cli import COMMANDS
from lookalike.cli.options import Option, options_of

LONGEST = 72  # characters of a description


@dataclass(frozen=True, kw_only=True)
class Typed:
    """An option or a positional argument, as a shell completes it."""

    flags: tuple[str, ...]
    """All spellings; for a positional argument, its name."""
    help: str
    takes_value: bool = False
    words: tuple[str, ...] = ()
    """Values to complete."""
    files: bool = False
    """Whether its value may be a file or folder."""
    repeated: bool = False
    """Whether it may be typed several times."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, or a menu of commands."""

    path: tuple[str, ...]
    """The words that lead to it; none for `lookalike` itself."""
    commands: Mapping[str, str]
    """For a menu: the summary of each command."""
    options: tuple[Typed, ...]
    positionals: tuple[Typed, ...] = ()


HELP = Typed(flags=("--help",), help="show the help")
VERSION = Typed(flags=("--version",), help="show the version")


def commands() -> Iterator[Command]:
    """Yield `lookalike` itself and every command below it."""
    yield Command(path=(), commands=COMMANDS, options=(HELP, VERSION))
    for name in COMMANDS:
        module = importlib.import_module(f"lookalike.cli.{name}")
        menu = getattr(module, "MENU", None)
        if menu is None:
            yield _command((name,), module.Options)
            continue
        yield Command(path=(name,), commands={each: summary for each, (summary, _) in menu.items()}, options=(HELP,))
        for each, (_, options) in menu.items():
            yield _command((name, each), options)


def _command(path: tuple[str, ...], options: type) -> Command:
    declared = options_of(options).values()
    return Command(
        path=path,
        commands={},
        options=(HELP, *(_typed(each) for each in declared if not each.is_positional)),
        positionals=tuple(_typed(each) for each in declared if each.is_positional),
    )


def _typed(option: Option) -> Typed:
    is_boolean = bool in option.kinds
    is_open = not option.choices and bool({Path, str} & {*option.kinds}) and not option.is_pairs
    return Typed(
        flags=option.flags,
        help=_first_sentence(option.help),
        takes_value=not is_boolean,
        words=option.words,
        files=is_open and (option.is_positional or not option.words),
        repeated=option.is_pairs or (option.is_positional and option.is_tuple),
    )


def _first_sentence(text: str) -> str:
    """Return what fits beside an option: the first clause, without the marks that shells or Markdown read.

    Examples:
        >>> _first_sentence('Code length, or "auto" to choose it; ignored unless the sampler is "lsh".')
        'Code length, or auto to choose it'
    """
    clause = re.split(r"[;:(]|\.\s", text, maxsplit=1)[0].strip().rstrip(".")
    plain = re.sub(r"""["'`\\$\[\]]""", "", clause)
    return plain if len(plain) <= LONGEST else plain[:LONGEST].rpartition(" ")[0] + " ..."
