"""Parse the command line and print its help, from the dataclass that declares a command's options.

A command is one file, `cli/NAME.py`, with an entry in `COMMANDS` of `cli/__init__.py`. It declares its options as a
dataclass, in which docstrings under the fields are the help, and a function `main`, whose docstring describes it:

    @dataclass(frozen=True, kw_only=True)
    class Options:
        source: Positional[Path]
        '''Embeddings (.npy, .npz, .safetensors, .parquet), or the folder of a run.'''
        k: int = 128
        '''Hard negatives per anchor.'''
        out: Annotated[Path | None, Hint(default="analysis.json beside SOURCE")] = None
        '''File to write.'''
        force: Flag = False
        '''Overwrite the output.'''


    def main(args: list[str]) -> None:
        '''Compare the hard negatives found in bits with the true ones.'''
        options = parse(Options, args, "analyze", main.__doc__)
        from lookalike.analysis.study import analyze  # imports torch: only once the command line is parsed

        ...

The file imports nothing heavy at its top, so that `--help` answers at once, and not `annotations` from `__future__`
(linters would then ask for imports that only type checkers see). `main` raises ValueError, TypeError, ImportError or
OSError for a user's mistake; `lookalike.cli.main` prints it in one line and exits with 2. Errors of the library
name arguments (`force=True`), which `lookalike.cli.main` replaces with options (`--force`).

A field whose type is a dataclass is a group: its fields become options like the others, in a box of their own in the
help, titled by the field's name. A boolean becomes `--name` and `--no-name`. A `Flag` becomes `--name` alone, and no
configuration file holds it: it belongs to one call. The values of a tuple are typed with commas between them. `Pairs`
collects `--model-option NAME=VALUE`, typed any number of times, into the dictionary `model_options`.

A command that reads a configuration file (`--config FILE`) and prints one (`--print-config`) merges what was typed over
what the file holds, and that over the defaults:

    # with `config: ConfigFile = None` and `print_config: Flag = False` among the options
    typed = parse_typed(Options, args, "mine", main.__doc__)
    options = build(Options, {**read_config(typed.get("config"), Options), **typed})
    if options.print_config:
        print_config(options)
        return
"""

from __future__ import annotations

import json
import re
from dataclasses import field, make_dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import tyro
from tyro.conf import DisallowNone, FlagCreatePairsOff, UseAppendAction

from lookalike.cli.options import ConfigFile, Device, Flag, Hint, Option, Pairs, Positional, Without, build, options_of
from lookalike.utils.messages import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["ConfigFile", "Device", "Flag", "Hint", "Pairs", "Positional", "Without", "build", "parse", "parse_typed"]

T = TypeVar("T")
NUMBER = re.compile(r"-?\d+(\.\d+)?|-?\d(\.\d+)?[eE][-+]?\d{1,2}")
LIKE_A_NUMBER = re.compile(r"[-+.\d][-+.\deE]*|NaN|-?Infinity")
WORDS = {"true": True, "false": False, "none": None, "null": None}
KINDS = (int, float, Path, str)  # tried in this order


def parse(options: type[T], args: Sequence[str], command: str, description: str | None) -> T:
    """Parse the arguments of a command; print its help and exit if they ask for it.

    Args:
        options: The dataclass that declares its options.
        args: What was typed after its name.
        command: Its name, such as "data check".
        description: What it does, for the help.

    Raises:
        ValueError: There is no such option, or its value has another type.
    """
    return build(options, parse_typed(options, args, command, description))


def parse_typed(
    options: type,
    args: Sequence[str],
    command: str,
    description: str | None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the options that were typed, by name; otherwise like `parse`.

    Args:
        options: As in `parse`.
        args: As in `parse`.
        command: As in `parse`.
        description: As in `parse`.
        defaults: Defaults to show in the help instead of those of the dataclass.
    """
    declared, prog = options_of(options), f"lookalike {command}"
    found, unknown = tyro.cli(
        _class_for_tyro(options, defaults or {}),
        prog=prog,
        description=" ".join((description or "").split()),
        args=args,
        return_unknown_args=True,
    )
    if unknown:
        raise ValueError(_unknown(prog, unknown[0], declared.values()))
    typed = {}
    for name, each in declared.items():
        value = getattr(getattr(found, each.group) if each.group else found, name)
        if value is not None and value not in ([], ()):
            typed[name] = _converted(each, value)
    return typed


def _class_for_tyro(options: type, defaults: Mapping[str, Any]) -> Any:
    """Make the class that tyro parses: every option as text, with its help.

    Values are converted afterwards, so that type errors are worded here, in one line, and an option that was not typed
    is None.
    """
    members: dict[str | None, list[Any]] = {None: []}
    for each in options_of(options).values():
        members.setdefault(each.group, []).append(_member(each, defaults))
    hints = get_type_hints(options)
    for group, content in members.items():
        if group is not None:
            made = make_dataclass(group, content, kw_only=True)
            made.__doc__ = (hints[group].__doc__ or "").partition("\n")[0]
            members[None].append((group, made))
    return make_dataclass("Options", members[None], kw_only=True)


def _member(each: Option, defaults: Mapping[str, Any]) -> tuple[Any, ...]:
    default = each.default_shown(defaults)
    hint = f"(default: {default})" if default else "(repeatable)" if each.is_pairs else ""
    shown = tyro.conf.arg(
        name=each.flag.removeprefix("--") if each.is_pairs else None,
        help=each.help,
        help_behavior_hint=hint,
        metavar=each.value_shown,
        prefix_name=False,
    )
    if each.is_pairs:
        return each.name, Annotated[UseAppendAction[list[str]], shown], field(default_factory=list)
    if each.is_flag:
        return each.name, Annotated[bool | None, DisallowNone, FlagCreatePairsOff, shown], None
    if bool in each.kinds:
        return each.name, Annotated[bool | None, DisallowNone, shown], None
    if not each.is_positional:
        return each.name, Annotated[str | None, DisallowNone, shown], None
    if each.is_required or each.is_tuple:
        return each.name, Annotated[tuple[str, ...] if each.is_tuple else str, Positional, shown]
    return each.name, Annotated[str | None, DisallowNone, Positional, shown], None


def _converted(each: Option, value: Any) -> Any:
    """Convert what was typed to the type of its option.

    Raises:
        ValueError: It cannot be read as any of them.
    """
    if isinstance(value, bool):
        return value
    if each.is_pairs:
        return dict(_pair(each, text) for text in value)
    if each.is_tuple:
        return tuple(_single(each, text.strip()) for text in (value if each.is_positional else value.split(",")))
    return _single(each, value)


def _single(each: Option, text: str) -> Any:
    if NoneType in each.kinds and (str not in each.kinds or each.choices) and text.lower() == "none":
        return None
    is_other_word = each.choices and len(each.kinds) > 1 and text not in each.choices
    for kind in KINDS:
        if kind in each.kinds and not (kind is str and is_other_word):
            try:
                return kind(text)
            except ValueError:
                continue
    several = " or several with commas between them," if each.is_tuple else ""
    raise ValueError(f"{each.flag} must be {each.expected},{several} got {text!r}.")


def _pair(each: Option, text: str) -> tuple[str, Any]:
    """Split NAME=VALUE; the value is a number, true, false, none, a list, or else text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"{each.flag} must be NAME=VALUE, such as size=224, got {text!r}.")
    if value.lower() in WORDS:
        return name, WORDS[value.lower()]
    if LIKE_A_NUMBER.fullmatch(value) and not NUMBER.fullmatch(value):
        return name, value  # such as a commit, 1234e56
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _unknown(prog: str, word: str, known: Iterable[Option]) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r}. See {prog} --help."
    typed = word.partition("=")[0]
    flags = [flag for each in known if not each.is_positional for flag in each.flags]
    return f"there is no option {typed!r}{suggestion(typed, flags)} See {prog} --help."
